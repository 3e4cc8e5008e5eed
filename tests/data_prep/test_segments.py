import hashlib
import random

import pytest

from data_prep.segments import Segmenter, draw_target_length

# Scripted draws: no short target; two segments; a line that crosses the middle goes to B, or to A; one segment.
LONG_TARGET = 0.99
TWO_SEGMENTS = 0.99
TO_B = 0.99
TO_A = 0.0
SINGLE_SEGMENT = 0.0


class ScriptedSource:
    """Returns the scripted numbers in order and fails after the last one."""

    def __init__(self, *numbers: float):
        self._numbers = list(numbers)

    def random(self) -> float:
        return self._numbers.pop(0)

    def randint(self, a: int, b: int) -> int:
        number = self._numbers.pop(0)
        assert a <= number <= b
        return int(number)

    @property
    def is_used_up(self) -> bool:
        return not self._numbers


def lines_to_ids(*lengths: int) -> tuple[list[int], list[int]]:
    """Lines of ids 1, 2, 3, ... and their row splits."""
    row_splits = [0]
    for length in lengths:
        row_splits.append(row_splits[-1] + length)
    return list(range(1, row_splits[-1] + 1)), row_splits


def split(source: ScriptedSource, *lengths: int, max_seq_length: int, target_length: int | None = None):
    segmenter = Segmenter(max_seq_length, source, target_length or max_seq_length)
    return list(segmenter.split_document(*lines_to_ids(*lengths)))


@pytest.mark.parametrize(
    ("lengths", "max_seq_length", "draws", "examples"),
    [
        # Target of A: (13 - 3) // 2 = 5. Lines of 2 and 2 fit; the third crosses: to B, or by chance to A.
        ((2, 2, 3), 13, (TWO_SEGMENTS, TO_B, LONG_TARGET), [([1, 2, 3, 4], [5, 6, 7])]),
        ((4, 3, 2), 13, (TWO_SEGMENTS, TO_A, LONG_TARGET), [([1, 2, 3, 4, 5, 6, 7], [8, 9])]),
        # There is no draw once B has begun; as in the authors' code, a short line goes back to A.
        ((4, 3, 3), 13, (TWO_SEGMENTS, TO_B, LONG_TARGET), [([1, 2, 3, 4], [5, 6, 7, 8, 9, 10])]),
        ((3, 4, 1), 13, (TWO_SEGMENTS, TO_B, LONG_TARGET), [([1, 2, 3, 8], [4, 5, 6, 7])]),
        ((2, 3, 4), 13, (SINGLE_SEGMENT, LONG_TARGET), [([1, 2, 3, 4, 5, 6, 7, 8, 9], [])]),
        # B gets what A and three special tokens leave: 11 - 3 - 3 = 5 of its 6 tokens; with 8 of 10 - 2 in A, none.
        ((3, 6), 11, (TWO_SEGMENTS, TO_B, LONG_TARGET), [([1, 2, 3], [4, 5, 6, 7, 8])]),
        ((8, 5), 10, (TWO_SEGMENTS, LONG_TARGET), [([1, 2, 3, 4, 5, 6, 7, 8], [])]),
        # An example ends at the first line that reaches the target.
        (
            *((5, 4, 6), 9, (SINGLE_SEGMENT, LONG_TARGET) * 2),
            [([1, 2, 3, 4, 5, 6, 7], []), ([10, 11, 12, 13, 14, 15], [])],
        ),
    ],
)
def test_lines_are_distributed_over_segments(lengths, max_seq_length, draws, examples):
    source = ScriptedSource(*draws)
    assert split(source, *lengths, max_seq_length=max_seq_length) == examples
    assert source.is_used_up


def test_an_example_may_be_longer_than_a_short_target():
    # Target 6: two lines of 4 are gathered and all 8 tokens stay.
    source = ScriptedSource(SINGLE_SEGMENT, LONG_TARGET, SINGLE_SEGMENT, LONG_TARGET)
    assert split(source, 4, 4, 3, max_seq_length=20, target_length=6) == [
        ([1, 2, 3, 4, 5, 6, 7, 8], []),
        ([9, 10, 11], []),
    ]


def test_the_target_length_carries_over_to_the_next_document():
    segmenter = Segmenter(20, ScriptedSource(SINGLE_SEGMENT, 0.0, 5, SINGLE_SEGMENT, LONG_TARGET), target_length=20)
    assert list(segmenter.split_document(*lines_to_ids(3))) == [([1, 2, 3], [])]
    assert next(segmenter.split_document(*lines_to_ids(5, 4))) == ([1, 2, 3, 4, 5], [])


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0, 0)])
def test_a_document_without_tokens_gives_no_example(lengths):
    assert split(ScriptedSource(), *lengths, max_seq_length=9) == []


@pytest.mark.parametrize(
    ("numbers", "target"), [((0.049, 5), 5), ((0.049, 31), 31), ((0.05,), 32)], ids=["shortest", "longer", "full"]
)
def test_one_target_length_in_twenty_is_random(numbers, target):
    assert draw_target_length(32, ScriptedSource(*numbers)) == target


def test_the_draws_have_the_order_of_the_authors_code():
    # The digest comes from code that gave all 12 id streams of the authors' builder with random.Random(seed). One more
    # or one less draw, or another order, changes it.
    segmenter = Segmenter(64, random.Random(1), target_length=64)
    digest = hashlib.sha256()
    for document in range(30):
        for first, second in segmenter.split_document(*lines_to_ids(*(i * i % 29 for i in range(17 * document)))):
            digest.update(f"{first}{second}".encode())
    assert digest.hexdigest() == "3602cb5f80d0e76035873749e4b99406f5635cdb6d7a884c621b2e164bfea643"
