"""The output directory of a build: what is in it, its lock, and what may be removed.

A build keeps its configuration and intermediate files in a subdirectory. A command with the same configuration
continues the build, and so does the same command after its input files have changed; any other is refused. The
configuration of a finished data set is in its manifest. Only files that a build has written are removed or replaced.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import filterfalse
from pathlib import Path
from typing import Any

from data_prep.counts import join_faults
from data_prep.locks import lock_build, remove_lock_files
from data_prep.settings import BuildSettings
from electra_tf.config.errors import UserError
from electra_tf.data import manifest as data_manifest
from electra_tf.data.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, Manifest
from electra_tf.files import (
    PROBE_FILE,
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
_BUILD_VERSION = 15  # of the intermediate files

_NAMED_FILES = "|".join(map(re.escape, (MANIFEST_FILE, *VOCABULARY_FILES)))
_OWN_FILE = re.compile(
    rf"({_NAMED_FILES}|({TRAIN_SPLIT}|{HELD_OUT_SPLIT})-\d+-of-\d+\.tfrecord)(\.[0-9a-f]{{32}}\.partial)?"
    rf"|\.({_NAMED_FILES})\.tmp"
)

_MARKED_BYTES = 2**16  # of a shard: they have a whole record

Configuration = Mapping[str, Any]


def finished_manifest(settings: BuildSettings, configuration: Configuration, files: Iterable[str]) -> Manifest | None:
    """The manifest of a finished data set of this configuration, if there is one and `overwrite` is not set.

    Raises: UserError: the data set in the directory is of another configuration, or older than one of `files`.
    """
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
    _logger.info("%s already holds this data set, of files with these names and sizes", settings.output_dir)
    if manifest.first_faulty:
        faults = join_faults(manifest.first_faulty)
        _logger.warning("warning: it lacks %s; after a repair, build it again with overwrite", faults)
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
    # Another version may split the input at other places, or read other text.
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
    _remove_build_dir(settings)


def _remove_build_dir(settings: BuildSettings) -> None:
    """Removes the intermediate files. The configuration goes first: without it, a build ignores the others."""
    if settings.build_dir.is_dir():
        (settings.build_dir / _CONFIGURATION_FILE).unlink(missing_ok=True)
        shutil.rmtree(settings.build_dir)


def remove_intermediate(settings: BuildSettings) -> None:
    """Removes what a finished build no longer needs."""
    _remove_build_dir(settings)
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
