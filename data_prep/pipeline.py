"""The local build: work units to spills, spills to shards and a manifest, on any number of processes.

The data set is a function of the documents, the vocabulary and the settings in the manifest: the bytes are the same for
any number of processes, for files split or ordered otherwise, and after an interruption.
"""

import contextlib
import errno
import json
import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from data_prep import output, processes, storage
from data_prep.assembly import (
    BuildInputs,
    build_once,
    log_summary,
    require_documents,
    speed,
    write_manifest,
)
from data_prep.examples import ExampleBuilder
from data_prep.readers.documents import ReadCounts
from data_prep.settings import BuildSettings
from data_prep.shards import (
    ShardRange,
    ShardResult,
    gather,
    read_spill_counts,
    shard_ranges,
    spill_path,
    write_shard,
    write_spill,
)
from data_prep.work_units import WorkUnit, plan_units
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote
from electra_tf.text.manifest import TRAIN_SPLIT, Manifest
from electra_tf.text.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)

# Text in a work unit: seconds of work for the tokenizer, little compared with a process's memory. Very large inputs get
# larger units, so that no shard is gathered from thousands of spills.
_MIN_UNIT_BYTES = 4 * 2**20
_MAX_UNIT_BYTES = 32 * 2**20
_USUAL_NUM_UNITS = 1024

_SECONDS_BETWEEN_UPDATES = 5  # of the progress bar


_example_builder: ExampleBuilder | None = None


def set_up(settings: BuildSettings, vocabulary: Vocabulary) -> None:
    """Prepares this process for `write_unit`."""
    global _example_builder
    _example_builder = ExampleBuilder(settings, vocabulary)


def write_unit(task: tuple[WorkUnit, Path]) -> ReadCounts:
    """Phase 1: writes the examples of a work unit to a spill directory.

    Raises: UserError: see `ExampleBuilder.examples`. OSError: see `write_spill`.
    """
    assert _example_builder is not None
    unit, spill = task
    counts = ReadCounts()
    write_spill(spill, _example_builder.examples(unit, counts), counts)
    return counts


class ShardTask(NamedTuple):
    """Phase 2: write the shard of a range of keys from the first `num_spills` spills."""

    settings: BuildSettings
    num_spills: int
    shard_range: ShardRange
    vocab_size: int

    @property
    def result_path(self) -> Path:
        """The result and the token counts as JSON. It is written last: a shard that has one is complete."""
        return self.settings.build_dir / f"{self.shard_range.file_name}.json"


def write_shard_of_spills(task: ShardTask) -> ShardResult:
    """Writes a shard, then its result. Raises: OSError: see `write_shard`."""
    settings, num_spills, shard_range, vocab_size = task
    index, records = gather([spill_path(settings.build_dir, i) for i in range(num_spills)], shard_range)
    result, token_counts = write_shard(index, records, shard_range, settings, vocab_size, settings.build_dir)
    content = json.dumps([result.model_dump(), token_counts.tolist()])
    storage.write_bytes(task.result_path, content.encode())
    return result


def _finished_result(task: ShardTask) -> ShardResult | None:
    """The result of a shard that an earlier run has completed; None if there is none."""
    try:
        result = ShardResult.model_validate(json.loads(task.result_path.read_bytes())[0])
    except FileNotFoundError:
        return None
    path = os.path.join(task.settings.output_dir, task.shard_range.file_name)
    return result if storage.size_of(path) == result.shard.num_bytes else None


def build(settings: BuildSettings) -> Manifest:
    """Builds the data set, or continues to, and returns its manifest, which is the last file written.

    Raises: UserError: see `BuildInputs.find`, the readers and `output.opened`; also if no document is left to train on,
        the disk is full, or a process was killed. After the last two, the same call continues the build.
    """
    if is_remote(settings.output_dir) and not settings.work_dir:
        raise UserError(
            f"--output_dir={settings.output_dir} needs --work_dir=DIRECTORY, a local one for intermediate files of"
            " about the size of the data set"
        )
    return build_once(settings, BuildInputs.find(settings), _build)


@contextlib.contextmanager
def _failures_explained(settings: BuildSettings) -> Iterator[None]:
    """Turns failures into messages. After faulty input the work is removed: corrected input needs another build."""
    go_on = "the same command continues the build"
    try:
        yield
    except UserError:
        with contextlib.suppress(OSError):  # the first error is the one to report
            output.remove_build(settings)
        raise
    except BrokenProcessPool:
        raise UserError(
            f"one of {settings.num_processes} processes was killed, most likely because memory ran out; lower"
            f" --num_processes, which may change between runs: {go_on}"
        ) from None
    except OSError as error:
        # TensorFlow, which writes the shards, gives no error number.
        is_full = error.errno in (None, errno.ENOSPC, errno.EDQUOT)
        needed = "about twice the size of the finished data set is needed: free some space" if is_full else "fix this"
        raise UserError(
            f"building in {settings.build_dir} and {settings.output_dir} failed: {error.filename or ''}"
            f" {error.strerror or error}; {needed}, and {go_on}"
        ) from error
    except KeyboardInterrupt:
        _logger.info("interrupted: %s", go_on)
        raise


def _build(settings: BuildSettings, inputs: BuildInputs) -> Manifest:
    with _failures_explained(settings):
        manifest = _build_in_processes(settings, inputs)
        output.remove_build_dir(settings)
    return manifest


def _build_in_processes(settings: BuildSettings, inputs: BuildInputs) -> Manifest:
    begin = time.monotonic()
    _logger.info(
        "reading %d files, %.1f MB, with %d processes",
        len(inputs.files), inputs.num_bytes / 1e6, settings.num_processes,
    )  # fmt: skip
    counts, earlier, spills = ReadCounts(), ReadCounts(), []
    with processes.started(settings.num_processes, set_up, settings, inputs.vocabulary) as run_all:
        with progress_bar(inputs.num_bytes) as progress:
            for unit_counts in run_all(write_unit, _unit_tasks(settings, inputs, spills, earlier, progress)):
                counts.add(unit_counts)
                progress.set_postfix_str(speed(counts.num_tokens_read, time.monotonic() - begin), refresh=False)
                progress.update(unit_counts.num_bytes)
        num_tokens = counts.num_tokens_read
        counts.add(earlier)
        require_documents(settings, counts)
        results, token_counts = _write_shards(settings, inputs.vocabulary, counts, len(spills), run_all)
        manifest = write_manifest(settings, inputs, counts, results, token_counts)
    log_summary(manifest, time.monotonic() - begin, num_tokens)
    return manifest


@contextlib.contextmanager
def progress_bar(num_bytes: int) -> Iterator[tqdm]:
    """Shows a progress bar over the bytes of the input files, below the lines that are logged."""
    seconds = _SECONDS_BETWEEN_UPDATES
    options = {"unit": "B", "unit_scale": True, "mininterval": seconds, "delay": seconds, "leave": False}
    with logging_redirect_tqdm(), tqdm(total=num_bytes, **options) as progress:
        yield progress


def _unit_tasks(
    settings: BuildSettings, inputs: BuildInputs, spills: list[Path], earlier: ReadCounts, progress: tqdm
) -> Iterator[tuple[WorkUnit, Path]]:
    """The units that are left to do.

    Adds the spills of all units to `spills`, and the counts of those that an earlier run completed to `earlier`.
    """
    unit_bytes = min(max(_MIN_UNIT_BYTES, inputs.num_bytes // _USUAL_NUM_UNITS), _MAX_UNIT_BYTES)
    num_done = 0
    for unit in plan_units(inputs.files, unit_bytes, settings):
        spills.append(spill_path(settings.build_dir, len(spills)))
        done = read_spill_counts(spills[-1])
        if done is None:
            yield unit, spills[-1]
        else:
            num_done += 1
            earlier.add(done)
            # Counts as done, but not for the speed.
            progress.initial += done.num_bytes
            progress.update(done.num_bytes)
    if num_done:
        _logger.info("%d of %d work units were done by an earlier run", num_done, len(spills))


def _write_shards(
    settings: BuildSettings, vocabulary: Vocabulary, counts: ReadCounts, num_spills: int, run_all: processes.RunAll
) -> tuple[list[ShardResult], np.ndarray]:
    """Returns: the results of all shards, and the token counts of the training split, [V] int64."""
    tasks = [
        ShardTask(settings, num_spills, shard_range, vocabulary.size)
        for shard_range in shard_ranges(counts.split_record_bytes, settings.num_shards)
    ]
    finished = {task: result for task in tasks if (result := _finished_result(task))}
    missing = [task for task in tasks if task not in finished]
    _logger.info("writing %d shards", len(missing))
    results = [*finished.values(), *run_all(write_shard_of_spills, missing)]
    token_counts = np.zeros(vocabulary.size, np.int64)
    for task in tasks:
        if task.shard_range.split == TRAIN_SPLIT:
            token_counts += np.array(json.loads(task.result_path.read_bytes())[1], np.int64)
    return results, token_counts
