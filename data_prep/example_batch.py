"""Examples as arrays, from the tokenizer to the shard: an object for each example would take as long as its tokens."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

ENTRY = np.dtype(
    [
        ("key", "<u8"),  # position in the global shuffle
        ("begin", "<u8"),  # of its tokens in the batch
        ("num_tokens", "<u4"),
        ("num_first", "<u4"),  # tokens of `[CLS] A [SEP]`; equal to `num_tokens` if there is no B
        ("is_first", "?"),  # of its document; the number of these is the number of documents
    ]
)

_EXAMPLES_PER_COUNT = 4096  # bounds the memory of the count


def token_dtype(vocab_size: int) -> np.dtype:
    """Returns the type of token ids: the smallest unsigned one for a vocabulary of this size."""
    return np.min_scalar_type(vocab_size - 1)


class ExampleBatch(NamedTuple):
    """Examples of one split.

    Attributes:
        entries: [num_examples] `ENTRY`.
        token_ids: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` of all examples, in any order, of the type `token_dtype`.
    """

    entries: np.ndarray
    token_ids: np.ndarray

    @property
    def num_tokens(self) -> int:
        return int(self.entries["num_tokens"].sum(dtype=np.int64))

    @property
    def num_text_tokens(self) -> int:
        """The number of tokens without [CLS] and [SEP]."""
        has_second = self.entries["num_first"] < self.entries["num_tokens"]
        return self.num_tokens - 2 * len(self.entries) - int(np.count_nonzero(has_second))

    @classmethod
    def joined(cls, batches: Sequence["ExampleBatch"]) -> "ExampleBatch":
        """Returns the examples of all batches, of which there may be none."""
        batches = [cls(np.zeros(0, ENTRY), np.zeros(0, np.uint8)), *batches]
        entries, token_ids = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        ends = np.cumsum([len(batch.token_ids) for batch in batches])
        entries["begin"] += np.repeat(ends[:-1].astype(np.uint64), [len(batch.entries) for batch in batches[1:]])
        return cls(entries, token_ids)

    def taken(self, indices: np.ndarray) -> "ExampleBatch":
        """Returns some examples in the order of `indices`; all tokens stay where they are."""
        return ExampleBatch(self.entries[indices], self.token_ids)

    def compact(self) -> "ExampleBatch":
        """Returns the examples with their own tokens alone, in the order of the entries."""
        entries = self.entries.copy()
        token_ids = self.token_ids[positions(entries["begin"], entries["num_tokens"])]
        entries["begin"] = np.cumsum(entries["num_tokens"], dtype=np.uint64) - entries["num_tokens"]
        return ExampleBatch(entries, token_ids)

    def sorted(self) -> "ExampleBatch":
        """Returns the examples in the order of the shuffle; those with equal keys in the order of their records."""
        order = np.argsort(self.entries["key"], kind="stable")
        is_equal = _equals_next(self.entries["key"][order])
        tied = np.flatnonzero(np.append(is_equal, False) | np.append(False, is_equal))
        # Each of them moves within the examples of its own key.
        order[tied] = sorted(order[tied].tolist(), key=lambda index: (self.entries["key"][index], self._record(index)))
        return self.taken(order)

    def without_copies(self) -> "ExampleBatch":
        """Returns one of each example; the batch must be sorted."""
        ties = np.flatnonzero(_equals_next(self.entries["key"])).tolist()
        copies = [index + 1 for index in ties if self._record(index) == self._record(index + 1)]
        return self.taken(np.delete(np.arange(len(self.entries)), copies))

    def _record(self, index: int) -> bytes:
        from electra_tf.text.records import serialize_example

        ((token_ids, segment_lengths),) = self.taken(np.array([index])).rows()
        return serialize_example(token_ids.tolist(), segment_lengths)

    def rows(self) -> Iterator[tuple[np.ndarray, list[int]]]:
        """Yields the token ids and the lengths of the segments of each example; see `records.ExampleSerializer`."""
        columns = (self.entries[name].tolist() for name in ("begin", "num_tokens", "num_first"))
        for begin, num_tokens, num_first in zip(*columns, strict=True):
            segment_lengths = [num_first, num_tokens - num_first] if num_first < num_tokens else [num_first]
            yield self.token_ids[begin : begin + num_tokens], segment_lengths

    def token_counts(self, vocab_size: int) -> np.ndarray:
        """Returns the occurrences of each vocabulary entry, [CLS] and [SEP] included, [V] int64."""
        counts = np.zeros(vocab_size, np.int64)
        num_parts = len(self.entries) // _EXAMPLES_PER_COUNT + 1
        for indices in np.array_split(np.arange(len(self.entries)), num_parts):
            counts += np.bincount(self.taken(indices).compact().token_ids, minlength=vocab_size)
        return counts


def positions(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the integers of the ranges from `begins[i]` on with `lengths[i]` integers each, one after the other."""
    ends = np.cumsum(lengths, dtype=np.int64)
    first = begins.astype(np.int64) - (ends - lengths)
    return np.repeat(first, lengths) + np.arange(len(first) and ends[-1])


def _equals_next(values: np.ndarray) -> np.ndarray:
    return values[1:] == values[:-1]
