"""What a process of the build does: a work unit to a spill, a bucket to a shard. TensorFlow is imported here alone."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from data_prep import identity
from data_prep.inputs import SourceFile, WorkUnit, read_part
from data_prep.readers import Document
from data_prep.segments import Segmenter, draw_target_length
from data_prep.shards import Buckets, Counts, Spill, spill_path, write_shard
from electra_tf.text.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT, Shard

# Characters that the tokenizer gets at once: the cost of a call vanishes, its intermediate tensors stay in the cache.
_BATCH_CHARACTERS = 2**18


@dataclass(frozen=True)
class WorkerSettings:
    """All that shapes a shard, apart from the text."""

    vocab_file: str
    lower_case: bool
    strip_accents: bool
    max_seq_length: int
    seed: int
    held_out_fraction: float
    buckets: Buckets


class UnitTask(NamedTuple):
    """Phase 1: `unit` to the spill directory `spill`."""

    unit: WorkUnit
    spill: Path


class ShardTask(NamedTuple):
    """Phase 2: a bucket of the first `num_spills` spills, which is a shard of `split`, to the file `path`."""

    spills_dir: Path
    num_spills: int
    bucket: int
    split: str
    path: Path


class ShardResult(NamedTuple):
    split: str
    shard: Shard
    num_tokens: int


class Worker:
    """Turns tasks into files; one for each process."""

    def __init__(self, settings: WorkerSettings):
        tf = _restrained_tensorflow()
        from electra_tf.text.records import serialize_example
        from electra_tf.text.tokenizer import BertTokenizer
        from electra_tf.text.vocabulary import Vocabulary

        self._settings = settings
        self._vocabulary = Vocabulary.load(settings.vocab_file)
        self._tokenizer = BertTokenizer(self._vocabulary, settings.lower_case, settings.strip_accents)
        # A graph: op by op, Python's part in the calls costs as much as the tokens.
        self._tokenize = tf.function(self._tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
        self._serialize_example = serialize_example

    def write_spill(self, task: UnitTask) -> Counts:
        """Reads, tokenizes and cuts a work unit's documents and spills the examples."""
        counts = Counts(num_bytes=sum(part.end - part.begin for part in task.unit))
        spill = Spill(self._settings.buckets.size)
        for part in task.unit:
            for documents in _batches(read_part(part)):
                self._add_documents(part.file, documents, spill, counts)
        spill.write(task.spill, counts)
        return counts

    def write_shard(self, task: ShardTask) -> ShardResult:
        """Sorts a bucket's examples into a TFRecord file."""
        spills = [spill_path(task.spills_dir, i) for i in range(task.num_spills)]
        return ShardResult(task.split, *write_shard(spills, task.bucket, task.path))

    def _add_documents(self, file: SourceFile, documents: list[Document], spill: Spill, counts: Counts) -> None:
        ragged = self._tokenize([line for document in documents for line in document.lines])
        flat_ids = ragged.flat_values.numpy()
        token_ids, row_splits = flat_ids.tolist(), ragged.row_splits.numpy().tolist()
        counts.num_tokens_read += len(token_ids)
        counts.num_unknown_tokens += int(np.count_nonzero(flat_ids == self._vocabulary.unk_id))
        first_line = 0
        for document in documents:
            end_line = first_line + len(document.lines)
            digest = identity.document_digest(self._settings.seed, file.input_index, file.name, document.offset)
            self._add_document(digest, token_ids, row_splits[first_line : end_line + 1], spill, counts)
            first_line = end_line

    def _add_document(
        self, digest: bytes, token_ids: list[int], row_splits: list[int], spill: Spill, counts: Counts
    ) -> None:
        if row_splits[0] == row_splits[-1]:
            return  # nothing but characters that the tokenizer drops
        settings = self._settings
        cls, sep = [self._vocabulary.cls_id], [self._vocabulary.sep_id]
        split = HELD_OUT_SPLIT if identity.is_held_out(digest, settings.held_out_fraction) else TRAIN_SPLIT
        counts.num_documents[split] = counts.num_documents.get(split, 0) + 1
        source = identity.random_source(digest)
        segmenter = Segmenter(settings.max_seq_length, source, draw_target_length(settings.max_seq_length, source))
        for i, (first, second) in enumerate(segmenter.split_document(token_ids, row_splits)):
            if second:
                input_ids = cls + first + sep + second + sep
                segment_lengths = [len(first) + 2, len(second) + 1]
            else:
                input_ids = cls + first + sep
                segment_lengths = [len(first) + 2]
            key = identity.sort_key(digest, i)
            record = self._serialize_example(input_ids, segment_lengths)
            spill.append(settings.buckets.bucket(split, key), key, record, len(input_ids))
            counts.num_tokens_kept += len(first) + len(second)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Whole documents in batches of at least `_BATCH_CHARACTERS`, as far as there are so many."""
    batch: list[Document] = []
    num_characters = 0
    for document in documents:
        batch.append(document)
        num_characters += sum(map(len, document.lines))
        if num_characters >= _BATCH_CHARACTERS:
            yield batch
            batch, num_characters = [], 0
    if batch:
        yield batch


def _restrained_tensorflow() -> ModuleType:
    """Keeps TensorFlow to one thread, since the processes share the cores, and away from accelerators."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        pass  # a caller in this process has used TensorFlow before us and keeps its own settings
    return tf


_worker: Worker | None = None


def start_in_this_process(settings: WorkerSettings) -> None:
    """Sets up a build without other processes."""
    global _worker
    _worker = Worker(settings)


def start_process(settings: WorkerSettings) -> None:
    """Sets up a process of the pool: it ends in silence at an interrupt, and when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start_in_this_process(settings)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def write_spill(task: UnitTask) -> Counts:
    """`Worker.write_spill` of this process."""
    assert _worker is not None
    return _worker.write_spill(task)


def write_shard_of(task: ShardTask) -> ShardResult:
    """`Worker.write_shard` of this process."""
    assert _worker is not None
    return _worker.write_shard(task)
