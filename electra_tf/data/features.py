"""The examples of a fine-tuning task as model input, in memory: flat arrays instead of padded rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Features:
    """The sequences of a split, unpadded, one row each. A long text may have several rows, its windows.

    With N rows and T tokens in all; the tokens of row i are `row_splits[i]` to `row_splits[i + 1]` of each flat array.

    Attributes:
        input_ids: [T] int32, [CLS] and [SEP] included.
        segment_ids: [T] int32.
        row_splits: [N + 1] int64, ascending from 0 to T.
        example_index: [N] int32, the example that a row belongs to, ascending; several rows may have one.
        row_targets: by name, [N, ...] int32 or float32: what is learnt for a row.
        token_targets: by name, [T] int32 or float32: what is learnt for a token.
    """

    input_ids: np.ndarray
    segment_ids: np.ndarray
    row_splits: np.ndarray
    example_index: np.ndarray
    row_targets: Mapping[str, np.ndarray] = field(default_factory=dict)
    token_targets: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return len(self.row_splits) - 1

    @property
    def lengths(self) -> np.ndarray:
        """[N] int64: the tokens of each row."""
        return np.diff(self.row_splits)

    def row(self, index: int) -> slice:
        """Where the tokens of a row stand in the flat arrays."""
        return slice(int(self.row_splits[index]), int(self.row_splits[index + 1]))


def features_of_rows(
    input_ids: Iterable[Iterable[int]],
    segment_ids: Iterable[Iterable[int]],
    example_index: Iterable[int] | None = None,
    row_targets: Mapping[str, np.ndarray] | None = None,
    token_targets: Mapping[str, Iterable[Iterable]] | None = None,
) -> Features:
    """Features from lists of rows.

    Args:
        example_index: None if row i is example i.
        token_targets: by name, for each row one value a token, int32 or float32 arrays.
    """
    rows = [np.asarray(row, np.int32) for row in input_ids]
    index = np.arange(len(rows)) if example_index is None else np.asarray(example_index)
    return Features(
        input_ids=_flat(rows),
        segment_ids=_flat([np.asarray(row, np.int32) for row in segment_ids]),
        row_splits=np.cumsum([0, *map(len, rows)], dtype=np.int64),
        example_index=index.astype(np.int32),
        row_targets=dict(row_targets or {}),
        token_targets={
            name: _flat([np.asarray(row) for row in values]) for name, values in (token_targets or {}).items()
        },
    )


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, ..., `length` of them, for each pair, one after another: [sum of lengths] int64."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _flat(rows: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(rows) if rows else np.zeros(0, np.int32)
