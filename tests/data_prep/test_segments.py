import hashlib
import random

import pytest

from data_prep.segments import Segmenter, draw_target_length

LONG_TARGET = 0.99  # draws that leave the usual path: no short target, two segments, crossing line to B
TWO_SEGMENTS = 0.99
TO_B = 0.99
TO_A = 0.0
SINGLE_SEGMENT = 0.0


class ScriptedSource:
    """Gives the scripted numbers in order and fails when asked for more."""

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


def test_lines_go_to_the_first_segment_while_they_stay_under_its_target():
    # Target of A: (13 - 3) // 2 = 5. Lines of 2 and 2 fit, the third crosses and is sent to B.
    source = ScriptedSource(TWO_SEGMENTS, TO_B, LONG_TARGET)
    assert split(source, 2, 2, 3, max_seq_length=13) == [([1, 2, 3, 4], [5, 6, 7])]
    assert source.is_used_up


def test_a_crossing_line_may_go_to_the_first_segment_by_chance():
    source = ScriptedSource(TWO_SEGMENTS, TO_A, LONG_TARGET)
    assert split(source, 4, 3, 2, max_seq_length=13) == [([1, 2, 3, 4, 5, 6, 7], [8, 9])]
    assert source.is_used_up


def test_no_coin_is_thrown_once_the_second_segment_has_begun():
    source = ScriptedSource(TWO_SEGMENTS, TO_B, LONG_TARGET)
    assert split(source, 4, 3, 3, max_seq_length=13) == [([1, 2, 3, 4], [5, 6, 7, 8, 9, 10])]
    assert source.is_used_up


def test_a_short_line_goes_back_to_the_first_segment_as_in_the_authors_code():
    source = ScriptedSource(TWO_SEGMENTS, TO_B, LONG_TARGET)
    assert split(source, 3, 4, 1, max_seq_length=13) == [([1, 2, 3, 8], [4, 5, 6, 7])]


def test_a_single_segment_example_takes_all_lines():
    source = ScriptedSource(SINGLE_SEGMENT, LONG_TARGET)
    assert split(source, 2, 3, 4, max_seq_length=13) == [([1, 2, 3, 4, 5, 6, 7, 8, 9], [])]
    assert source.is_used_up


def test_the_second_segment_gets_what_the_first_and_three_special_tokens_leave():
    # 11 - 3 - 3 = 5 of the 6 tokens of B.
    source = ScriptedSource(TWO_SEGMENTS, TO_B, LONG_TARGET)
    assert split(source, 3, 6, max_seq_length=11) == [([1, 2, 3], [4, 5, 6, 7, 8])]


def test_a_second_segment_without_room_vanishes():
    # A holds 8 of 10 - 2 tokens: nothing is left for B and its [SEP].
    source = ScriptedSource(TWO_SEGMENTS, LONG_TARGET)
    assert split(source, 8, 5, max_seq_length=10) == [([1, 2, 3, 4, 5, 6, 7, 8], [])]


def test_an_example_ends_at_the_first_line_that_reaches_the_target():
    source = ScriptedSource(SINGLE_SEGMENT, LONG_TARGET, SINGLE_SEGMENT, LONG_TARGET)
    assert split(source, 5, 4, 6, max_seq_length=9) == [
        ([1, 2, 3, 4, 5, 6, 7], []),
        ([10, 11, 12, 13, 14, 15], []),
    ]


def test_a_short_target_is_a_lower_bound_and_not_a_cut():
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
def test_one_target_in_twenty_is_drawn(numbers, target):
    assert draw_target_length(32, ScriptedSource(*numbers)) == target


def test_the_order_of_the_draws_is_the_authors():
    # Digest of this text's examples by the code that repeats all 12 id streams of the authors' builder under
    # random.Random(seed); a draw more, fewer or elsewhere changes it.
    segmenter = Segmenter(64, random.Random(1), target_length=64)
    digest = hashlib.sha256()
    for document in range(30):
        for first, second in segmenter.split_document(*lines_to_ids(*(i * i % 29 for i in range(17 * document)))):
            digest.update(f"{first}{second}".encode())
    assert digest.hexdigest() == "3602cb5f80d0e76035873749e4b99406f5635cdb6d7a884c621b2e164bfea643"
