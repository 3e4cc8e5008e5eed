"""Spills: the examples of one work unit on the disk, sorted, until the shards gather them.

A spill is a directory that appears under its name at once and whole, so one that exists is complete; it carries its own
counts. Two processes may write the same spill, as after a kill: the first to end wins, and both are the same.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np

from data_prep.counts import Counts
from data_prep.examples import Example
from electra_tf.text.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT

SPLITS = (TRAIN_SPLIT, HELD_OUT_SPLIT)

PARTIAL_MARK = ".partial-"
_SUMMARY_FILE = "summary.json"

INDEX_ENTRY = np.dtype(
    [
        ("key", "<u8"),
        ("offset", "<u8"),  # of the record, in bytes
        ("num_bytes", "<u4"),
        ("num_tokens", "<u4"),
        ("num_text_tokens", "<u4"),
        ("is_first", "?"),
    ]
)


@dataclass(frozen=True)
class SpillSummary:
    """What the coordinating process needs to know of a spill; both dictionaries are by split, duplicates included."""

    counts: Counts
    num_documents: dict[str, int]
    num_record_bytes: dict[str, int]


def spill_path(build_dir: Path, unit_index: int) -> Path:
    """Where the spill of a work unit lies."""
    return build_dir / f"unit-{unit_index:06d}"


class Spill:
    """Collects the examples of one work unit."""

    def __init__(self) -> None:
        self._examples: dict[str, list[Example]] = {split: [] for split in SPLITS}

    def append(self, example: Example) -> None:
        self._examples[example.split].append(example)

    def write(self, directory: Path, counts: Counts) -> SpillSummary:
        """Writes the spill as a new directory, at once and whole.

        Raises: OSError: for want of space, say; what was begun is removed then.
        """
        for examples in self._examples.values():
            examples.sort(key=attrgetter("key"))
        summary = SpillSummary(
            counts=counts,
            num_documents={
                split: sum(example.is_first for example in examples) for split, examples in self._examples.items()
            },
            num_record_bytes={
                split: sum(len(example.record) for example in examples) for split, examples in self._examples.items()
            },
        )
        partial = directory.with_name(f"{directory.name}{PARTIAL_MARK}{os.getpid()}")
        try:
            partial.mkdir()
            for split, examples in self._examples.items():
                _records_file(partial, split).write_bytes(b"".join([example.record for example in examples]))
                np.save(_index_file(partial, split), index_of(examples))
            (partial / _SUMMARY_FILE).write_text(json.dumps(asdict(summary)))
            os.rename(partial, directory)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            if not directory.is_dir():  # otherwise another process was faster, with the same bytes
                raise
        return summary


def index_of(examples: list[Example]) -> np.ndarray:
    """The index entries of examples whose records lie one after the other, in their order."""
    index = np.zeros(len(examples), INDEX_ENTRY)
    index["key"] = np.array([example.key for example in examples], np.uint64)
    index["num_bytes"] = [len(example.record) for example in examples]
    index["num_tokens"] = [example.num_tokens for example in examples]
    index["num_text_tokens"] = [example.num_text_tokens for example in examples]
    index["is_first"] = [example.is_first for example in examples]
    index["offset"] = np.cumsum(index["num_bytes"], dtype=np.uint64) - index["num_bytes"]
    return index


def read_summary(directory: Path) -> SpillSummary | None:
    """What a spill says of itself; None where there is no complete one."""
    try:
        fields = json.loads((directory / _SUMMARY_FILE).read_text())
    except FileNotFoundError:
        return None
    return SpillSummary(**{**fields, "counts": Counts.from_json(fields["counts"])})


def read_range(directory: Path, split: str, first_key: int, end_key: int) -> tuple[np.ndarray, bytes]:
    """The part of a spill's split whose keys lie in [first_key, end_key).

    Returns: the index entries, sorted by key, and the bytes of their records, which lie one after the other.
    """
    entries = np.load(_index_file(directory, split), mmap_mode="r")
    begin = np.searchsorted(entries["key"], np.uint64(first_key))
    # The end of the last range, 2**64, is no number of 64 bits.
    end = np.searchsorted(entries["key"], np.uint64(end_key - 1), side="right")
    entries = np.array(entries[begin:end])
    if not len(entries):
        return entries, b""
    with open(_records_file(directory, split), "rb") as file:
        file.seek(int(entries["offset"][0]))
        return entries, file.read(int(entries["num_bytes"].sum()))


def _index_file(directory: Path, split: str) -> Path:
    return directory / f"{split}.npy"


def _records_file(directory: Path, split: str) -> Path:
    return directory / f"{split}.bin"
