"""The build on local processes: phase 1 turns units into spills, phase 2 spills into shards. The manifest comes last.

The documents, the vocabulary and the settings in the manifest determine every byte of the data set. The number of
processes, the order of the files and their division into units, and interruptions do not change it.
"""

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data_prep import directory
from data_prep.archives import ReadError
from data_prep.counts import ReadCounts, total_of
from data_prep.examples import tokenize_function, unit_examples
from data_prep.inputs import BuildInputs, require_text
from data_prep.locks import taking_turns
from data_prep.manifest import log_summary, write_manifest
from data_prep.near_duplicates import find_near_duplicates
from data_prep.processes import RunAll, progress_bar, speed, start_workers
from data_prep.settings import BuildSettings
from data_prep.store import (
    NO_DOCUMENTS,
    ShardRange,
    ShardResult,
    find_split_copies,
    gather,
    read_spill_counts,
    runs_of,
    shard_ranges,
    write_shard,
    write_spill,
)
from data_prep.units import Unit, plan_units, unit_name
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import MANIFEST_FILE, TRAIN_SPLIT, Manifest
from electra_tf.files import StoreError, exists, is_remote, read_bytes, size_of, store_errors, write_atomically
from electra_tf.text.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)

_CONTINUES = "the same command continues the build"

_worker: tuple[BuildSettings, Vocabulary] | None = None  # of this process


def set_up(settings: BuildSettings, vocabulary: Vocabulary) -> None:
    """Prepares this process for the tasks of both phases."""
    global _worker
    _worker = settings, vocabulary
    tokenize_function(vocabulary, settings.text_settings)  # now, before the first unit


def write_unit(task: tuple[Unit, Path]) -> ReadCounts:
    """Phase 1: writes the examples of a unit to a spill directory; returns the counts.

    Raises: ReadError: see `read_unit`. OSError: see `write_spill`.
    """
    assert _worker is not None
    unit, spill = task
    return write_spill(spill, unit_examples(unit, *_worker))


def write_shard_of_spills(
    task: tuple[list[Path], ShardRange, np.ndarray, np.ndarray],
) -> tuple[ShardResult, np.ndarray]:
    """Phase 2: writes the shard of a range of keys, then its result and its token counts, which it also returns.

    Raises: see `write_shard`.

    Args:
        task: the runs of all spills, the range, and the documents that are left out: see `write_shard`.
    """
    assert _worker is not None
    runs, shard_range, *left_out = task
    settings, vocabulary = _worker
    batch = gather(runs, shard_range, vocabulary.size)
    result, token_counts = write_shard(batch, shard_range, settings, vocabulary.size, settings.build_dir, *left_out)
    content = json.dumps([result.model_dump(), token_counts.tolist()])
    write_atomically(_result_path(settings, shard_range), content.encode())
    return result, token_counts


def build(settings: BuildSettings) -> Manifest | None:
    """Builds the data set, or continues an earlier build, and returns the manifest, which is the last file written.

    Returns: None if it has done the part of one of several machines, and others have theirs to do.
    Raises: UserError: see `BuildInputs.find`, `Build.opened` and `require_text`. Also: a file cannot be read or too
        much is faulty, the disk is full, or a process was killed: after these, the same call continues the build.
    """
    if is_remote(settings.work_dir or settings.output_dir):
        raise UserError(
            f"output_dir={settings.output_dir} needs work_dir=DIRECTORY, a local directory for intermediate files"
            " (about the size of the data set)"
        )
    inputs = BuildInputs.find(settings)
    with (
        store_errors(f"output_dir={settings.output_dir} or its work_dir", "cannot be written to"),
        Build.opened(inputs.with_text_settings(settings), inputs) as build,
    ):
        return build.manifest or build.run()


class Build:
    """The work of one command on a data set, whose directory it has for itself.

    Attributes:
        manifest: of the data set, if it was finished before.
    """

    def __init__(self, settings: BuildSettings, inputs: BuildInputs, manifest: Manifest | None) -> None:
        self.manifest = manifest
        self._settings = settings
        self._inputs = inputs
        self._begin = time.monotonic()

    @classmethod
    @contextlib.contextmanager
    def opened(cls, settings: BuildSettings, inputs: BuildInputs) -> Iterator["Build"]:
        """Locks the directory, or a machine's part, until the end of the context, unless the data set is finished.

        After a `ReadError`, and after errors that are no UserError, the work stays, and the same command continues it.
        After another UserError, the files are removed, unless the data set is complete.

        Raises: UserError: see `directory.finished_manifest` and `directory.open_output`.
        """
        configuration = inputs.configuration(settings)
        files = [file.path for file in inputs.files]
        with contextlib.ExitStack() as stack:
            with taking_turns(settings):
                manifest = directory.finished_manifest(settings, configuration, files)
                if manifest is None:
                    sources = [settings.vocab_file, *files]
                    stack.enter_context(directory.open_output(settings, configuration, sources))
                else:
                    directory.remove_intermediate(settings)
            try:
                yield cls(settings, inputs, manifest)
            except UserError as error:  # corrected settings need another build
                if not (isinstance(error, (ReadError, StoreError)) or settings.machine):  # others may be at work
                    with contextlib.suppress(OSError, StoreError):  # the first error is the one to report
                        if not exists(os.path.join(settings.output_dir, MANIFEST_FILE)):
                            directory.remove_build(settings)
                raise

    def finish(self, num_tokens: int | None = None) -> Manifest:
        """Sums up the data set, whose manifest was written, and removes the intermediate files.

        Args:
            num_tokens: those that were read since `opened`; None: all.
        """
        manifest = Manifest.load(self._settings.output_dir)
        num_tokens = manifest.counts.num_tokens_read if num_tokens is None else num_tokens
        log_summary(manifest, time.monotonic() - self._begin, num_tokens)
        with taking_turns(self._settings):
            directory.remove_intermediate(self._settings)
        return manifest

    def run(self) -> Manifest | None:
        """Runs both phases on local processes and writes the manifest.

        Returns: None if work units of other machines are missing: the last one to finish its part writes the shards.
        """
        settings, inputs = self._settings, self._inputs
        _logger.info(
            "reading %d files, %.1f MB, with %d processes",
            len(inputs.files), inputs.num_bytes / 1e6, settings.num_processes,
        )  # fmt: skip
        try:
            with start_workers(settings.num_processes, set_up, settings, inputs.vocabulary) as run_all:
                spills, num_tokens = self._write_spills(run_all)
                with taking_turns(settings):
                    is_written = settings.machine and exists(os.path.join(settings.output_dir, MANIFEST_FILE))
                    if is_written:
                        _logger.info("part %s is done, and another machine has written the shards", settings.machine)
                    elif not self._write_shards(spills, run_all):
                        return None
        except ReadError as error:
            raise ReadError(f"{error}; {_CONTINUES}") from None
        except BaseException as error:
            if isinstance(error, StoreError) or not isinstance(error, UserError):
                _logger.info("unfinished: %s", _CONTINUES)
            raise
        return self.finish(num_tokens)

    def _write_spills(self, run_all: RunAll) -> tuple[list[Path], int]:
        """Writes the missing spills, or those in this machine's part.

        Returns: the spills of all units, and the number of tokens that this process and its workers read.
        """
        settings, inputs = self._settings, self._inputs
        num_tokens = 0  # without those of an earlier process
        spills: list[Path] = []
        number, num_machines = settings.part

        def tasks(progress: tqdm) -> Iterator[tuple[Unit, Path]]:
            num_done = 0
            for unit in plan_units(inputs.files, inputs.unit_bytes, settings):
                is_own = len(spills) % num_machines == number
                spill = settings.build_dir / f"unit-{unit_name(unit)}"
                spills.append(spill)
                done = read_spill_counts(spill) if is_own else None
                if not is_own:
                    progress.total -= sum(file_range.num_bytes for file_range in unit)
                elif done is None:
                    yield unit, spill
                else:
                    num_done += 1
                    # tqdm leaves `initial` out of the speed. With TQDM_DISABLE=1 it has none.
                    progress.initial = getattr(progress, "initial", 0) + done.num_bytes
                    progress.update(done.num_bytes)
            if num_done:
                _logger.info("%d of %d work units were already done", num_done, len(spills))

        with progress_bar(inputs.num_bytes) as progress:
            begin = time.monotonic()
            for counts in run_all(write_unit, tasks(progress)):
                num_tokens += counts.num_tokens_read
                progress.set_postfix_str(speed(num_tokens, time.monotonic() - begin), refresh=False)
                progress.update(counts.num_bytes)
        return spills, num_tokens

    def _write_shards(self, spills: list[Path], run_all: RunAll) -> bool:
        """Writes the missing shards and the manifest; returns False if spills of other machines are missing."""
        settings, inputs = self._settings, self._inputs
        units = {spill: counts for spill in spills if (counts := read_spill_counts(spill))}
        if num_missing := len(spills) - len(units):
            _logger.info("part %s is done, %d work units of other parts are not", settings.machine, num_missing)
            return False
        total, runs = total_of(units.values()), runs_of(units)
        require_text(settings, total, inputs.num_bytes)
        ranges = shard_ranges(total.split_record_bytes, settings.num_shards)
        split_copies = find_split_copies(runs) if inputs.may_divide_twice(settings) else NO_DOCUMENTS
        near_duplicates = NO_DOCUMENTS
        if settings.near_duplicates:
            _logger.info("comparing %d documents", total.split_documents.total())
            near_duplicates = find_near_duplicates(runs, settings.near_duplicates)

        def written() -> Iterator[tuple[ShardResult, np.ndarray]]:
            missing = []
            for each in ranges:
                if (earlier := _read_result(settings, each)) is None:
                    missing.append((runs, each, split_copies, near_duplicates))
                else:
                    yield earlier
            _logger.info("writing %d shards", len(missing))
            yield from run_all(write_shard_of_spills, missing)

        results, token_counts = [], np.zeros(inputs.vocabulary.size, np.int64)
        for result, counts in written():
            results.append(result)
            if result.split == TRAIN_SPLIT:
                token_counts += counts
        write_manifest(settings, inputs, total, results, token_counts)
        return True


def _result_path(settings: BuildSettings, shard_range: ShardRange) -> Path:
    """The JSON file with the result and the token counts of a shard, which is written after the shard."""
    return settings.build_dir / f"{shard_range.file_name}.json"


def _read_result(settings: BuildSettings, shard_range: ShardRange) -> tuple[ShardResult, np.ndarray] | None:
    """The result and the token counts of a shard; None if it is not written whole."""
    if (content := read_bytes(_result_path(settings, shard_range))) is None:
        return None
    fields, token_counts = json.loads(content)
    result = ShardResult.model_validate(fields)
    is_whole = size_of(os.path.join(settings.output_dir, shard_range.file_name)) == result.shard.num_bytes
    return (result, np.array(token_counts, np.int64)) if is_whole else None
