"""The build: inputs to work units, to spills, to shards and a manifest, on local processes.

The output is a function of the inputs' names and bytes, the vocabulary, and `BuildSettings` less its last two fields:
the same bytes for any number of processes.
"""

import contextlib
import logging
import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from data_prep import output, worker
from data_prep.inputs import SourceFile, find_files, plan_units
from data_prep.progress import Progress, duration, thousands
from data_prep.segments import MIN_MAX_SEQ_LENGTH
from data_prep.shards import Buckets, Counts, spill_path
from electra_tf.config.errors import UserError
from electra_tf.text import manifest as data_manifest
from electra_tf.text.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, VOCAB_FILE, Manifest
from electra_tf.text.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)

# Text in a shard where --num_shards is not given: about 8 MB of records, and 1,000 shards for all of Wikipedia.
BYTES_PER_SHARD = 16 * 2**20

# Text in a work unit: enough to keep the tokenizer busy for seconds, little against a process's memory.
UNIT_BYTES = 4 * 2**20

Task = TypeVar("Task")
Result = TypeVar("Result")
RunAll = Callable[[Callable[[Task], Result], Iterable[Task]], Iterator[Result]]


@dataclass(frozen=True)
class BuildSettings:
    """What to build; the flags of build_pretraining_dataset.py.

    Attributes:
        inputs: each `FORMAT:GLOB`.
        max_seq_length: S, most tokens in an example, [CLS] and [SEP] included.
        held_out_fraction: part of the documents, in [0, 1), that goes to the held-out split.
        num_shards: of the training split; 0 derives it from the size of the input.
    Raises: UserError: a value out of range.
    """

    inputs: tuple[str, ...]
    vocab_file: str
    output_dir: Path
    max_seq_length: int
    seed: int
    held_out_fraction: float
    lower_case: bool
    strip_accents: bool
    num_shards: int
    num_processes: int
    overwrite: bool

    def __post_init__(self) -> None:
        if not 0 <= self.held_out_fraction < 1:
            raise UserError(f"--held_out_fraction={self.held_out_fraction}; expected a fraction in [0, 1), e.g. 0.005")
        for name, value, least in (
            ("max_seq_length", self.max_seq_length, MIN_MAX_SEQ_LENGTH),
            ("num_processes", self.num_processes, 1),
            ("num_shards", self.num_shards, 0),
        ):
            if value < least:
                raise UserError(f"--{name}={value}; expected at least {least}")


def build(settings: BuildSettings) -> Manifest:
    """Builds the data set and returns its manifest, which is also the last file written.

    Raises: UserError: see `find_files`, the readers, `Vocabulary.load` and `output.prepare`; also if no document holds
        text, all were held out, the disk is full, or a process was killed.
    """
    files = find_files(settings.inputs)
    vocabulary = Vocabulary.load(settings.vocab_file)
    output.prepare(settings.output_dir, settings.overwrite, [settings.vocab_file, *(file.path for file in files)])
    try:
        return _build(settings, files, vocabulary)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first error is the one to report
            output.remove_build(settings.output_dir)
        if isinstance(error, BrokenProcessPool):
            raise UserError(
                f"one of {settings.num_processes} processes was killed, most likely for want of memory; lower"
                " --num_processes"
            ) from None
        if isinstance(error, OSError):
            raise UserError(
                f"cannot write to {settings.output_dir}: {error.strerror or error}; about twice the size of the"
                " finished data set is needed there"
            ) from error
        raise


def _build(settings: BuildSettings, files: list[SourceFile], vocabulary: Vocabulary) -> Manifest:
    num_bytes = sum(file.num_bytes for file in files)
    buckets = _buckets(settings, num_bytes)
    _logger.info(
        "reading %d files, %.1f MB, with %d processes into %d shards",
        len(files),
        num_bytes / 1e6,
        settings.num_processes,
        buckets.num_shards[TRAIN_SPLIT],
    )
    spills_dir = settings.output_dir / output.SPILLS_DIR
    spills_dir.mkdir()
    unit_tasks = [
        worker.UnitTask(unit, spill_path(spills_dir, i)) for i, unit in enumerate(plan_units(files, UNIT_BYTES))
    ]
    progress = Progress(num_bytes)
    totals = Counts()
    with _processes(settings, buckets) as run_all:
        for counts in run_all(worker.write_spill, unit_tasks):
            totals.add(counts)
            progress.update(totals.num_bytes, totals.num_tokens_read)
        splits = _splits_with_documents(settings, totals)
        shard_tasks = _shard_tasks(settings.output_dir, buckets, splits, len(unit_tasks))
        shards = list(run_all(worker.write_shard_of, shard_tasks))

    manifest = _manifest(settings, files, vocabulary, totals, splits, shards)
    _replace(settings.output_dir / VOCAB_FILE, Path(settings.vocab_file).read_bytes())
    _replace(settings.output_dir / MANIFEST_FILE, manifest.to_json().encode())
    output.remove_spills(settings.output_dir)
    _log_summary(manifest, progress.seconds)
    return manifest


def _buckets(settings: BuildSettings, num_bytes: int) -> Buckets:
    num_shards = settings.num_shards or math.ceil(num_bytes / BYTES_PER_SHARD)
    num_held_out = max(1, math.ceil(num_shards * settings.held_out_fraction))
    return Buckets({TRAIN_SPLIT: num_shards, HELD_OUT_SPLIT: num_held_out})


@contextlib.contextmanager
def _processes(settings: BuildSettings, buckets: Buckets) -> Iterator[RunAll]:
    """Gives a function that runs a task function on many tasks and yields the results as they come, in any order."""
    worker_settings = worker.WorkerSettings(
        vocab_file=settings.vocab_file,
        lower_case=settings.lower_case,
        strip_accents=settings.strip_accents,
        max_seq_length=settings.max_seq_length,
        seed=settings.seed,
        held_out_fraction=settings.held_out_fraction,
        buckets=buckets,
    )
    if settings.num_processes == 1:
        worker.start_in_this_process(worker_settings)
        yield map
        return
    # Not fork: TensorFlow's threads do not survive it.
    executor = ProcessPoolExecutor(
        settings.num_processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=worker.start_process,
        initargs=(worker_settings,),
    )

    def run_all(function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        for future in as_completed([executor.submit(function, task) for task in tasks]):
            yield future.result()

    try:
        yield run_all
    finally:
        executor.shutdown(cancel_futures=True)


def _splits_with_documents(settings: BuildSettings, totals: Counts) -> list[str]:
    """The splits to write.

    Raises: UserError: if there is nothing to train on.
    """
    if not totals.num_documents:
        raise UserError(f"the input holds no text: {totals.num_bytes} bytes were read; give files with words in them")
    if TRAIN_SPLIT not in totals.num_documents:
        raise UserError(
            f"all {totals.num_documents[HELD_OUT_SPLIT]} documents were held out;"
            f" lower --held_out_fraction={settings.held_out_fraction} or change --seed"
        )
    if settings.held_out_fraction > 0 and HELD_OUT_SPLIT not in totals.num_documents:
        _logger.warning(
            "warning: none of %d documents was held out with --held_out_fraction=%s: the data set has no held-out part;"
            " raise the fraction, or split the text into more documents",
            totals.num_documents[TRAIN_SPLIT],
            settings.held_out_fraction,
        )
    return [split for split in (TRAIN_SPLIT, HELD_OUT_SPLIT) if split in totals.num_documents]


def _shard_tasks(output_dir: Path, buckets: Buckets, splits: list[str], num_spills: int) -> Iterator[worker.ShardTask]:
    for split in splits:
        for shard in range(buckets.num_shards[split]):
            path = output_dir / buckets.file_name(split, shard)
            yield worker.ShardTask(
                output_dir / output.SPILLS_DIR, num_spills, buckets.first(split) + shard, split, path
            )


def _manifest(
    settings: BuildSettings,
    files: list[SourceFile],
    vocabulary: Vocabulary,
    totals: Counts,
    splits: list[str],
    results: list[worker.ShardResult],
) -> Manifest:
    results = sorted(results, key=lambda result: result.shard.file)
    return Manifest(
        schema_version=data_manifest.SCHEMA_VERSION,
        max_seq_length=settings.max_seq_length,
        vocab_size=vocabulary.size,
        vocab_sha256=vocabulary.sha256,
        lower_case=settings.lower_case,
        strip_accents=settings.strip_accents,
        seed=settings.seed,
        held_out_fraction=settings.held_out_fraction,
        inputs=tuple(
            data_manifest.InputFile(format=file.format, name=file.name, num_bytes=file.num_bytes) for file in files
        ),
        counts=data_manifest.Counts(
            num_documents=sum(totals.num_documents.values()),
            num_tokens_read=totals.num_tokens_read,
            num_tokens_kept=totals.num_tokens_kept,
            num_unknown_tokens=totals.num_unknown_tokens,
        ),
        splits={
            split: data_manifest.Split(
                num_documents=totals.num_documents[split],
                num_examples=sum(result.shard.num_examples for result in results if result.split == split),
                num_tokens=sum(result.num_tokens for result in results if result.split == split),
                shards=tuple(result.shard for result in results if result.split == split),
            )
            for split in splits
        },
    )


def _replace(path: Path, content: bytes) -> None:
    """Writes a file at once and whole."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def _log_summary(manifest: Manifest, seconds: float) -> None:
    splits = manifest.splits.values()
    _logger.info(
        "%d documents (%d held out) | %d examples | %d tokens read, %d kept | %s | %s tokens/s | %.1f MB on disk",
        manifest.counts.num_documents,
        manifest.splits[HELD_OUT_SPLIT].num_documents if HELD_OUT_SPLIT in manifest.splits else 0,
        sum(split.num_examples for split in splits),
        manifest.counts.num_tokens_read,
        manifest.counts.num_tokens_kept,
        duration(seconds),
        thousands(manifest.counts.num_tokens_read / seconds),
        sum(shard.num_bytes for split in splits for shard in split.shards) / 1e6,
    )
