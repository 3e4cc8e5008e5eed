"""Cuts the tokens of a document into `[CLS] A [SEP] B [SEP]` examples, by one of two rules.

In both, B continues A: there is no next-sentence prediction. One example in ten has no B, and one in twenty has a short
target length. An example never spans two documents; `data_prep.packs` may join several into one.

- `carried_segments` loses nothing: an example begins where the last one ended.
- `authors_segments` begins each example at a line and drops the tokens that exceed the length of an example. Random
  numbers are drawn in the order of the authors' code, so the same `random.Random(seed)` gives the same ids.

Source of the second rule: google-research/electra, build_pretraining_dataset.py (behaviour).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from random import Random

Range = tuple[int, int]  # the tokens of a document from an offset to another, which is greater
Segments = tuple[list[Range], list[Range]]  # the tokens of A and of B, which has none in a single-segment example
CutDocument = Callable[[Sequence[int], int, Random], Iterator[Segments]]

SHORT_TARGET_FRACTION = 0.05  # of the examples have a random target length from MIN_TARGET_LENGTH to max_seq_length
MIN_TARGET_LENGTH = 5
SINGLE_SEGMENT_FRACTION = 0.1  # of the examples have no B, whatever their length
CROSSING_LINE_FRACTION = 0.5  # of the lines that cross the middle go to A
_UNREACHABLE_LENGTH = 100_000  # tokens of A in a single-segment example, as in the authors' code


def draw_target_length(max_seq_length: int, random_source: Random) -> int:
    """Draws the minimum number of tokens that the next example collects, before it is cut to `max_seq_length`."""
    if random_source.random() < SHORT_TARGET_FRACTION:
        return random_source.randint(MIN_TARGET_LENGTH, max_seq_length)
    return max_seq_length


def carried_segments(row_splits: Sequence[int], max_seq_length: int, random_source: Random) -> Iterator[Segments]:
    """Yields the examples of one document, in order; together they have all of its tokens.

    All examples are full, except those with a short target length and the last one. An example with a short target ends
    at the first line break from its target on, or at its target if no line break follows in time. Draws for each
    example: its target length, whether it is single, and the border, if there is a choice (see `_border`).

    Args:
        row_splits: line i has the tokens from offset `row_splits[i]` to `row_splits[i + 1]`. The first entry may be any
            offset, so that a batch of documents shares one array of tokens.
        max_seq_length: S, maximum number of tokens in an example, [CLS] and [SEP] included.
        random_source: generator of all draws.
    """
    begin, document_end = row_splits[0], row_splits[-1]
    while begin < document_end:
        target_length = draw_target_length(max_seq_length, random_source)
        is_single = random_source.random() < SINGLE_SEGMENT_FRACTION
        last_end = begin + max_seq_length - (2 if is_single else 3)  # [CLS] A [SEP] or [CLS] A [SEP] B [SEP]
        end = min(last_end, document_end)
        # Ignore a short target if the rest fits in one example.
        if begin + target_length < last_end < document_end:
            line_end = row_splits[bisect_left(row_splits, begin + target_length)]
            end = line_end if line_end <= last_end else begin + target_length
        border = end if is_single else _border(row_splits, begin, end, max_seq_length, random_source)
        yield [(begin, border)], [(border, end)] if border < end else []
        begin = end


def _border(row_splits: Sequence[int], begin: int, end: int, max_seq_length: int, random_source: Random) -> int:
    """Returns the border between A and B in the tokens from `begin` to `end`; `end` if there is no B.

    Random between the two line breaks around the middle if both are in the middle half of the example; else the one
    there; else the middle itself, but a text of less than half an example gets no B.
    """
    length = end - begin
    middle, reach = begin + length // 2, length // 4
    next_line = bisect_right(row_splits, middle)
    before, after = row_splits[next_line - 1], row_splits[next_line]
    # In an example of one token, the middle is its begin.
    is_before_near = before > begin and middle - before <= reach
    is_after_near = after - middle <= reach
    if is_before_near and is_after_near:
        return after if random_source.random() < CROSSING_LINE_FRACTION else before
    if is_before_near or is_after_near:
        return before if is_before_near else after
    return middle if 2 * length > max_seq_length else end


def authors_segments(row_splits: Sequence[int], max_seq_length: int, random_source: Random) -> Iterator[Segments]:
    """Yields the examples of one document by the authors' rule; see `carried_segments` for the arguments.

    Lines are collected until they hold at least a target number of tokens.
    """
    first_line, num_lines = 0, len(row_splits) - 1
    while row_splits[first_line] < row_splits[num_lines]:
        target_length = draw_target_length(max_seq_length, random_source)
        enough = row_splits[first_line] + target_length
        end_line = min(bisect_left(row_splits, enough, lo=first_line + 1), num_lines)
        yield _distribute(row_splits[first_line : end_line + 1], target_length, max_seq_length, random_source)
        first_line = end_line


# By --examples.
CUT_DOCUMENT: dict[str, CutDocument] = {
    "carry": carried_segments,
    "pack": carried_segments,
    "authors": authors_segments,
}


def _distribute(row_splits: Sequence[int], target_length: int, max_seq_length: int, random_source: Random) -> Segments:
    """Distributes the lines of an example over two segments, which lose the tokens that do not fit."""
    is_single = random_source.random() < SINGLE_SEGMENT_FRACTION
    first_target = _UNREACHABLE_LENGTH if is_single else (target_length - 3) // 2
    first: list[Range] = []
    second: list[Range] = []
    num_first = 0
    for begin, end in pairwise(row_splits):
        is_in_first = (
            num_first == 0
            # As in the authors' code, a short line may still go to A after a longer line went to B.
            or num_first + end - begin < first_target
            or (not second and num_first < first_target and random_source.random() < CROSSING_LINE_FRACTION)
        )
        if begin < end:
            (first if is_in_first else second).append((begin, end))
        if is_in_first:
            num_first += end - begin
    max_first = max_seq_length - 2  # [CLS] A [SEP]
    max_second = max_seq_length - 3 - min(num_first, max_first)  # [CLS] A [SEP] B [SEP]
    return _cut(first, max_first), _cut(second, max_second)


def _cut(ranges: list[Range], max_length: int) -> list[Range]:
    """Returns the first `max_length` tokens of `ranges`; none if `max_length` is negative."""
    cut = []
    for begin, end in ranges:
        if max_length > 0:
            cut.append((begin, min(end, begin + max_length)))
        max_length -= end - begin
    return cut
