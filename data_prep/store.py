"""Examples as arrays, and their global shuffle into TFRecord shards by an external sort.

An object for each example would take as long as its tokens, so a batch of examples is two arrays from the tokenizer to
the shard. Each example has a 64-bit sort key, uniform over [0, 2**64), which depends on the seed and its document's
text only. A shard holds a range of keys, sorted. Phase 1 writes a spill for each unit: its examples in sorted runs, one
for most units. Phase 2 gathers a range of keys from every run, sorts it and writes a shard. So a process holds at most
one run or one shard, and the shards do not depend on how the work was divided.

A spill is a directory with a directory for each run, and the counts. It gets its name when it is complete. If two
processes write the same spill, for example after a kill, their bytes are equal and the first to finish wins.
"""

import hashlib
import json
import math
import mmap
import os
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pydantic

from data_prep.counts import ReadCounts
from data_prep.groups import grouped
from data_prep.packs import packed_rows
from data_prep.settings import BuildSettings
from electra_tf.data.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT, Shard
from electra_tf.files import partial_name, replaced_file, sync

SPLITS = (TRAIN_SPLIT, HELD_OUT_SPLIT)

ENTRY = np.dtype(
    [
        ("key", "<u8"),  # position in the global shuffle
        ("begin", "<u8"),  # of its tokens in the batch
        ("num_tokens", "<u4"),
        ("num_first", "<u4"),  # tokens of `[CLS] A [SEP]`; equal to `num_tokens` if there is no B
        ("is_first", "?"),  # of its document; the number of these is the number of documents
        ("document", "<u8"),  # its `examples.place_of`, but the last bit says whether its lines were split
    ]
)

NO_DOCUMENTS = np.zeros(0, np.uint64)

_EXAMPLES_PER_COUNT = 4096  # bounds the memory of the count
# Size of a shard without --num_shards: this gives about 2,000 shards for all of English Wikipedia.
_RECORD_BYTES_PER_SHARD = 8 * 2**20
_BYTES_WITHOUT_TOKENS = 50  # of a record
_NUM_KEYS = 2**64
_SUMMARY_FILE = "summary.json"
_RUN_BYTES = 2**25  # of the entries and token ids of a run: those of about 64 MB of text


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
    def num_record_bytes(self) -> int:
        """The size of the records, about: a token has two bytes, three if its id is 2**14 or more."""
        return 2 * self.num_tokens + _BYTES_WITHOUT_TOKENS * len(self.entries)

    @property
    def num_text_tokens(self) -> int:
        """The number of tokens without [CLS] and [SEP]."""
        has_second = self.entries["num_first"] < self.entries["num_tokens"]
        return self.num_tokens - 2 * len(self.entries) - int(np.count_nonzero(has_second))

    @classmethod
    def in_order(cls, entries: np.ndarray, token_ids: np.ndarray) -> "ExampleBatch":
        """Returns a batch whose token ids are in the order of the entries, whatever their `begin` was."""
        entries = entries.copy()
        entries["begin"] = np.cumsum(entries["num_tokens"], dtype=np.uint64) - entries["num_tokens"]
        return cls(entries, token_ids)

    @classmethod
    def concatenate(cls, batches: Sequence["ExampleBatch"]) -> "ExampleBatch":
        """Returns the examples of all batches, of which there may be none."""
        batches = [cls(np.zeros(0, ENTRY), np.zeros(0, np.uint8)), *batches]
        entries, token_ids = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        ends = np.cumsum([len(batch.token_ids) for batch in batches])
        entries["begin"] += np.repeat(ends[:-1].astype(np.uint64), [len(batch.entries) for batch in batches[1:]])
        return cls(entries, token_ids)

    def take(self, indices: np.ndarray) -> "ExampleBatch":
        """Returns some examples in the order of `indices`; all tokens stay where they are."""
        return ExampleBatch(self.entries[indices], self.token_ids)

    def compact(self) -> "ExampleBatch":
        """Returns the examples with their own tokens alone, in the order of the entries."""
        return ExampleBatch.in_order(
            self.entries, self.token_ids[positions(self.entries["begin"], self.entries["num_tokens"])]
        )

    def sort(self) -> "ExampleBatch":
        """Returns the examples in the order of the shuffle. Of equal ones, copies, the order does not matter."""
        return self.take(np.lexsort([self.entries["document"], self.entries["key"]]))

    def without_copies(self) -> "ExampleBatch":
        """Returns one of each example; the batch must be sorted. Copies of a document have equal examples."""
        columns = self.entries[["key", "document"]]
        return self.take(np.flatnonzero(np.append(columns[:1] == columns[:1], columns[1:] != columns[:-1])))

    def without(self, documents: np.ndarray) -> "ExampleBatch":
        """Returns the examples of other documents."""
        return self.take(np.flatnonzero(~np.isin(self.entries["document"], documents)))

    def rows(self) -> Iterator[tuple[np.ndarray, list[int]]]:
        """Yields the token ids and the lengths of the segments of each example; see `records.ExampleSerializer`."""
        columns = (self.entries[name].tolist() for name in ("begin", "num_tokens", "num_first"))
        for begin, num_tokens, num_first in zip(*columns, strict=True):
            segment_lengths = [num_first, num_tokens - num_first] if num_first < num_tokens else [num_first]
            yield self.token_ids[begin : begin + num_tokens], segment_lengths

    def token_counts(self, vocab_size: int) -> np.ndarray:
        """Returns the occurrences of each vocabulary entry, [CLS] and [SEP] included, [V] int64."""
        counts = np.zeros(vocab_size, np.int64)
        num_counts = len(self.entries) // _EXAMPLES_PER_COUNT + 1
        for indices in np.array_split(np.arange(len(self.entries)), num_counts):
            counts += np.bincount(self.take(indices).compact().token_ids, minlength=vocab_size)
        return counts


def positions(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the integers of the ranges from `begins[i]` on with `lengths[i]` integers each, one after the other."""
    ends = np.cumsum(lengths, dtype=np.int64)
    first = begins.astype(np.int64) - (ends - lengths)
    return np.repeat(first, lengths) + np.arange(len(first) and ends[-1])


class Portion(NamedTuple):
    """A part of a unit.

    Attributes:
        batches: the examples by split; with `near_duplicates`, also the signatures of the documents.
        counts: what was read and left out.
    """

    batches: dict[str, ExampleBatch]
    counts: ReadCounts


def write_spill(directory: Path, portions: Iterable[Portion]) -> ReadCounts:
    """Writes the examples of a unit and its counts to a new directory, atomically; returns the counts.

    Raises: OSError: for example, the disk is full. Incomplete files are removed.
    """
    counts = ReadCounts()
    partial = Path(partial_name(directory))

    def batches() -> Iterator[tuple[str, ExampleBatch]]:
        for portion in portions:
            counts.add(portion.counts)
            yield from portion.batches.items()

    try:
        partial.mkdir()
        runs = grouped(batches(), lambda item: item[1].entries.nbytes + item[1].token_ids.nbytes, _RUN_BYTES)
        for number, of_run in enumerate(runs):
            (run := partial / str(number)).mkdir()
            for split in dict(of_run):
                batch = ExampleBatch.concatenate([each for of, each in of_run if of == split]).sort().compact()
                # `np.save` and `tofile` can miss a full disk.
                (run / f"{split}.entries").write_bytes(batch.entries.tobytes())
                (run / f"{split}.token_ids").write_bytes(batch.token_ids.tobytes())
        (partial / _SUMMARY_FILE).write_text(json.dumps(vars(counts)))
        for file in (*partial.glob("*/*"), partial / _SUMMARY_FILE):
            sync(file)
        os.rename(partial, directory)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        error.filename = error.filename or str(directory)  # a full disk has none
        if not directory.is_dir():  # otherwise another process was faster and wrote the same bytes
            raise
    return counts


def runs_of(spills: Iterable[Path]) -> list[Path]:
    """Lists the runs of complete spills, sorted."""
    return sorted(run for spill in spills for run in spill.iterdir() if run.is_dir())


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

    def within(self, keys: np.ndarray) -> slice:
        """The place of the range in sorted keys, uint64."""
        # Not by `np.searchsorted`: it would copy all keys of a file of entries, where they are not aligned.
        return slice(*(bisect_left(keys, -(-i * _NUM_KEYS // self.num_shards)) for i in (self.index, self.index + 1)))

    @property
    def file_name(self) -> str:
        return f"{self.split}-{self.index:05d}-of-{self.num_shards:05d}.tfrecord"


def shard_index(key: int, num_shards: int) -> int:
    """Returns the index of the shard that holds a key."""
    return key * num_shards >> 64


def shard_ranges(num_record_bytes: Mapping[str, int], num_train_shards: int) -> list[ShardRange]:
    """Lists all shards of a data set.

    Args:
        num_record_bytes: bytes of each split, about, duplicates included; a split without records has no shard.
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
        num_near_duplicate_documents: number of dropped near-copies, each once.
    """

    split: str
    shard: Shard
    num_tokens: int
    num_text_tokens: int
    num_documents: int
    num_duplicate_documents: int
    num_near_duplicate_documents: int


def gather(runs: Iterable[Path], shard_range: ShardRange, vocab_size: int) -> ExampleBatch:
    """Reads the examples of a range of keys from all runs; not sorted."""
    batches, dtype = [], token_dtype(vocab_size)
    for run in runs:
        path = run / f"{shard_range.split}.entries"
        if not path.exists() or not path.stat().st_size:  # which cannot be mapped
            continue
        with open(path, "rb") as file:  # in half the time of `np.memmap`
            entries = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), ENTRY)
        entries = np.array(entries[shard_range.within(entries["key"])])
        first_token = int(entries["begin"][0]) if len(entries) else 0
        entries["begin"] -= np.uint64(first_token)
        num_tokens = int(entries["num_tokens"].sum(dtype=np.int64))
        path = run / f"{shard_range.split}.token_ids"
        batches.append(ExampleBatch(entries, np.fromfile(path, dtype, num_tokens, offset=first_token * dtype.itemsize)))
    return ExampleBatch.concatenate(batches)


def find_split_copies(runs: Iterable[Path]) -> np.ndarray:
    """Returns the documents whose lines were split, of which there is a copy with whole lines, uint64."""
    every = (np.fromfile(path, ENTRY) for run in runs for split in SPLITS for path in run.glob(f"{split}.entries"))
    documents = np.concatenate([NO_DOCUMENTS, *(entries["document"][entries["is_first"]] for entries in every)])
    return np.intersect1d(documents, documents[documents % 2 == 0] + 1)


def write_shard(
    batch: ExampleBatch,
    shard_range: ShardRange,
    settings: BuildSettings,
    vocab_size: int,
    scratch_dir: Path | None = None,
    split_copies: np.ndarray = NO_DOCUMENTS,
    near_duplicates: np.ndarray = NO_DOCUMENTS,
) -> tuple[ShardResult, np.ndarray]:
    """Sorts a shard's examples, packs them if the settings say so, and writes them as a TFRecord file, atomically.

    Args:
        batch: the examples, in any order.
        vocab_size: V, the number of token counts.
        scratch_dir: see `replaced_file`.
        split_copies, near_duplicates: the documents to leave out, uint64.
    Returns: the result, and the occurrences of each vocabulary entry, [CLS] and [SEP] included, [V] int64.
    Raises: OSError or one of TensorFlow's errors: the disk is full.
    """
    import tensorflow as tf

    from electra_tf.data.records import ExampleSerializer

    every = batch.sort()
    unique = (every.without_copies() if settings.drop_duplicates else every).without(split_copies)
    examples = unique.without(near_duplicates)
    rows = list(examples.rows())
    if settings.examples == "pack":
        rows = packed_rows(rows, settings.max_seq_length)
    serialize_example = ExampleSerializer()
    with replaced_file(os.path.join(settings.output_dir, shard_range.file_name), scratch_dir) as path:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for token_ids, segment_lengths in rows:
                writer.write(serialize_example(token_ids.tolist(), segment_lengths))
        content = path.read_bytes()
    num_documents, num_unique, num_all = (int(each.entries["is_first"].sum()) for each in (examples, unique, every))
    result = ShardResult(
        split=shard_range.split,
        shard=Shard(
            file=shard_range.file_name,
            num_examples=len(rows),
            num_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        ),
        num_tokens=examples.num_tokens,
        num_text_tokens=examples.num_text_tokens,
        num_documents=num_documents,
        num_duplicate_documents=num_all - num_unique,
        num_near_duplicate_documents=num_unique - num_documents,
    )
    return result, examples.token_counts(vocab_size)
