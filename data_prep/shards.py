"""Writes examples to TFRecord shards, globally shuffled by an external sort.

Each example has a 64-bit sort key, uniform over [0, 2**64), which depends on the seed and its document's text only. A
shard holds a range of keys, sorted. Phase 1 writes a spill for each work unit: its examples, sorted. Phase 2 gathers a
range of keys from every spill, sorts it and writes a shard. So a process holds at most one unit or one shard, and the
shards do not depend on how the work was divided.

A spill is a directory with examples and their counts. It gets its name when it is complete. If two processes write the
same spill, for example after a kill, their bytes are equal and the first to finish wins.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np
import pydantic

from data_prep import storage
from data_prep.examples import Example
from data_prep.readers.documents import ReadCounts
from data_prep.settings import BuildSettings
from electra_tf.text.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT, Shard
from electra_tf.text.vocabulary import Vocabulary

SPLITS = (TRAIN_SPLIT, HELD_OUT_SPLIT)

# Size of a shard without --num_shards: this gives about 2,000 shards for all of English Wikipedia.
_RECORD_BYTES_PER_SHARD = 8 * 2**20
_NUM_KEYS = 2**64
_SUMMARY_FILE = "summary.json"
# Records in one call that counts tokens: enough to hide the cost of the call, few enough for the cache.
_RECORDS_PER_CALL = 1024

_INDEX_ENTRY = np.dtype(
    [
        ("key", "<u8"),
        ("offset", "<u8"),  # of the record, in bytes
        ("num_bytes", "<u4"),
        ("is_first", "?"),
    ]
)


def index_of(examples: Sequence[Example]) -> np.ndarray:
    """Returns the index entries of examples whose records are stored in this order, [num_examples] `_INDEX_ENTRY`."""
    index = np.array([(each.key, 0, len(each.record), each.is_first) for each in examples], _INDEX_ENTRY)
    index["offset"][1:] = np.cumsum(index["num_bytes"][:-1], dtype=np.uint64)
    return index


def spill_path(build_dir: Path, unit_index: int) -> Path:
    """Returns the directory of a work unit's spill."""
    return build_dir / f"unit-{unit_index:06d}"


def write_spill(directory: Path, examples: Iterable[Example], counts: ReadCounts) -> None:
    """Writes the examples and counts of a work unit to a new directory, atomically.

    Raises: OSError: for example, the disk is full. Incomplete files are removed.
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
    """Returns the counts of a spill, or None if there is no complete one."""
    try:
        return ReadCounts.from_json(json.loads((directory / _SUMMARY_FILE).read_text()))
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class ShardRange:
    """The range of keys in shard `index` of a split, whose `num_shards` shards have equal ranges."""

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
    """Returns the index of the shard that holds a key."""
    return key * num_shards >> 64


def shard_ranges(num_record_bytes: Mapping[str, int], num_train_shards: int) -> list[ShardRange]:
    """Lists all shards of a data set.

    Args:
        num_record_bytes: bytes of each split, duplicates included; a split without records has no shard.
        num_train_shards: number of shards of the training split; 0: computed from its size.
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
        num_tokens: number of tokens with [CLS] and [SEP]; `num_text_tokens` is without them.
        num_documents: number of documents whose first example is in this shard.
        num_duplicate_documents: number of dropped copies of these.
    """

    split: str
    shard: Shard
    num_tokens: int
    num_text_tokens: int
    num_documents: int
    num_duplicate_documents: int


def gather(spills: Iterable[Path], shard_range: ShardRange) -> tuple[np.ndarray, list[bytes]]:
    """Reads the index entries and the records of a range of keys from all spills; not sorted."""
    index_parts, records = [], []
    for spill in spills:
        entries, content = _read_range(spill, shard_range)
        index_parts.append(entries)
        ends = np.cumsum(entries["num_bytes"], dtype=np.int64).tolist()
        records += [content[begin:end] for begin, end in pairwise([0, *ends])]
    return np.concatenate(index_parts), records


def _read_range(spill: Path, shard_range: ShardRange) -> tuple[np.ndarray, bytes]:
    """Reads the index entries of a range, sorted by key, and the bytes of their records."""
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
    vocabulary: Vocabulary,
    scratch_dir: Path | None = None,
) -> tuple[ShardResult, np.ndarray]:
    """Sorts a shard's examples and writes them as a TFRecord file, atomically.

    Args:
        index: the index entries, in any order; see `index_of`.
        records: the serialized examples, in the order of `index`.
        vocabulary: determines the length of the token counts, and which tokens are not text.
        scratch_dir: see `storage.replaced`.
    Returns: the result, and the token counts; see `count_tokens`.
    Raises: OSError or one of TensorFlow's errors: the disk is full.
    """
    import tensorflow as tf

    # Copies have equal keys, and very rarely other examples too: the record decides the order then.
    sorted_by = list(zip(index["key"].tolist(), records, strict=True))
    order = sorted(range(len(records)), key=sorted_by.__getitem__)
    kept = [next(copies) for _, copies in groupby(order, sorted_by.__getitem__)] if settings.drop_duplicates else order
    with storage.replaced(os.path.join(settings.output_dir, shard_range.file_name), scratch_dir) as path:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for i in kept:
                writer.write(records[i])
        content = path.read_bytes()
        _, token_counts = count_tokens(path, vocabulary.size)
    num_tokens = int(token_counts.sum())
    num_documents = int(index["is_first"][kept].sum())
    result = ShardResult(
        split=shard_range.split,
        shard=Shard(
            file=shard_range.file_name,
            num_examples=len(kept),
            num_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        ),
        num_tokens=num_tokens,
        num_text_tokens=num_tokens - int(token_counts[[vocabulary.cls_id, vocabulary.sep_id]].sum()),
        num_documents=num_documents,
        num_duplicate_documents=int(index["is_first"].sum()) - num_documents,
    )
    return result, token_counts


def count_tokens(path: Path, vocab_size: int) -> tuple[int, np.ndarray]:
    """Counts the examples and tokens of a shard.

    Returns: the number of examples, and the occurrences of each vocabulary entry, [CLS] and [SEP] included, [V] int64.
    """
    import tensorflow as tf

    from electra_tf.text.records import flat_token_ids

    num_examples, token_counts = 0, np.zeros(vocab_size, np.int64)
    for records in tf.data.TFRecordDataset(str(path)).batch(_RECORDS_PER_CALL):
        num_examples += len(records)
        token_counts += np.bincount(flat_token_ids(records).numpy(), minlength=vocab_size)
    return num_examples, token_counts
