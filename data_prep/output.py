"""The output directory: checks its content, locks it, and removes only files that a build has written.

A build keeps its configuration and intermediate files in a subdirectory. A command with the same configuration
continues the build, and so does the same command after its input files have changed; any other is refused. The
configuration of a finished data set is in its manifest.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from data_prep import storage
from data_prep.counts import join_faults
from data_prep.inputs import BuildInputs
from data_prep.settings import BuildSettings
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote, locked_file, store_errors
from electra_tf.text.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, Manifest
from electra_tf.text.vocabulary import VOCABULARY_FILES

_logger = logging.getLogger(__name__)

_CONFIGURATION_FILE = "configuration.json"
_BUILD_VERSION = 11  # of the intermediate files

CHECKSUM_FILE = "SHA256SUMS"  # which --verify writes

_NAMED_FILES = (MANIFEST_FILE, CHECKSUM_FILE, *VOCABULARY_FILES)
_OWN_FILE = re.compile(
    rf"({'|'.join(map(re.escape, _NAMED_FILES))}|({TRAIN_SPLIT}|{HELD_OUT_SPLIT})-\d+-of-\d+\.tfrecord)"
    r"(\.[0-9a-f]{32}\.partial)?"
)

Configuration = Mapping[str, Any]


def read_manifest(data_dir: str) -> Manifest:
    """Reads the manifest in a directory, local or at any URL that fsspec supports.

    Raises: UserError: it is missing, cannot be read or is damaged.
    """
    path = os.path.join(data_dir, MANIFEST_FILE)
    with store_errors(path, "cannot be read"):
        content = storage.read_bytes(path)
    return Manifest.from_bytes(content, path)


def finished_manifest(settings: BuildSettings, configuration: Configuration) -> Manifest | None:
    """Returns the manifest in the output directory; None if there is none, or with `--overwrite`.

    Raises: UserError: a command with another configuration has written it, or it cannot be read.
    """
    with store_errors(f"--output_dir={settings.output_dir}", "cannot be reached"):
        if settings.overwrite or storage.size_of(os.path.join(settings.output_dir, MANIFEST_FILE)) is None:
            return None
    manifest = read_manifest(settings.output_dir)
    # Modification times depend on the machine, so the manifest does not have them.
    wanted = {**configuration, "inputs": [{**file, "modified": ""} for file in configuration["inputs"]]}
    fields = manifest.model_dump(mode="json")
    written = {name: fields[name] for name in wanted}
    written["inputs"] = [{**file, "modified": ""} for file in fields["inputs"]]
    if written != wanted:
        raise UserError(
            f"--output_dir={settings.output_dir} holds a data set with {_differences(written, wanted)};"
            " give another directory, or --overwrite to replace it"
        )
    return manifest


def build_once(
    settings: BuildSettings, inputs: BuildInputs, build: Callable[[BuildSettings, BuildInputs], Manifest]
) -> Manifest:
    """Calls `build` unless the same command has already finished; returns the manifest in the output directory.

    Raises: UserError: see `finished_manifest`, `open_output` and `build`.
    """
    configuration = inputs.configuration(settings)
    if manifest := finished_manifest(settings, configuration):
        remove_build_dir(settings)
        _logger.info("%s already holds this data set, built from files with these names and sizes", settings.output_dir)
        if manifest.first_faulty:
            faults = join_faults(manifest.first_faulty)
            _logger.warning("warning: it lacks %s; after a repair, --overwrite builds it again", faults)
        return manifest
    with open_output(settings, configuration, [settings.vocab_file, *(file.path for file in inputs.files)]):
        return build(settings, inputs)


@contextlib.contextmanager
def open_output(settings: BuildSettings, configuration: Configuration, sources: Iterable[str | Path]) -> Iterator[None]:
    """Prepares the output directory for a build and locks it until the end of the context.

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
    place = f"--output_dir={settings.output_dir}"
    with store_errors(place, "cannot be used as a directory"):
        storage.make_directory(settings.output_dir)
        unfinished = json.loads(configuration_file.read_bytes()) if configuration_file.exists() else {}
        is_empty = set(storage.names_in(settings.output_dir)) <= {build_dir.name}
    has_same_globs = unfinished.pop("globs", None) == globs
    is_same = unfinished == configuration
    has_changed_files = has_same_globs and {**unfinished, "inputs": 0} == {**configuration, "inputs": 0}
    if not (settings.overwrite or is_same or has_changed_files) and (unfinished or not is_empty):
        what = "is not empty; give a new directory, or --overwrite to replace its data set"
        if unfinished and unfinished.get("build_version") != _BUILD_VERSION:
            what = "holds an unfinished build of another version; give another directory, or --overwrite to start again"
        elif unfinished:
            what = (
                f"holds an unfinished build with {_differences(unfinished, configuration)}; give its flags to continue"
                " it, another directory, or --overwrite to start again"
            )
        raise UserError(f"{place} {what}")
    _check_removable(settings, sources)
    with contextlib.ExitStack() as stack:
        with store_errors(f"{place} or its --work_dir", "cannot be written to"):
            stack.enter_context(_locked(settings))
            if is_same or has_changed_files:
                _remove_partial(settings, with_shards=not is_same)
            else:
                remove_build(settings)
                build_dir.mkdir()
            storage.write_bytes(configuration_file, json.dumps({**configuration, "globs": globs}).encode())
        yield


def _differences(written: Configuration, wanted: Configuration) -> str:
    """Describes how two configurations differ: "seed=1; this command has seed=2"."""
    names = [name for name in {**wanted, **written} if written.get(name) != wanted.get(name)]
    described = []
    for configuration, other in ((written, wanted), (wanted, written)):
        described.append(" and ".join(_described(name, configuration.get(name), other.get(name)) for name in names))
    return f"{described[0]}; this command has {described[1]}"


def _described(name: str, value: Any, other: Any) -> str:
    if name == "wikipedia_names" and value:
        return f"{name} with sha256 {hashlib.sha256(value.encode()).hexdigest()[:16]}"
    if name != "inputs":
        return f"{name}={value}"
    others = {tuple(sorted(file.items())) for file in other}
    own = [file for file in value if tuple(sorted(file.items())) not in others]
    if not own:
        return f"{len(value)} input files"
    is_same_text = {**own[0], "modified": ""} in [{**file, "modified": ""} for file in other]
    time = " (by its time of modification)" if is_same_text else ""
    return f"{len(value)} input files, of which {len(own)} differ, first {own[0]['name']}{time}"


@contextlib.contextmanager
def _locked(settings: BuildSettings) -> Iterator[None]:
    """Locks the output directory and the directory of intermediate files."""
    settings.build_dir.mkdir(parents=True, exist_ok=True)
    directories = {settings.build_dir.parent}
    if not is_remote(settings.output_dir):
        directories.add(Path(settings.output_dir))
    with contextlib.ExitStack() as stack:
        for directory in sorted(directories):
            try:
                stack.enter_context(locked_file(directory))
            except BlockingIOError:
                raise UserError(f"another process is building in {directory}; use another directory") from None
        yield


def _check_removable(settings: BuildSettings, sources: Iterable[str | Path]) -> None:
    """Raises: UserError: the build would remove a file that it has to read."""
    if is_remote(settings.output_dir):
        return
    output_dir = Path(settings.output_dir)
    removed = {os.path.realpath(output_dir / name) for name in _own_files(settings.output_dir)}
    build_prefix = os.path.join(os.path.realpath(settings.build_dir), "")
    for source in sources:
        real_path = os.path.realpath(source)
        if real_path in removed or real_path.startswith(build_prefix):
            raise UserError(
                f"{source} is an input, and the build would remove it from --output_dir={output_dir}; copy it"
                " elsewhere or give another directory"
            )


def remove_build(settings: BuildSettings) -> None:
    """Removes the files that a build writes, complete or partial, and no other files."""
    for name in _own_files(settings.output_dir):
        storage.remove(os.path.join(settings.output_dir, name))
    remove_build_dir(settings)


def remove_build_dir(settings: BuildSettings) -> None:
    """Removes the intermediate files. The configuration goes first: without it, a build ignores the others."""
    if settings.build_dir.is_dir():
        (settings.build_dir / _CONFIGURATION_FILE).unlink(missing_ok=True)
        shutil.rmtree(settings.build_dir)


def _remove_partial(settings: BuildSettings, with_shards: bool) -> None:
    """Removes the incomplete files of a killed process, and with `with_shards` all but the complete work units."""
    for pattern in ("*.partial", "*.tfrecord.json")[: 1 + with_shards]:
        for path in settings.build_dir.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in _own_files(settings.output_dir):
        if with_shards or name.endswith(".partial"):
            storage.remove(os.path.join(settings.output_dir, name))


def _own_files(output_dir: str) -> list[str]:
    """The names of a build's files. The manifest comes first: removed first, it marks no incomplete data set."""
    names = [name for name in storage.names_in(output_dir) if _OWN_FILE.fullmatch(name)]
    return sorted(names, key=lambda name: name != MANIFEST_FILE)
