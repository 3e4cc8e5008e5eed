"""Examples to TFRecord shards, globally shuffled by an external sort.

Each example has a 64-bit sort key that is uniform over [0, 2**64) and hangs on the seed and its document's text alone.
A shard is a range of keys, sorted by key. Phase 1 leaves one sorted spill for each work unit; phase 2 gathers a range
of keys from every spill, sorts and writes. So no process ever holds more than one unit or one shard, and how the work
was divided leaves no trace in the shards.
"""

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.spills import read_range
from electra_tf.text.manifest import TRAIN_SPLIT, Shard

# Records in a shard where --num_shards is not given: some 2,000 shards for all of English Wikipedia.
RECORD_BYTES_PER_SHARD = 8 * 2**20

_NUM_KEYS = 2**64

# Records parsed at once where tokens are counted: the cost of a call vanishes, the ids stay in the cache.
_RECORDS_PER_CALL = 1024


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
    """Which of `num_shards` ranges holds a key."""
    return key * num_shards >> 64


def shard_ranges(num_record_bytes: Mapping[str, int], num_train_shards: int) -> list[ShardRange]:
    """All shards of a data set.

    Args:
        num_record_bytes: by split, duplicates included; a split without records gets no shard.
        num_train_shards: of the training split; 0: by its size.
    """
    ranges = []
    for split, num_bytes in num_record_bytes.items():
        num_shards = math.ceil(num_bytes / RECORD_BYTES_PER_SHARD)
        if split == TRAIN_SPLIT and num_train_shards:
            num_shards = num_train_shards
        ranges += [ShardRange(split, index, num_shards) for index in range(num_shards)]
    return ranges


@dataclass(frozen=True)
class ShardResult:
    """What is known of a shard once it is written.

    Attributes:
        num_documents: how many have their first example here.
        num_duplicate_documents: how many more had, and were dropped as copies.
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
        entries, content = read_range(spill, shard_range.split, shard_range.first_key, shard_range.end_key)
        index_parts.append(entries)
        ends = np.cumsum(entries["num_bytes"], dtype=np.int64).tolist()
        records += [content[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    return np.concatenate(index_parts), records


def write_shard(
    index: np.ndarray, records: Sequence[bytes], shard_range: ShardRange, path: Path, drop_duplicates: bool
) -> ShardResult:
    """Sorts a shard's examples and writes them as a TFRecord file, at once and whole.

    Args:
        index: `INDEX_ENTRY`, entry i is of record i.
        path: of the file; another process may write the same one at the same time.
        drop_duplicates: of examples with equal keys and records one stays: copies of a document give such.
    Raises: OSError: if the disk is full.
    """
    import tensorflow as tf

    # Keys are equal for copies, and beyond them once in 2**64: the records make the order whole.
    keys = index["key"].tolist()
    order = sorted(range(len(records)), key=lambda i: (keys[i], records[i]))
    follows_copy = [False] + [
        keys[i] == keys[j] and records[i] == records[j] for i, j in zip(order, order[1:], strict=False)
    ]
    kept = [i for i, is_copy in zip(order, follows_copy, strict=False) if not (is_copy and drop_duplicates)]
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    try:
        with tf.io.TFRecordWriter(str(partial)) as writer:
            for i in kept:
                writer.write(records[i])
        content = partial.read_bytes()
        os.replace(partial, path)
    except tf.errors.OpError as error:
        partial.unlink(missing_ok=True)
        raise OSError(None, error.message) from None
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    stays = index[kept]
    num_first = int(index["is_first"].sum())
    num_documents = int(stays["is_first"].sum())
    return ShardResult(
        split=shard_range.split,
        shard=Shard(
            file=shard_range.file_name,
            num_examples=len(kept),
            num_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        ),
        num_tokens=int(stays["num_tokens"].sum()),
        num_text_tokens=int(stays["num_text_tokens"].sum()),
        num_documents=num_documents,
        num_duplicate_documents=num_first - num_documents,
    )


def count_tokens(path: Path, vocab_size: int) -> np.ndarray:
    """How often each vocabulary entry stands in a finished shard, [CLS] and [SEP] included: [V] int64."""
    import tensorflow as tf

    from electra_tf.text.records import flat_token_ids

    counts = np.zeros(vocab_size, np.int64)
    for records in tf.data.TFRecordDataset(str(path)).batch(_RECORDS_PER_CALL):
        counts += np.bincount(flat_token_ids(records).numpy(), minlength=vocab_size)
    return counts
