import hashlib
import random
from itertools import accumulate, chain

import pytest

from data_prep.segments import authors_segments, carried_segments

# Scripted draws: no short target, two segments, a line that crosses the middle goes to B; and the opposites.
LONG_TARGET = TWO_SEGMENTS = TO_B = 0.99
SHORT_TARGET = TO_A = SINGLE_SEGMENT = 0.0


class ScriptedSource:
    """Returns the scripted numbers in order and fails after the last one."""

    def __init__(self, *numbers: float):
        self.left = list(numbers)

    def random(self) -> float:
        return self.left.pop(0)

    def randint(self, a: int, b: int) -> int:
        assert a <= self.left[0] <= b
        return int(self.random())


def splits(*lengths: int) -> list[int]:
    """The row splits of lines with these numbers of tokens."""
    return list(accumulate(lengths, initial=0))


def tokens(examples):
    """The token ids of A and B of each example, of a document with the ids 1, 2, 3, ..."""
    return [
        tuple([token for begin, end in ranges for token in range(begin + 1, end + 1)] for ranges in segments)
        for segments in examples
    ]


def test_the_draws_have_the_order_of_the_authors_code():
    # The digest comes from code that gave all 12 id streams of the authors' builder with random.Random(seed). One more
    # or one less draw, or another order, changes it.
    source = random.Random(1)
    drawn = chain([LONG_TARGET], iter(source.random, None))  # the authors' code draws no target for the first example
    source.random = lambda: next(drawn)
    digest = hashlib.sha256()
    for document in range(30):
        for first, second in tokens(authors_segments(splits(*(i * i % 29 for i in range(17 * document))), 64, source)):
            digest.update(f"{first}{second}".encode())
    assert digest.hexdigest() == "3602cb5f80d0e76035873749e4b99406f5635cdb6d7a884c621b2e164bfea643"


def ids(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


@pytest.mark.parametrize(
    ("lengths", "draws", "examples"),
    [
        # At length 13, two segments have up to 10 tokens. The middle of 10 is 5; line breaks from 3 to 7 are near it.
        ((4, 3, 6), (LONG_TARGET, TWO_SEGMENTS, TO_B) + (LONG_TARGET, TWO_SEGMENTS),
         [(ids(1, 4), ids(5, 10)), (ids(11, 13), [])]),
        ((4, 3, 6), (LONG_TARGET, TWO_SEGMENTS, TO_A) + (LONG_TARGET, TWO_SEGMENTS),
         [(ids(1, 7), ids(8, 10)), (ids(11, 13), [])]),
        ((3, 7), (LONG_TARGET, TWO_SEGMENTS), [(ids(1, 3), ids(4, 10))]),  # one is near: no draw
        ((2, 8), (LONG_TARGET, TWO_SEGMENTS), [(ids(1, 5), ids(6, 10))]),  # none is near: the middle
        ((0, 7, 0, 3), (LONG_TARGET, TWO_SEGMENTS), [(ids(1, 7), ids(8, 10))]),
        # A long line is cut wherever an example ends; a remainder of less than half an example stays whole.
        ((26,), (LONG_TARGET, TWO_SEGMENTS) * 3,
         [(ids(1, 5), ids(6, 10)), (ids(11, 15), ids(16, 20)), (ids(21, 26), [])]),
        ((27,), (LONG_TARGET, TWO_SEGMENTS) * 3,
         [(ids(1, 5), ids(6, 10)), (ids(11, 15), ids(16, 20)), (ids(21, 23), ids(24, 27))]),
        ((4, 9), (LONG_TARGET, SINGLE_SEGMENT) * 2, [(ids(1, 11), []), (ids(12, 13), [])]),
        # An example with a target of 5 ends at the next line break, here after 7, or after 5 if that is too far away.
        ((3, 4, 9), (SHORT_TARGET, 5, TWO_SEGMENTS) + (LONG_TARGET, TWO_SEGMENTS),
         [(ids(1, 3), ids(4, 7)), (ids(8, 11), ids(12, 16))]),
        ((12,), (SHORT_TARGET, 5, TWO_SEGMENTS) + (LONG_TARGET, SINGLE_SEGMENT), [(ids(1, 5), []), (ids(6, 12), [])]),
        # A short target does not divide what fits into one example.
        ((3, 4), (SHORT_TARGET, 5, TWO_SEGMENTS), [(ids(1, 3), ids(4, 7))]),
    ],
)  # fmt: skip
def test_what_exceeds_an_example_begins_the_next(lengths, draws, examples):
    source = ScriptedSource(*draws)
    assert tokens(carried_segments(splits(*lengths), 13, source)) == examples
    assert source.left == []


@pytest.mark.parametrize("max_seq_length", [8, 9, 32, 127])
def test_carrying_keeps_every_token_in_order_and_all_but_few_examples_full(max_seq_length):
    source = random.Random(max_seq_length)
    row_splits = splits(*(source.choice((0, 1, 7, 30, 400)) for _ in range(300)))
    examples = tokens(carried_segments(row_splits, max_seq_length, source))
    assert [token for first, second in examples for token in first + second] == list(range(1, row_splits[-1] + 1))
    free = [max_seq_length - len(first) - len(second) - (3 if second else 2) for first, second in examples]
    assert min(free) == 0 and all(first for first, _ in examples)
    # One in twenty has a short target; of 200 or more examples, 12 % is over four standard deviations.
    assert sum(map(bool, free[:-1])) < 0.12 * len(examples)
