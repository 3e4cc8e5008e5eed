"""Splits the token ids of a document into `[CLS] A [SEP] B [SEP]` examples, by the authors' rule.

Lines are collected until they hold at least a target number of tokens, and are then distributed over two segments.
Tokens that do not fit are dropped. B continues A: there is no next-sentence prediction. Random numbers are drawn in the
order of the authors' code, so the same `random.Random(seed)` gives the same ids.

Source: google-research/electra, build_pretraining_dataset.py (behaviour).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from random import Random

Segments = tuple[list[int], list[int]]  # token ids of A and of B (empty in a single-segment example)

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


class Segmenter:
    """Splits documents into segments. An example never spans two documents.

    Args:
        max_seq_length: S, maximum number of tokens in an example, [CLS] and [SEP] included.
        random_source: generator of all draws.
        target_length: target of the first example: `draw_target_length(...)`, or `max_seq_length` as in the authors'
            code.
    """

    def __init__(self, max_seq_length: int, random_source: Random, target_length: int):
        self._max_seq_length = max_seq_length
        self._random_source = random_source
        self._target_length = target_length

    def split_document(self, token_ids: Sequence[int], row_splits: Sequence[int]) -> Iterator[Segments]:
        """Yields the examples of one document, in order.

        Args:
            token_ids: the token ids of all lines, concatenated.
            row_splits: line i is `token_ids[row_splits[i]:row_splits[i + 1]]`. The first entry may be any offset, so
                that a batch of documents shares one array.
        """
        first_line = 0
        num_lines = len(row_splits) - 1
        while row_splits[first_line] < row_splits[num_lines]:
            enough = row_splits[first_line] + self._target_length
            end_line = min(bisect_left(row_splits, enough, lo=first_line + 1), num_lines)
            yield self._distribute(token_ids, row_splits, first_line, end_line)
            self._target_length = draw_target_length(self._max_seq_length, self._random_source)
            first_line = end_line

    def _distribute(self, token_ids: Sequence[int], row_splits: Sequence[int], begin: int, end: int) -> Segments:
        """Distributes lines `begin` to `end` over two segments and cuts these to the length of an example."""
        draw = self._random_source.random
        is_single = draw() < SINGLE_SEGMENT_FRACTION
        first_target = _UNREACHABLE_LENGTH if is_single else (self._target_length - 3) // 2
        first: list[int] = []
        second: list[int] = []
        for line in range(begin, end):
            line_begin, line_end = row_splits[line], row_splits[line + 1]
            num_first = len(first)
            if (
                num_first == 0
                # As in the authors' code, a short line may still go to A after a longer line went to B.
                or num_first + line_end - line_begin < first_target
                or (not second and num_first < first_target and draw() < CROSSING_LINE_FRACTION)
            ):
                first += token_ids[line_begin:line_end]
            else:
                second += token_ids[line_begin:line_end]
        del first[self._max_seq_length - 2 :]  # [CLS] A [SEP]
        del second[max(0, self._max_seq_length - 3 - len(first)) :]  # [CLS] A [SEP] B [SEP]
        return first, second
