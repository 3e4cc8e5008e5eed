"""A file with the tokenized examples of a task, for both trainers. Imports only NumPy, for the peer."""

from dataclasses import dataclass

import numpy as np

SPLITS = ("train", "validation")


@dataclass(frozen=True)
class Examples:
    """The concatenated sequences of a split, without padding.

    Attributes:
        input_ids, segment_ids: [T] int32, [CLS] and [SEP] included.
        row_splits: [N + 1] int64; the tokens of row i are `row_splits[i]` to `row_splits[i + 1]`.
        label_ids: [N] int32.
    """

    input_ids: np.ndarray
    segment_ids: np.ndarray
    row_splits: np.ndarray
    label_ids: np.ndarray


def save(path: str, splits: dict[str, Examples]) -> None:
    """Writes all splits into one file."""
    np.savez(path, **{f"{split} {name}": array for split in splits for name, array in vars(splits[split]).items()})


def load(path: str) -> dict[str, Examples]:
    """Reads the splits from a file of `save`."""
    with np.load(path) as arrays:
        return {
            split: Examples(**{name: arrays[f"{split} {name}"] for name in Examples.__dataclass_fields__})
            for split in SPLITS
        }
