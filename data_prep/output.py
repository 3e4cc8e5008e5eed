"""The output directory of a build: what is in it, its lock, the manifest at the end, and `--verify`.

A build keeps its configuration and intermediate files in a subdirectory. A command with the same configuration
continues the build, and so does the same command after its input files have changed; any other is refused. The
configuration of a finished data set is in its manifest. Only files that a build has written are removed or replaced.
"""

import contextlib
import datetime
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import filterfalse
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from data_prep.archives import ReadError
from data_prep.counts import ReadCounts, join_faults, left_out, named_faults, warn_of_mark
from data_prep.inputs import BuildInputs
from data_prep.locks import lock_build, remove_lock_files, taking_turns
from data_prep.processes import speed
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS
from data_prep.settings import BuildSettings
from data_prep.shuffle import SPLITS, ShardResult
from electra_tf.config.errors import UserError
from electra_tf.data import manifest as data_manifest
from electra_tf.data.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, Manifest
from electra_tf.files import (
    PROBE_FILE,
    StoreError,
    exists,
    is_remote,
    make_directory,
    names_in,
    open_binary,
    read_bytes,
    remove,
    store_errors,
    write_atomically,
)
from electra_tf.text.vocabulary import VOCABULARY_FILES

_logger = logging.getLogger(__name__)

_CONFIGURATION_FILE = "configuration.json"
_BUILD_VERSION = 14  # of the intermediate files

_NAMED_FILES = "|".join(map(re.escape, (MANIFEST_FILE, *VOCABULARY_FILES)))
_OWN_FILE = re.compile(
    rf"({_NAMED_FILES}|({TRAIN_SPLIT}|{HELD_OUT_SPLIT})-\d+-of-\d+\.tfrecord)(\.[0-9a-f]{{32}}\.partial)?"
    rf"|\.({_NAMED_FILES})\.tmp"
)

_MARKED_BYTES = 2**16  # of a shard: they have a whole record
_NUM_NAMED_TEMPLATES = 10
_MIN_HELD_OUT = 0.5  # of the fraction that is asked for, by tokens

Configuration = Mapping[str, Any]


def build_once(
    settings: BuildSettings, inputs: BuildInputs, write_data_set: Callable[[BuildSettings, BuildInputs], int | None]
) -> Manifest | None:
    """Builds a data set unless the same command has already done so; returns the manifest in the output directory.

    Args:
        write_data_set: writes the shards and then the manifest; returns the number of tokens it read for this, or None
            if it leaves the shards to another machine. After its `ReadError` and errors that are no UserError, the work
            stays, and the same command continues it.
    Raises: UserError: another command has built the data set in the directory; or see `open_output`.
    """
    configuration = inputs.configuration(settings)
    sources = [settings.vocab_file, *(file.path for file in inputs.files)]
    with contextlib.ExitStack() as stack:
        with taking_turns(settings):
            if manifest := _finished_manifest(settings, configuration, sources[1:]):
                _remove_intermediate(settings)
                _logger.info("%s already holds this data set, of files with these names and sizes", settings.output_dir)
                if manifest.first_faulty:
                    faults = join_faults(manifest.first_faulty)
                    _logger.warning("warning: it lacks %s; after a repair, build it again with overwrite", faults)
                return manifest
            stack.enter_context(open_output(settings, configuration, sources))
        begin = time.monotonic()
        try:
            num_tokens = write_data_set(settings, inputs)
        except UserError as error:  # corrected settings need another build
            if not (isinstance(error, (ReadError, StoreError)) or settings.machine):  # others may be at work
                with contextlib.suppress(OSError, StoreError):  # the first error is the one to report
                    remove_build(settings)
            raise
        if num_tokens is None:
            return None
        manifest = Manifest.load(settings.output_dir)
        _log_summary(manifest, time.monotonic() - begin, num_tokens)
        with taking_turns(settings):
            _remove_intermediate(settings)
        return manifest


def _finished_manifest(settings: BuildSettings, configuration: Configuration, files: Iterable[str]) -> Manifest | None:
    path = os.path.join(settings.output_dir, MANIFEST_FILE)
    if settings.overwrite or not exists(path):
        return None
    manifest = Manifest.load(settings.output_dir)
    # Modification times depend on the machine, so the manifest does not have them.
    names = data_manifest.InputFile.model_fields
    wanted = {**configuration, "inputs": [{name: file[name] for name in names} for file in configuration["inputs"]]}
    fields = manifest.model_dump(mode="json")
    written = {name: fields[name] for name in wanted}
    place = f"output_dir={settings.output_dir} holds a data set"
    if written != wanted:
        differences = _differences(written, wanted)
        raise UserError(f"{place} with {differences}; give another directory, or overwrite to replace it")
    local = [] if is_remote(path) else filterfalse(is_remote, files)
    if newer := [file for file in local if os.stat(file).st_mtime > os.stat(path).st_mtime]:
        raise UserError(
            f"{place} older than {newer[0]}; give overwrite to build it again, or, if its text is as it was,"
            f" touch {path}"
        )
    if manifest.reader_version != data_manifest.READER_VERSION:
        _logger.warning(
            "warning: %s is of another version, which may read other text; runs that began with this data need it", path
        )
    return manifest


@contextlib.contextmanager
def open_output(settings: BuildSettings, configuration: Configuration, sources: Iterable[str | Path]) -> Iterator[None]:
    """Prepares the output directory for a build and locks it, or a machine's part, until the end of the context.

    An unfinished build of the same configuration stays. If its input files have changed and --input has not, only its
    work units stay, which are used if their files are the same. Otherwise, the files of an earlier build are removed.

    Args:
        configuration: see `BuildInputs.configuration`.
        sources: files that the build reads.
    Raises: UserError: the directory holds other files and `overwrite` is not set, it holds an unfinished build of
        another configuration, another process is writing to it, it cannot be written to, or a source is among the files
        to remove. In all these cases, nothing is removed.
    """
    build_dir = settings.build_dir
    # Another version may split the input at other places.
    configuration = json.loads(json.dumps({**configuration, "build_version": _BUILD_VERSION}))
    globs = list(settings.inputs)
    configuration_file = build_dir / _CONFIGURATION_FILE
    place = f"output_dir={settings.output_dir}"
    with store_errors(place, "cannot be used as a directory"):
        make_directory(settings.output_dir)
        unfinished = json.loads(configuration_file.read_bytes()) if configuration_file.exists() else {}
        names = set(names_in(settings.output_dir)) - {build_dir.name, PROBE_FILE}
    has_same_globs = unfinished.pop("globs", None) == globs
    is_same = unfinished == configuration
    has_changed_files = has_same_globs and {**unfinished, "inputs": 0} == {**configuration, "inputs": 0}
    own = _own_files(settings.output_dir, configuration.get("vocab_sha256", ""))
    others = sorted(set(filter(_OWN_FILE.fullmatch, names)) - set(own))
    problem = ""
    if settings.overwrite and others:
        problem = f"holds {', '.join(others)}, not of a build: give another directory, or move the files"
    elif needed := _removable(settings, sources):
        problem = f"has the input {needed[0]}, which the build would remove; copy it, or give another directory"
    elif unfinished and not (settings.overwrite or is_same or has_changed_files):
        problem = (
            f"holds an unfinished build with {_differences(unfinished, configuration)}; give its flags to continue it,"
            " another directory, or overwrite to start again"
        )
    elif names and not (settings.overwrite or is_same or has_changed_files):
        problem = "is not empty; give a new directory, or overwrite to replace its data set"
    if problem:
        raise UserError(f"{place} {problem}")
    with contextlib.ExitStack() as stack:
        with store_errors(f"{place} or its work_dir", "cannot be written to"):
            lock_build(settings, is_same, stack)
            if not (settings.machine and is_same):  # else others may be at work on it
                if is_same or has_changed_files:
                    _remove_partial(settings, with_shards=not is_same)
                else:
                    remove_build(settings)
                    build_dir.mkdir()
                write_atomically(configuration_file, json.dumps({**configuration, "globs": globs}).encode())
        yield


def _differences(written: Configuration, wanted: Configuration) -> str:
    """Names what differs in two configurations: "another seed, inputs"."""
    return f"another {', '.join(name for name in {**wanted, **written} if written.get(name) != wanted.get(name))}"


def _removable(settings: BuildSettings, sources: Iterable[str | Path]) -> list[str | Path]:
    """The sources that the build would remove from its directories."""
    if is_remote(settings.output_dir):
        return []
    removed = {os.path.realpath(os.path.join(settings.output_dir, name)) for name in _own_files(settings.output_dir)}
    build_dir = os.path.join(os.path.realpath(settings.build_dir), "")
    real_paths = [(source, os.path.realpath(source)) for source in sources]
    return [source for source, path in real_paths if path in removed or path.startswith(build_dir)]


def remove_build(settings: BuildSettings) -> None:
    """Removes the files that a build writes, complete or partial, and no other files."""
    for name in _own_files(settings.output_dir):
        remove(os.path.join(settings.output_dir, name))
    remove_build_dir(settings)


def remove_build_dir(settings: BuildSettings) -> None:
    """Removes the intermediate files. The configuration goes first: without it, a build ignores the others."""
    if settings.build_dir.is_dir():
        (settings.build_dir / _CONFIGURATION_FILE).unlink(missing_ok=True)
        shutil.rmtree(settings.build_dir)


def _remove_intermediate(settings: BuildSettings) -> None:
    remove_build_dir(settings)
    remove_lock_files(settings)


def _remove_partial(settings: BuildSettings, with_shards: bool) -> None:
    """Removes the incomplete files of a killed process, and with `with_shards` all but the complete work units."""
    for pattern in ("*.partial", "*.tfrecord.json")[: 1 + with_shards]:
        for path in settings.build_dir.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in _own_files(settings.output_dir):
        if with_shards or name.endswith((".partial", ".tmp")):
            remove(os.path.join(settings.output_dir, name))


def _own_files(output_dir: str, vocab_sha256: str = "") -> list[str]:
    """The names of the files that builds have written: their manifest, what it names, and shards of our records.

    The manifest comes first: removed first, it marks no incomplete data set. `vocab_sha256`: of one more vocabulary.
    """
    names = [name for name in names_in(output_dir) if _OWN_FILE.fullmatch(name)]
    manifest = read_bytes(os.path.join(output_dir, MANIFEST_FILE)) or b""
    manifest *= b'"vocab_sha256"' in manifest  # else it is another program's

    def is_own(name: str) -> bool:
        path = os.path.join(output_dir, name)
        if name == MANIFEST_FILE:
            return bool(manifest)
        if name in VOCABULARY_FILES:
            return hashlib.sha256(read_bytes(path) or b"").hexdigest().encode() in manifest + vocab_sha256.encode()
        if name.endswith((".partial", ".tmp")) or f'"{name}"'.encode() in manifest:
            return True
        with open_binary(path) as file:
            begin = file.read(_MARKED_BYTES)
        return not begin or b"segment_lengths" in begin  # see `records`

    return sorted(filter(is_own, names), key=lambda name: name != MANIFEST_FILE)


def write_manifest(
    settings: BuildSettings,
    inputs: BuildInputs,
    counts: ReadCounts,
    results: list[ShardResult],
    token_counts: np.ndarray,
) -> None:
    """Writes the vocabulary and then the manifest, which marks the data set as complete.

    Args:
        counts: the sum over all work units.
        results: one for each shard, in any order.
        token_counts: [V] int64, occurrences of each vocabulary entry in the training split.
    """
    results = sorted(results, key=lambda result: result.shard.file)
    most_frequent = sorted(counts.templates_dropped.items(), key=lambda item: (-item[1], item[0]))
    by_split = {split: [result for result in results if result.split == split] for split in SPLITS}
    shared = {name: value for name, value in vars(counts).items() if name in data_manifest.Counts.model_fields}
    manifest = Manifest(
        schema_version=data_manifest.SCHEMA_VERSION,
        reader_version=data_manifest.READER_VERSION,
        vocab_size=inputs.vocabulary.size,
        vocab_sha256=inputs.vocabulary.sha256,
        **settings.shaping(),
        inputs=tuple(data_manifest.InputFile.model_validate(file, from_attributes=True) for file in inputs.files),
        counts=data_manifest.Counts(
            **{**shared, "num_documents_skipped": dict(sorted(counts.num_documents_skipped.items()))},
            num_documents_duplicate=sum(result.num_duplicate_documents for result in results),
            num_documents_near_duplicate=sum(result.num_near_duplicate_documents for result in results),
            num_documents=sum(result.num_documents for result in results),
            num_tokens_kept=sum(result.num_text_tokens for result in results),
        ),
        templates_dropped=dict(most_frequent[:_NUM_NAMED_TEMPLATES]),
        first_faulty=named_faults(counts, {file.path: file.name for file in inputs.files}),
        splits={
            split: data_manifest.Split(
                num_documents=sum(result.num_documents for result in of_split),
                num_examples=sum(result.shard.num_examples for result in of_split),
                num_tokens=sum(result.num_tokens for result in of_split),
                shards=tuple(result.shard for result in of_split),
            )
            for split, of_split in by_split.items()
            if of_split
        },
        token_counts=tuple(token_counts.tolist()),
    )
    warn_of_mark(dict(zip(inputs.vocabulary.tokens, token_counts.tolist(), strict=True)))
    write_atomically(os.path.join(settings.output_dir, inputs.vocabulary.file_name), inputs.vocabulary.content)
    write_atomically(os.path.join(settings.output_dir, MANIFEST_FILE), manifest.to_json().encode())


def _log_summary(manifest: Manifest, seconds: float, num_tokens: int) -> None:
    counts = manifest.counts
    if reasons := left_out(counts):
        _logger.info("left out: %s", reasons)
    if manifest.templates_dropped:
        _logger.info(
            "templates dropped inside lines: %s; wikipedia_names can give their text",
            ", ".join(f"{number} {{{{{name}}}}}" for name, number in manifest.templates_dropped.items()),
        )
    if counts.num_tokens_dropped:
        _logger.info(
            "dropped: %d tokens (%.0f %%) that exceeded an example; examples=carry keeps them",
            counts.num_tokens_dropped,
            100 * counts.num_tokens_dropped / counts.num_tokens_read,
        )
    if counts.num_documents_cut:
        _logger.warning(
            "%d cuts in documents of over %d Mi characters; in the format text a blank line ends a document",
            counts.num_documents_cut,
            MAX_DOCUMENT_CHARACTERS >> 20,
        )
    splits = manifest.splits.values()
    held_out = manifest.splits.get(HELD_OUT_SPLIT)
    fraction = held_out.num_tokens / sum(split.num_tokens for split in splits) if held_out else 0
    asked = manifest.held_out_fraction
    if not _MIN_HELD_OUT * asked <= fraction <= max(asked, 0.5):
        _logger.warning(
            "warning: %.2g %% of the tokens are held out, held_out_fraction=%g asked for %.2g %%: the documents are"
            " few or unequal; try another fraction or seed",
            100 * fraction, asked, 100 * asked,
        )  # fmt: skip
    num_examples = sum(split.num_examples for split in splits)
    _logger.info(
        "%d documents (%d held out) | %d examples, %.1f %% padding | %d tokens read, %d kept | %s | %s | %.1f MB on"
        " disk",
        counts.num_documents,
        held_out.num_documents if held_out else 0,
        num_examples,
        100 * (1 - sum(split.num_tokens for split in splits) / (num_examples * manifest.max_seq_length)),
        counts.num_tokens_read,
        counts.num_tokens_kept,
        datetime.timedelta(seconds=round(seconds)),
        speed(num_tokens, seconds),
        sum(shard.num_bytes for split in splits for shard in split.shards) / 1e6,
    )


def verify(data_dir: str) -> Manifest:
    """Compares every file of a data set, local or at a URL, with its manifest, which has a checksum of its own.

    Raises: UserError: files are missing, damaged or unknown (all are named), or the manifest is damaged.
    """
    manifest = Manifest.load(data_dir)
    names = names_in(data_dir)
    vocab_file = next((name for name in VOCABULARY_FILES if name in names), VOCABULARY_FILES[0])
    shards = {shard.file: shard.sha256 for split in manifest.splits.values() for shard in split.shards}
    checksums = {vocab_file: manifest.vocab_sha256, **shards}
    problems = [
        f"{name} is not in the manifest" for name in names if name.endswith(".tfrecord") and name not in checksums
    ]
    # In a file the bar ends its line, so that an error has a line of its own.
    for name, expected in tqdm(checksums.items(), unit="file", leave=not sys.stderr.isatty()):
        try:
            with open_binary(os.path.join(data_dir, name)) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            problems.append(f"{name} cannot be read ({error.strerror or error})")
            continue
        if sha256 != expected:
            problems.append(f"{name} has sha256 {sha256}, expected {expected}")
    if problems:
        raise UserError(
            f"{data_dir} differs from its manifest: {'; '.join(problems)}; copy these files or build the data set again"
        )
    _logger.info("%s: %d files, all as in the manifest", data_dir, len(checksums))
    return manifest
