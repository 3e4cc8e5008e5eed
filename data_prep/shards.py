"""Examples to TFRecord shards, globally shuffled by an external sort.

Each example has a 64-bit sort key that is uniform over [0, 2**64) and depends on the seed and its document's text only.
A shard is a range of keys, sorted by key. Phase 1 writes a spill for each work unit: its examples, sorted. Phase 2
gathers a range of keys from every spill, sorts it and writes a shard. So no process holds more than one unit or one
shard, and the shards do not depend on how the work was divided.

A spill is a directory that appears under its name when it is complete, and holds its own counts. Two processes may
write the same spill, as after a kill: the first one to finish wins, and both are equal.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np
import pydantic

from data_prep import storage
from data_prep.examples import Example
from data_prep.readers.documents import ReadCounts
from data_prep.settings import BuildSettings
from electra_tf.text.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT, Shard

SPLITS = (TRAIN_SPLIT, HELD_OUT_SPLIT)

# Size of a shard if --num_shards is not given: some 2,000 shards for all of English Wikipedia.
_RECORD_BYTES_PER_SHARD = 8 * 2**20
_NUM_KEYS = 2**64
_SUMMARY_FILE = "summary.json"
# Records parsed at once to count tokens: enough to hide the cost of a call, few enough for the cache.
_RECORDS_PER_CALL = 1024

_INDEX_ENTRY = np.dtype(
    [
        ("key", "<u8"),
        ("offset", "<u8"),  # of the record, in bytes
        ("num_bytes", "<u4"),
        ("num_tokens", "<u4"),
        ("num_text_tokens", "<u4"),
        ("is_first", "?"),
    ]
)


def index_of(examples: Sequence[Example]) -> np.ndarray:
    """The index entries of examples whose records are stored one after the other."""
    index = np.zeros(len(examples), _INDEX_ENTRY)
    index["key"] = np.array([example.key for example in examples], np.uint64)
    index["num_bytes"] = [len(example.record) for example in examples]
    for name in ("num_tokens", "num_text_tokens", "is_first"):
        index[name] = [getattr(example, name) for example in examples]
    index["offset"] = np.cumsum(index["num_bytes"], dtype=np.uint64) - index["num_bytes"]
    return index


def spill_path(build_dir: Path, unit_index: int) -> Path:
    """The directory of a work unit's spill."""
    return build_dir / f"unit-{unit_index:06d}"


def write_spill(directory: Path, examples: Iterable[Example], counts: ReadCounts) -> None:
    """Writes the examples of a work unit as a new directory, atomically.

    Args:
        counts: of the unit; complete when `examples` ends.
    Raises: OSError: for example no space is left. Incomplete files are removed.
    """
    by_split: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for example in examples:
        by_split[example.split].append(example)
    partial = Path(storage.partial_name(directory))
    try:
        partial.mkdir()
        for split, of_split in by_split.items():
            of_split.sort(key=attrgetter("key"))
            (partial / f"{split}.bin").write_bytes(b"".join([example.record for example in of_split]))
            np.save(partial / f"{split}.npy", index_of(of_split))
        (partial / _SUMMARY_FILE).write_text(json.dumps(vars(counts)))
        os.rename(partial, directory)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        if not directory.is_dir():  # otherwise another process was faster and wrote the same bytes
            raise


def read_spill_counts(directory: Path) -> ReadCounts | None:
    """The counts of a spill; None if there is no complete one."""
    try:
        return ReadCounts.from_json(json.loads((directory / _SUMMARY_FILE).read_text()))
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class ShardRange:
    """Shard `index` of the `num_shards` of a split: one of that many equal ranges of keys."""

    split: str
    index: int
    num_shards: int

    @property
    def first_key(self) -> int:
        return -(-self.index * _NUM_KEYS // self.num_shards)

    @property
    def end_key(self) -> int:
        return -(-(self.index + 1) * _NUM_KEYS // self.num_shards)

    @property
    def file_name(self) -> str:
        return f"{self.split}-{self.index:05d}-of-{self.num_shards:05d}.tfrecord"


def shard_index(key: int, num_shards: int) -> int:
    """The index of the one of `num_shards` ranges that holds a key."""
    return key * num_shards >> 64


def shard_ranges(num_record_bytes: Mapping[str, int], num_train_shards: int) -> list[ShardRange]:
    """All shards of a data set.

    Args:
        num_record_bytes: by split, duplicates included; a split without records has no shard.
        num_train_shards: number of shards of the training split; 0: derived from its size.
    """
    ranges = []
    for split in SPLITS:
        num_shards = math.ceil(num_record_bytes[split] / _RECORD_BYTES_PER_SHARD)
        if split == TRAIN_SPLIT and num_train_shards:
            num_shards = num_train_shards
        ranges += [ShardRange(split, index, num_shards) for index in range(num_shards)]
    return ranges


class ShardResult(pydantic.BaseModel):
    """The counts of a finished shard.

    Attributes:
        num_documents: documents whose first example is here.
        num_duplicate_documents: copies of these that were dropped.
    """

    split: str
    shard: Shard
    num_tokens: int
    num_text_tokens: int
    num_documents: int
    num_duplicate_documents: int


def gather(spills: Iterable[Path], shard_range: ShardRange) -> tuple[np.ndarray, list[bytes]]:
    """The index entries and the records of a range of keys from all spills, not sorted."""
    index_parts, records = [], []
    for spill in spills:
        entries, content = _read_range(spill, shard_range)
        index_parts.append(entries)
        ends = np.cumsum(entries["num_bytes"], dtype=np.int64).tolist()
        records += [content[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    return np.concatenate(index_parts), records


def _read_range(spill: Path, shard_range: ShardRange) -> tuple[np.ndarray, bytes]:
    """The index entries of a range, sorted by key, and the bytes of their records."""
    entries = np.load(spill / f"{shard_range.split}.npy", mmap_mode="r")
    begin = np.searchsorted(entries["key"], np.uint64(shard_range.first_key))
    # 2**64, the end of the last range, does not fit into 64 bits.
    end = np.searchsorted(entries["key"], np.uint64(shard_range.end_key - 1), side="right")
    entries = np.array(entries[begin:end])
    if not len(entries):
        return entries, b""
    with open(spill / f"{shard_range.split}.bin", "rb") as file:
        file.seek(int(entries["offset"][0]))
        return entries, file.read(int(entries["num_bytes"].sum()))


def write_shard(
    index: np.ndarray,
    records: Sequence[bytes],
    shard_range: ShardRange,
    settings: BuildSettings,
    vocab_size: int,
    scratch_dir: Path | None = None,
) -> tuple[ShardResult, np.ndarray]:
    """Sorts a shard's examples and writes them as a TFRecord file, atomically.

    Args:
        index: entry i of `index_of` belongs to record i.
        scratch_dir: see `storage.replaced`.
    Returns: the result, and the token counts; see `count_tokens`.
    Raises: OSError: the disk is full.
    """
    # Keys are equal for copies, and otherwise once in 2**64: sorting by record too makes the order total.
    keys = index["key"].tolist()
    order = sorted(range(len(records)), key=lambda i: (keys[i], records[i]))
    is_copy = [False] + [
        keys[i] == keys[j] and records[i] == records[j] for i, j in zip(order, order[1:], strict=False)
    ]
    kept = [i for i, copy in zip(order, is_copy, strict=False) if not (copy and settings.drop_duplicates)]
    with storage.replaced(os.path.join(settings.output_dir, shard_range.file_name), scratch_dir) as path:
        _write_records(path, (records[i] for i in kept))
        content = path.read_bytes()
        _, token_counts = count_tokens(path, vocab_size)
    kept_index = index[kept]
    num_documents = int(kept_index["is_first"].sum())
    result = ShardResult(
        split=shard_range.split,
        shard=Shard(
            file=shard_range.file_name,
            num_examples=len(kept),
            num_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        ),
        num_tokens=int(kept_index["num_tokens"].sum()),
        num_text_tokens=int(kept_index["num_text_tokens"].sum()),
        num_documents=num_documents,
        num_duplicate_documents=int(index["is_first"].sum()) - num_documents,
    )
    return result, token_counts


def _write_records(path: Path, records: Iterable[bytes]) -> None:
    import tensorflow as tf

    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)
    except tf.errors.OpError as error:
        raise OSError(None, error.message) from None


def count_tokens(path: Path, vocab_size: int) -> tuple[int, np.ndarray]:
    """Counts what a shard holds.

    Returns: the number of examples, and the occurrences of each vocabulary entry, [CLS] and [SEP] included, [V] int64.
    """
    import tensorflow as tf

    from electra_tf.text.records import flat_token_ids

    num_examples, token_counts = 0, np.zeros(vocab_size, np.int64)
    for records in tf.data.TFRecordDataset(str(path)).batch(_RECORDS_PER_CALL):
        num_examples += len(records)
        token_counts += np.bincount(flat_token_ids(records).numpy(), minlength=vocab_size)
    return num_examples, token_counts
