"""Examples to TFRecord shards, globally shuffled, in two phases.

Each example has a 64-bit sort key that is uniform over [0, 2**64) and hangs on the seed and the example's identity
alone. A shard is a range of keys, sorted by key. Phase 1: a work unit's examples go into one spill directory, ordered
by bucket. Phase 2: each bucket gathers its slice of every spill, sorts by key and writes. So no process ever holds
more than one unit or one shard, and how the work was divided leaves no trace in the shards.

A bucket is a shard of a split; buckets are numbered through all splits. Spills and shards appear under their names at
once and whole (`os.rename`), so one that exists is complete.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.text.manifest import Shard

_PARTIAL_SUFFIX = ".partial"
_RECORDS_FILE = "records.bin"
_INDEX_FILE = "index.npy"
_BUCKETS_FILE = "bucket_begins.npy"
_COUNTS_FILE = "counts.json"

_INDEX_ENTRY = np.dtype([("key", "<u8"), ("offset", "<u8"), ("num_bytes", "<u4"), ("num_tokens", "<u4")])


@dataclass(frozen=True)
class Buckets:
    """How many shards each split has, in the order of their numbers."""

    num_shards: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(self.num_shards.values())

    def first(self, split: str) -> int:
        """The number of a split's first bucket."""
        names = list(self.num_shards)
        return sum(self.num_shards[name] for name in names[: names.index(split)])

    def bucket(self, split: str, key: int) -> int:
        """The bucket that holds a key in [0, 2**64): equal ranges of keys, in order."""
        return self.first(split) + (key * self.num_shards[split] >> 64)

    def file_name(self, split: str, shard: int) -> str:
        return f"{split}-{shard:05d}-of-{self.num_shards[split]:05d}.tfrecord"


@dataclass
class Counts:
    """Totals of a unit or of the whole build; see `electra_tf.text.manifest.Counts`."""

    num_documents: dict[str, int] = field(default_factory=dict)  # by split
    num_bytes: int = 0
    num_tokens_read: int = 0
    num_tokens_kept: int = 0
    num_unknown_tokens: int = 0

    def add(self, other: "Counts") -> None:
        for split, number in other.num_documents.items():
            self.num_documents[split] = self.num_documents.get(split, 0) + number
        self.num_bytes += other.num_bytes
        self.num_tokens_read += other.num_tokens_read
        self.num_tokens_kept += other.num_tokens_kept
        self.num_unknown_tokens += other.num_unknown_tokens


def spill_path(spills_dir: Path, unit_index: int) -> Path:
    """Where the spill of a work unit lies."""
    return spills_dir / f"unit-{unit_index:06d}"


class Spill:
    """Collects the serialized examples of one work unit, in the order of their identities."""

    def __init__(self, num_buckets: int):
        self._num_buckets = num_buckets
        self._records: list[bytes] = []
        self._buckets: list[int] = []
        self._keys: list[int] = []
        self._num_tokens: list[int] = []

    def append(self, bucket: int, key: int, record: bytes, num_tokens: int) -> None:
        self._buckets.append(bucket)
        self._keys.append(key)
        self._records.append(record)
        self._num_tokens.append(num_tokens)

    def write(self, directory: Path, counts: Counts) -> None:
        """Writes the spill as a new directory, at once and whole."""
        buckets = np.array(self._buckets, np.int64)
        keys = np.array(self._keys, np.uint64)
        order = np.argsort(buckets, kind="stable")  # inside a bucket the order of identities stays
        index = np.zeros(len(order), _INDEX_ENTRY)
        index["key"] = keys[order]
        index["num_bytes"] = np.array([len(record) for record in self._records], np.uint32)[order]
        index["num_tokens"] = np.array(self._num_tokens, np.uint32)[order]
        index["offset"] = np.cumsum(index["num_bytes"], dtype=np.uint64) - index["num_bytes"]
        begins = np.searchsorted(buckets[order], np.arange(self._num_buckets + 1))

        partial = directory.with_name(directory.name + _PARTIAL_SUFFIX)
        partial.mkdir(parents=True)
        (partial / _RECORDS_FILE).write_bytes(b"".join([self._records[i] for i in order]))
        np.save(partial / _INDEX_FILE, index)
        np.save(partial / _BUCKETS_FILE, begins)
        (partial / _COUNTS_FILE).write_text(json.dumps(asdict(counts)))
        os.rename(partial, directory)


def _read_bucket(spill: Path, bucket: int) -> tuple[np.ndarray, bytes]:
    """A bucket's index entries in a spill, and the bytes of its records, which lie one after the other."""
    begin, end = np.load(spill / _BUCKETS_FILE, mmap_mode="r")[bucket : bucket + 2]
    if begin == end:
        return np.zeros(0, _INDEX_ENTRY), b""
    entries = np.array(np.load(spill / _INDEX_FILE, mmap_mode="r")[begin:end])
    with open(spill / _RECORDS_FILE, "rb") as file:
        file.seek(int(entries["offset"][0]))
        return entries, file.read(int(entries["num_bytes"].sum()))


def write_shard(spills: Sequence[Path], bucket: int, path: Path) -> tuple[Shard, int]:
    """Sorts one bucket's examples and writes them as a TFRecord file, at once and whole.

    Args:
        spills: of all units, in the order of the input.
    Returns: what the manifest says of the shard, and the number of tokens in it.
    Raises: UserError, OSError: if the disk is full.
    """
    import tensorflow as tf

    index_parts, records = [], []
    for spill in spills:
        entries, content = _read_bucket(spill, bucket)
        index_parts.append(entries)
        ends = np.cumsum(entries["num_bytes"], dtype=np.int64).tolist()
        records += [content[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    index = np.concatenate(index_parts)
    partial = path.with_name(path.name + _PARTIAL_SUFFIX)
    try:
        with tf.io.TFRecordWriter(str(partial)) as writer:
            for i in np.argsort(index["key"], kind="stable").tolist():
                writer.write(records[i])
    except tf.errors.OpError as error:
        raise UserError(f"cannot write {partial}: {error.message}; free some space or give another place") from None
    with open(partial, "rb") as file:
        content = file.read()
    shard = Shard(
        file=path.name, num_examples=len(records), num_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()
    )
    os.replace(partial, path)
    return shard, int(index["num_tokens"].sum())
