"""The build on local processes: phase 1 turns units into spills, phase 2 spills into shards. The manifest comes last.

The documents, the vocabulary and the settings in the manifest determine every byte of the data set. The number of
processes, the order of the files and their division into units, and interruptions do not change it.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data_prep import output
from data_prep.archives import ReadError
from data_prep.counts import ReadCounts, total_of
from data_prep.examples import tokenize_function, unit_examples
from data_prep.inputs import BuildInputs, require_text
from data_prep.locks import taking_turns
from data_prep.near_duplicates import find_near_duplicates
from data_prep.output import write_manifest
from data_prep.processes import RunAll, progress_bar, speed, start_workers
from data_prep.settings import BuildSettings
from data_prep.shuffle import (
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

# Text in a unit: some seconds of work, and little of a process's memory. Very large inputs have larger units, so that a
# shard is not gathered from thousands of spills.
_MIN_UNIT_BYTES = 4 * 2**20
_MAX_UNIT_BYTES = 32 * 2**20
_USUAL_NUM_UNITS = 1024

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
    counts = ReadCounts()
    write_spill(spill, unit_examples(unit, *_worker, counts), counts)
    return counts


def write_shard_of_spills(task: tuple[list[Path], ShardRange, np.ndarray, np.ndarray]) -> None:
    """Phase 2: writes the shard of a range of keys; then its result and its token counts. Raises: see `write_shard`.

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


def build(settings: BuildSettings) -> Manifest | None:
    """Builds the data set, or continues an earlier build, and returns the manifest, which is the last file written.

    Returns: None if it has done the part of one of several machines, and others have theirs to do.
    Raises: UserError: see `BuildInputs.find`, `output.open_output` and `require_text`. Also: a file cannot be read or
        too much is faulty, the disk is full, or a process was killed: after these, the same call continues the build.
    """
    if is_remote(settings.work_dir or settings.output_dir):
        raise UserError(
            f"output_dir={settings.output_dir} needs work_dir=DIRECTORY, a local directory for intermediate files"
            " (about the size of the data set)"
        )
    inputs = BuildInputs.find(settings)
    with store_errors(f"output_dir={settings.output_dir} or its work_dir", "cannot be written to"):
        return output.build_once(inputs.with_text_settings(settings), inputs, _write_data_set)


def _write_data_set(settings: BuildSettings, inputs: BuildInputs) -> int | None:
    """Runs both phases and writes the manifest; returns the number of tokens read, without those of earlier runs.

    Returns None if work units of other machines are missing: the last one to finish its part writes the shards.
    """
    _logger.info(
        "reading %d files, %.1f MB, with %d processes",
        len(inputs.files), inputs.num_bytes / 1e6, settings.num_processes,
    )  # fmt: skip
    try:
        with start_workers(settings.num_processes, set_up, settings, inputs.vocabulary) as run_all:
            spills, num_tokens = _write_spills(settings, inputs, run_all)
            with taking_turns(settings):
                if settings.machine and exists(os.path.join(settings.output_dir, MANIFEST_FILE)):
                    _logger.info("part %s is done, and another machine has written the shards", settings.machine)
                    return num_tokens
                units = {spill: counts for spill in spills if (counts := read_spill_counts(spill))}
                if num_missing := len(spills) - len(units):
                    _logger.info("part %s is done, %d work units of other parts are not", settings.machine, num_missing)
                    return None
                total = total_of(units.values())
                require_text(settings, total, inputs.num_bytes)
                results, token_counts = _write_shards(settings, inputs, total, runs_of(units), run_all)
                write_manifest(settings, inputs, total, results, token_counts)
            return num_tokens
    except ReadError as error:
        raise ReadError(f"{error}; {_CONTINUES}") from None
    except BaseException as error:
        if isinstance(error, StoreError) or not isinstance(error, UserError):
            _logger.info("unfinished: %s", _CONTINUES)
        raise


def _write_spills(settings: BuildSettings, inputs: BuildInputs, run_all: RunAll) -> tuple[list[Path], int]:
    """Writes the missing spills, or those in this machine's part.

    Returns: the spills of all units, and the number of tokens that this process and its workers read.
    """
    counts = ReadCounts()  # without those of an earlier process
    spills: list[Path] = []
    number, num_machines = settings.part

    def tasks(progress: tqdm) -> Iterator[tuple[Unit, Path]]:
        num_done = 0
        for unit in plan_units(inputs.files, unit_bytes_of(inputs), settings):
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
                # tqdm leaves `initial` out of the speed.
                progress.initial += done.num_bytes
                progress.update(done.num_bytes)
        if num_done:
            _logger.info("%d of %d work units were already done", num_done, len(spills))

    begin = time.monotonic()
    with progress_bar(inputs.num_bytes) as progress:
        for unit_counts in run_all(write_unit, tasks(progress)):
            counts.add(unit_counts)
            progress.set_postfix_str(speed(counts.num_tokens_read, time.monotonic() - begin), refresh=False)
            progress.update(unit_counts.num_bytes)
    return spills, counts.num_tokens_read


def unit_bytes_of(inputs: BuildInputs) -> int:
    """The bytes of a unit. With others, a file with a fault in the middle would be read in other ranges, each up to it.

    A power of two, so that a changed file hardly ever changes the units of the others.
    """
    return min(max(_MIN_UNIT_BYTES, 1 << (inputs.num_bytes // _USUAL_NUM_UNITS).bit_length()), _MAX_UNIT_BYTES)


def _write_shards(
    settings: BuildSettings, inputs: BuildInputs, counts: ReadCounts, runs: list[Path], run_all: RunAll
) -> tuple[list[ShardResult], np.ndarray]:
    """Writes the missing shards.

    Returns: the results of all shards, and the token counts of the training split, [V] int64.
    """
    ranges = shard_ranges(counts.split_record_bytes, settings.num_shards)
    split_copies = find_split_copies(runs) if inputs.may_divide_twice(settings) else NO_DOCUMENTS
    near_duplicates = NO_DOCUMENTS
    if settings.near_duplicates:
        _logger.info("comparing %d documents", counts.split_documents.total())
        near_duplicates = find_near_duplicates(runs, settings.near_duplicates)
    missing = [(runs, each, split_copies, near_duplicates) for each in ranges if _read_result(settings, each) is None]
    _logger.info("writing %d shards", len(missing))
    for _ in run_all(write_shard_of_spills, missing):
        pass
    results, token_counts = [], np.zeros(inputs.vocabulary.size, np.int64)
    for each in ranges:
        written = _read_result(settings, each)
        assert written is not None
        results.append(written[0])
        if each.split == TRAIN_SPLIT:
            token_counts += written[1]
    return results, token_counts


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
