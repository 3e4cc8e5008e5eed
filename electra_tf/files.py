"""Reads and writes files on this machine and in stores, for runs and for the builder of data alike.

A URL is fsspec's, such as `s3://` with the package s3fs. TensorFlow's own file systems are used where fsspec has none:
`ram://`, and `gs://` without gcsfs. Local paths need neither library. (TensorFlow itself writes checkpoints and reads
records, so a run's URLs are those that TensorFlow reads.) Writes are atomic. Listings show what other processes wrote.
"""

import contextlib
import errno
import fcntl
import functools
import glob
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from electra_tf.config.errors import UserError, first_line

logger = logging.getLogger(__name__)
_warn_once = functools.cache(logger.warning)

FilePath = str | os.PathLike[str]

HUB = "hf://"  # of models of the Hugging Face Hub, see `electra_tf.weights.hub`
UNFINISHED = ".unfinished"  # the name of a directory, or the end of its name, until it is complete
PROBE_FILE = ".electra_tf_probe"  # what is written to an object store to see whether it can be

_FILE_URL = re.compile("^file://[^/]*(?=/)")  # TensorFlow ignores the host
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)  # no locks, or no waiting for the disk
# Stores with atomic uploads and without directories. (`makedirs` could create a bucket with a mistyped name.)
_OBJECT_STORES = frozenset({"gs", "gcs", "s3", "s3a", "az", "abfs", "abfss", "oss"})
# The names by which file systems describe the version of a file, the most reliable first.
_VERSIONS = ["etag", "ETag", "generation", "md5Hash", "blob_id"]
_VERSIONS += ["mtime", "LastModified", "last_modified", "updated", "created"]


class StoreError(UserError):
    """A file cannot be read or written as things are: no permission, no space, no network. Repaired, it can."""


class DamagedFile(UserError):
    """A file does not hold what its writer has written: a power cut may leave it empty, or cut it off."""


def is_remote(path: FilePath) -> bool:
    """Whether a path is a URL."""
    return "://" in os.fspath(path)


def local_path(path: FilePath) -> str:
    """The path of a `file://` URL; another path or URL unchanged."""
    return _FILE_URL.sub("", os.fspath(path))


def absolute_path(path: FilePath) -> str:
    """A local path from the root on; a URL without its last slashes."""
    path = local_path(path)
    return path.rstrip("/") if is_remote(path) else os.path.abspath(path)


def is_hub(path: FilePath) -> bool:
    """Whether a path names a model of the Hugging Face Hub."""
    return os.fspath(path).startswith(HUB)


@contextlib.contextmanager
def store_errors(place: FilePath, problem: str) -> Iterator[None]:
    """Turns an error of a file system, local or TensorFlow's, into a StoreError: "PLACE PROBLEM: REASON".

    `place` is the path, or FLAG=PATH; `problem` for example "cannot be read".
    """
    try:
        yield
    except Exception as error:
        tensorflow = sys.modules.get("tensorflow")
        if not isinstance(error, (OSError, tensorflow.errors.OpError) if tensorflow else OSError):
            raise
        file = str(getattr(error, "filename", None) or place)
        other = "" if file in str(place) else f"{file}: "
        reason = getattr(error, "strerror", None) or first_line(error)
        raise StoreError(f"{place} {problem}: {other}{reason}") from None


@contextlib.contextmanager
def _filesystem_of(url: FilePath) -> Iterator[tuple[Any, str]]:
    """Yields the file system of a URL and the name in it. Every error, also of the context, becomes an OSError."""
    from fsspec.core import url_to_fs  # takes 0.1 s

    url = local_path(url)
    try:
        filesystem, name = url_to_fs(url)
    except (ImportError, ValueError) as error:
        import tensorflow as tf

        from electra_tf.tensorflow_files import TensorFlowFiles

        if url.partition("://")[0] not in tf.io.gfile.get_registered_schemes():
            raise OSError(None, str(error), url) from None
        filesystem, name = TensorFlowFiles(), url.rstrip("/")
    try:
        filesystem.invalidate_cache()
        yield filesystem, name
    except OSError:
        raise
    except Exception as error:  # each store has its own exceptions, for example for missing credentials
        raise OSError(None, f"{type(error).__name__}: {first_line(error)}", url) from error


def _info(path: FilePath) -> dict[str, Any]:
    """The `type` and `size` of what is at a path; empty if nothing is there."""
    with store_errors(path, "cannot be reached"):
        try:
            if not is_remote(path):
                return {"type": "directory" if os.path.isdir(path) else "file", "size": os.stat(path).st_size}
            with _filesystem_of(path) as (filesystem, name):
                return filesystem.info(name)
        except (FileNotFoundError, NotADirectoryError):
            return {}


def exists(path: FilePath) -> bool:
    """Whether a file or directory exists at `path`. Raises: StoreError: the store cannot be reached."""
    return bool(_info(path))


def is_directory(path: FilePath) -> bool:
    """Whether a directory exists at `path`. Raises: StoreError: the store cannot be reached."""
    return _info(path).get("type") == "directory"


def size_of(path: FilePath) -> int | None:
    """The bytes of a file; None if it does not exist. Raises: StoreError: the store cannot be reached."""
    return _info(path).get("size")


def names_in(directory: FilePath) -> list[str]:
    """The sorted names of the files and directories in a directory; none if it does not exist.

    Raises: StoreError: the store cannot be reached. (An empty list would hide the checkpoints of a run.)
    """
    with store_errors(directory, "cannot be read"), contextlib.suppress(FileNotFoundError):
        if not is_remote(directory):
            return sorted(os.listdir(directory)) if os.path.exists(directory) else []
        with _filesystem_of(directory) as (filesystem, name):
            # Some object stores also list the directory itself, as an empty object.
            entries = [entry.strip("/") for entry in filesystem.ls(name, detail=False)]
            return sorted(entry.rpartition("/")[2] for entry in entries if entry and entry != name.strip("/"))
    return []


class FileStatus(NamedTuple):
    """A file. `modified` (a time or a hash) changes when the file changes; "" if there is none."""

    path: str
    num_bytes: int
    modified: str


def matches(pattern: str) -> list[FileStatus]:
    """The files, without directories, that match a glob, sorted by path; `**` matches any directories.

    Raises: OSError: the store cannot be reached.
    """
    if not is_remote(pattern):
        found = [pattern] if os.path.isfile(pattern) else glob.glob(pattern, recursive=True)  # a name may have brackets
        paths = {path for path in found if os.path.isfile(path)}
        statuses = ((path, os.stat(path)) for path in sorted(paths))
        return [FileStatus(path, status.st_size, str(status.st_mtime_ns)) for path, status in statuses]
    with _filesystem_of(pattern) as (filesystem, glob_name):
        found = filesystem.glob(glob_name, detail=True)
    # `unstrip_protocol` would lose the host of hdfs://host:8020/.
    prefix = pattern.removesuffix(glob_name) if glob_name and pattern.endswith(glob_name) else None
    return [
        FileStatus(
            filesystem.unstrip_protocol(name) if prefix is None else prefix + name,
            int(info["size"] or 0),
            next((str(info[field]) for field in _VERSIONS if info.get(field) is not None), ""),
        )
        for name, info in sorted(found.items())
        if info["type"] == "file"
    ]


def open_binary(path: FilePath) -> BinaryIO:
    """Opens a file for reading from any offset. Raises: OSError."""
    if not is_remote(path):
        return open(path, "rb")
    with _filesystem_of(path) as (filesystem, name):
        return filesystem.open(name, "rb")


def read_bytes(path: FilePath) -> bytes | None:
    """The content of a file; None if it does not exist. Raises: StoreError: it cannot be read."""
    with store_errors(path, "cannot be read"), contextlib.suppress(FileNotFoundError):
        if not is_remote(path):
            with open(path, "rb") as stream:
                return stream.read()
        with _filesystem_of(path) as (filesystem, name):
            return filesystem.cat_file(name)
    return None


def read_json(path: FilePath) -> dict[str, Any]:
    """The JSON object in a file; empty if the file does not exist. Raises: DamagedFile: it holds no JSON object."""
    content = read_bytes(path)
    try:
        values = {} if content is None else json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: {first_line(error)}") from None
    if not isinstance(values, dict):
        raise DamagedFile(f"{path} is damaged: expected a JSON object")
    return values


def read_rewritten(path: FilePath, read: Callable[[FilePath], dict[str, Any]] = read_json) -> dict[str, Any]:
    """The values in a file that each call of a run writes anew; empty if it is damaged, which is logged once."""
    try:
        return read(path)
    except DamagedFile as error:
        _warn_once(f"{error}; nothing is compared with it, and a call that trains writes it anew")
        return {}


@contextlib.contextmanager
def replaced_file(
    path: FilePath, scratch_dir: FilePath | None = None, partial: FilePath | None = None
) -> Iterator[Path]:
    """Yields the path of a local file to write, which replaces `path` at the end of the block, atomically.

    Args:
        scratch_dir: the directory of the local file if `path` is a URL; None: the system's for temporary files.
        partial: the local file if `path` is local; None: a new one beside it, as others may write the same `path`.
    Raises: OSError: it cannot be written. Then, or if the power fails, the old file stays.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory(dir=scratch_dir) as directory:
            yield (file := Path(directory) / "file")
            with _filesystem_of(path) as (filesystem, name):
                if _is_in_object_store(path):
                    filesystem.put_file(str(file), name)
                    return
                uploaded = partial_name(name)
                try:
                    filesystem.put_file(str(file), uploaded)
                    filesystem.mv(uploaded, name)
                except BaseException:
                    with contextlib.suppress(Exception):  # the first error is the one to report
                        filesystem.rm_file(uploaded)
                    raise
        return
    partial = Path(partial or partial_name(path))
    try:
        yield partial
        sync(partial)
        os.replace(partial, path)
        sync(os.path.dirname(path) or ".")
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first error is the one to report
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or os.fspath(path)  # a full disk has none
        raise


def partial_name(path: FilePath) -> str:
    """A unique name for an incomplete file."""
    return f"{os.fspath(path)}.{uuid.uuid4().hex}.partial"


def _is_in_object_store(url: FilePath) -> bool:
    return os.fspath(url).partition("://")[0] in _OBJECT_STORES


def write_atomically(path: FilePath, content: bytes) -> None:
    """Writes a file; if that fails, or the power, the old file stays. Raises: StoreError: it cannot be written."""
    directory, name = os.path.split(path)
    partial = os.path.join(directory, f".{name}.tmp")
    with store_errors(path, "cannot be written"), replaced_file(path, partial=partial) as file:
        file.write_bytes(content)


def sync(path: FilePath) -> None:
    """Returns when the content of a local file, or the names in a local directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def remove(path: FilePath) -> None:
    """Removes a file, a directory with its content, or a link without its target, if there is one. Raises: OSError."""
    if not is_remote(path):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.remove(path)
        return
    is_tree = is_directory(path)
    with contextlib.suppress(FileNotFoundError), _filesystem_of(path) as (filesystem, name):
        filesystem.rm(name, recursive=True) if is_tree else filesystem.rm_file(name)


def make_directory(path: FilePath) -> None:
    """Makes a directory and its parents if they do not exist. Raises: OSError.

    An object store needs none; a file is written there and removed again, to see whether there is such a bucket.
    """
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)
    elif not _is_in_object_store(path):
        with _filesystem_of(path) as (filesystem, name):
            filesystem.makedirs(name, exist_ok=True)
    elif not is_directory(path):  # else it may hold the probe of a writer who may neither remove nor replace files
        probe = os.path.join(path, PROBE_FILE)
        with replaced_file(probe) as file:
            file.write_bytes(b"")
        with contextlib.suppress(OSError):
            remove(probe)


@contextlib.contextmanager
def written_whole(directory: FilePath) -> Iterator[str]:
    """Fills a new or empty directory when a `with` block ends; if the block fails, the directory stays as it was.

    The block writes to another directory, which the next call removes after a kill: beside a new one, and inside an
    empty one, which may be a mounted disk. A remote store cannot rename a directory, so the block writes in place.

    Yields: the directory to write to.
    Raises: UserError: a directory cannot be made or renamed.
    """
    place = directory = os.fspath(directory) if is_remote(directory) else os.path.normpath(directory)
    is_new = not os.path.isdir(directory)
    try:
        if not is_remote(directory):
            parent, name = os.path.split(directory)
            place = os.path.join(parent, f".{name}{UNFINISHED}") if is_new else os.path.join(directory, UNFINISHED)
            with store_errors(directory, "cannot be written"):
                remove(place)
                os.makedirs(place)
        yield place
        with store_errors(directory, "cannot be written"):
            if is_new and place != directory:
                os.rename(place, directory)
            elif place != directory:
                for name in os.listdir(place):
                    os.rename(os.path.join(place, name), os.path.join(directory, name))
                os.rmdir(place)
    except BaseException:
        with contextlib.suppress(UserError, OSError):
            remove(place)
        raise


@contextlib.contextmanager
def locked_file(path: FilePath) -> Iterator[int]:
    """Locks a local directory, or a local file, which is created if missing. Yields its descriptor.

    The lock ends with the process at the latest. On a file system without locks, only a warning is logged.

    Raises: BlockingIOError: another process holds the lock. OSError: the path cannot be opened.
    """
    # A network file system only locks files that are open for writing. A directory cannot be opened for writing.
    descriptor = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            logger.warning("%s: this file system has no locks; make sure that no other process uses it", path)
        yield descriptor
    finally:
        os.close(descriptor)
