"""The build: inputs to work units, to spills, to shards and a manifest, on local processes.

The data set is a function of the documents, the vocabulary and the settings that the manifest names: the same bytes for
any number of processes, for files cut or ordered otherwise, and across an interruption.
"""

import contextlib
import errno
import logging
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from data_prep import output, processes, storage, worker
from data_prep.assembly import Phase1, assemble_manifest, require_documents, write_manifest
from data_prep.inputs import SourceFile, find_files, plan_units
from data_prep.progress import Progress, log_summary
from data_prep.settings import BuildSettings
from data_prep.shards import ShardResult, shard_ranges
from data_prep.spills import read_summary, spill_path
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import TRAIN_SPLIT, Manifest
from electra_tf.text.vocabulary import Vocabulary, read_vocabulary_file

_logger = logging.getLogger(__name__)

# Text in a work unit: enough to keep the tokenizer busy for seconds, little against a process's memory. More where
# there is so much text that every shard would be gathered from thousands of places.
_MIN_UNIT_BYTES = 4 * 2**20
_MAX_UNIT_BYTES = 32 * 2**20
_USUAL_NUM_UNITS = 1024


def build(settings: BuildSettings) -> Manifest:
    """Builds the data set, or goes on with it, and returns its manifest, which is also the last file written.

    Raises: UserError: see `find_files`, the readers, `Vocabulary.load` and `output.opened`; also if no document is left
        to train on, the disk is full, or a process was killed. After the last two the same call goes on.
    """
    settings.require_work_dir()
    files = find_files(settings.inputs)
    vocab_content = read_vocabulary_file(settings.vocab_file)
    vocabulary = Vocabulary.from_bytes(vocab_content, settings.vocab_file)
    wanted = configuration(settings, files, vocabulary)
    if manifest := output.finished_manifest(settings, wanted):
        output.remove_build_dir(settings)
        _logger.info("%s holds this data set already, of files of these names and sizes", settings.output_dir)
        check_truncated(manifest, settings)
        return manifest
    sources = [settings.vocab_file, *(file.path for file in files)]
    with output.opened(settings, wanted, sources), _failures_explained(settings):
        manifest = _build(settings, files, vocabulary)
        write_manifest(manifest, settings, vocab_content)
        output.remove_build_dir(settings)
    check_truncated(manifest, settings)
    return manifest


def configuration(settings: BuildSettings, files: list[SourceFile], vocabulary: Vocabulary) -> dict[str, Any]:
    """What a build is asked to do, as JSON: two builds with equal ones go on with each other's work."""
    inputs = [
        {
            "format": file.format,
            "compression": file.compression,
            "name": file.name,
            "num_bytes": file.num_bytes,
            "modified": file.modified,
        }
        for file in files
    ]
    return {**settings.shaping(), "vocab_sha256": vocabulary.sha256, "inputs": inputs}


def check_truncated(manifest: Manifest, settings: BuildSettings) -> None:
    """Raises: UserError: input was cut off, and that is not allowed."""
    if manifest.counts.num_truncated_inputs and not settings.allow_truncated:
        raise UserError(
            f"{manifest.counts.num_truncated_inputs} of {len(manifest.inputs)} input files are cut off (see the"
            f" warnings); {settings.output_dir} is complete with what stands before the cuts; fetch the files anew, or"
            " give --allow_truncated if that is as it should be"
        )


@contextlib.contextmanager
def _failures_explained(settings: BuildSettings) -> Iterator[None]:
    """Turns what can be mended into a message. What was done so far stays, but not if the input has a fault.

    The input is another one when it is mended, and a build of other input begins anew.
    """
    go_on = "the same command goes on where this one stopped"
    try:
        yield
    except UserError:
        with contextlib.suppress(OSError):  # the first error is the one to report
            output.remove_build(settings)
        raise
    except BrokenProcessPool:
        raise UserError(
            f"one of {settings.num_processes} processes was killed, most likely for want of memory; lower"
            f" --num_processes, which may be another each time: {go_on}"
        ) from None
    except OSError as error:
        # TensorFlow, which writes the shards, gives no number.
        is_full = error.errno in (None, errno.ENOSPC, errno.EDQUOT)
        needed = "about twice the size of the finished data set is needed: free some space" if is_full else "mend this"
        raise UserError(
            f"building in {settings.build_dir} and {settings.output_dir} failed: {error.filename or ''}"
            f" {error.strerror or error}; {needed}, and {go_on}"
        ) from error
    except KeyboardInterrupt:
        _logger.info("interrupted: %s", go_on)
        raise


def _build(settings: BuildSettings, files: list[SourceFile], vocabulary: Vocabulary) -> Manifest:
    num_bytes = sum(file.num_bytes for file in files)
    _logger.info("reading %d files, %.1f MB, with %d processes", len(files), num_bytes / 1e6, settings.num_processes)
    unit_bytes = min(max(_MIN_UNIT_BYTES, num_bytes // _USUAL_NUM_UNITS), _MAX_UNIT_BYTES)
    progress = Progress(num_bytes)
    with processes.started(settings.num_processes, worker.set_up, settings.example_settings(vocabulary)) as run_all:
        phase_1 = Phase1()
        unit_tasks = _unit_tasks(settings, files, unit_bytes, phase_1, progress)
        for summary in run_all(worker.write_unit, unit_tasks):
            phase_1.add(summary)
            progress.update(phase_1.counts.num_bytes, phase_1.counts.num_tokens_read)
        require_documents(settings, phase_1)
        results, token_counts = _write_shards(settings, vocabulary, phase_1, run_all)
    manifest = assemble_manifest(settings, files, vocabulary, phase_1, results, token_counts)
    log_summary(manifest, progress.seconds, phase_1.counts.num_tokens_read - progress.num_tokens_skipped)
    return manifest


def _unit_tasks(
    settings: BuildSettings, files: list[SourceFile], unit_bytes: int, phase_1: Phase1, progress: Progress
) -> Iterator[worker.UnitTask]:
    """The units that are still to do; those that an interrupted build has done are added to `phase_1` here."""
    num_found = 0
    for unit in plan_units(files, unit_bytes, settings.reader):
        spill = spill_path(settings.build_dir, phase_1.num_units)
        phase_1.num_units += 1
        summary = read_summary(spill)
        if summary is None:
            yield worker.UnitTask(unit, spill)
        else:
            num_found += 1
            phase_1.add(summary)
            progress.skip(summary.counts.num_bytes, summary.counts.num_tokens_read)
    if num_found:
        _logger.info("%d of %d work units were done by an earlier run", num_found, phase_1.num_units)


def _write_shards(
    settings: BuildSettings, vocabulary: Vocabulary, phase_1: Phase1, run_all: processes.RunAll
) -> tuple[list[ShardResult], np.ndarray]:
    """All shards' results, and how often each vocabulary entry stands in those of the training split."""
    places = settings.build_dir, settings.output_dir, phase_1.num_units
    tasks = [
        worker.ShardTask(*places, shard, settings.drop_duplicates, vocabulary.size)
        for shard in shard_ranges(phase_1.num_record_bytes, settings.num_shards)
    ]
    results, missing = [], []
    for task in tasks:
        result = worker.read_result(task)
        if result is not None and storage.size_of(task.shard_path) == result.shard.num_bytes:
            results.append(result)
        else:
            missing.append(task)
    _logger.info("writing %d shards", len(missing))
    results += list(run_all(worker.write_shard_of_spills, missing))
    token_counts = np.zeros(vocabulary.size, np.int64)
    for task in tasks:
        if task.shard_range.split == TRAIN_SPLIT:
            token_counts += worker.read_token_counts(task)
    return results, token_counts
