"""Examples as arrays, from the tokenizer to the shard: an object for each example would take as long as its tokens."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

ENTRY = np.dtype(
    [
        ("key", "<u8"),  # position in the global shuffle
        ("document", "<u8"),  # hash of the seed and the document's text; with the key, it identifies an example
        ("begin", "<u8"),  # offset of its first token
        ("num_tokens", "<u4"),
        ("num_first", "<u4"),  # tokens of `[CLS] A [SEP]`; equal to `num_tokens` if there is no B
        ("is_first", "?"),  # of its document; the number of these is the number of documents
    ]
)


def token_dtype(vocab_size: int) -> np.dtype:
    """Returns the type of token ids: the smallest unsigned one for a vocabulary of this size."""
    return np.min_scalar_type(vocab_size - 1)


class ExampleBatch(NamedTuple):
    """Examples of one split.

    Attributes:
        entries: [num_examples] `ENTRY`.
        token_ids: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` of all examples in this order, [num_tokens] of the type
            `token_dtype`.
    """

    entries: np.ndarray
    token_ids: np.ndarray

    @classmethod
    def of(cls, entries: np.ndarray, token_ids: np.ndarray) -> "ExampleBatch":
        """Returns a batch, and sets `begin` of all entries."""
        entries["begin"] = np.cumsum(entries["num_tokens"], dtype=np.int64) - entries["num_tokens"]
        return cls(entries, token_ids)

    @property
    def num_text_tokens(self) -> int:
        """The number of tokens without [CLS] and [SEP]."""
        has_second = self.entries["num_first"] < self.entries["num_tokens"]
        return len(self.token_ids) - 2 * len(self.entries) - int(np.count_nonzero(has_second))

    @classmethod
    def joined(cls, batches: Sequence["ExampleBatch"]) -> "ExampleBatch":
        """Returns the examples of all batches, of which there may be none."""
        empty = cls(np.zeros(0, ENTRY), np.zeros(0, np.uint8))
        return cls.of(*(np.concatenate(arrays) for arrays in zip(empty, *batches, strict=True)))

    def taken(self, indices: np.ndarray) -> "ExampleBatch":
        """Returns some examples, in the order of `indices`."""
        entries = self.entries[indices]
        return self.of(entries, self.token_ids[positions(entries["begin"], entries["num_tokens"])])

    def sorted(self) -> "ExampleBatch":
        """Returns the examples in the order of the shuffle. Of two with the same key, the document's hash decides."""
        return self.taken(np.lexsort((self.entries["document"], self.entries["key"])))

    def without_copies(self) -> "ExampleBatch":
        """Returns one of each example; the batch must be sorted."""
        is_new = np.ones(len(self.entries), bool)
        identity = self.entries[["key", "document"]]
        is_new[1:] = identity[1:] != identity[:-1]
        return self if is_new.all() else self.taken(np.flatnonzero(is_new))

    def rows(self) -> Iterator[tuple[np.ndarray, list[int]]]:
        """Yields the token ids and the lengths of the segments of each example; see `records.ExampleSerializer`."""
        columns = (self.entries[name].tolist() for name in ("begin", "num_tokens", "num_first"))
        for begin, num_tokens, num_first in zip(*columns, strict=True):
            segment_lengths = [num_first, num_tokens - num_first] if num_first < num_tokens else [num_first]
            yield self.token_ids[begin : begin + num_tokens], segment_lengths


def positions(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the integers of the ranges from `begins[i]` on with `lengths[i]` integers each, one after the other."""
    ends = np.cumsum(lengths, dtype=np.int64)
    first = begins.astype(np.int64) - (ends - lengths)
    return np.repeat(first, lengths) + np.arange(len(first) and ends[-1])
