"""Reads and writes the files of a build: local, or at a URL (`gs://`, `s3://`, `hdfs://`, ...), through fsspec.

Writes are atomic. A failure is an OSError; an unknown protocol or a missing package is a UserError. Listings are not
cached, so that they show the files that other processes have written.
"""

import contextlib
import glob
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from electra_tf.config.errors import UserError, first_line
from electra_tf.files import is_remote

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

FilePath = str | os.PathLike[str]

# Stores with atomic uploads and without directories. (`makedirs` could create a bucket with a mistyped name.)
_OBJECT_STORES = frozenset({"gs", "gcs", "s3", "s3a", "az", "abfs", "abfss", "oss"})

PROBE_FILE = ".electra_tf_probe"  # what is written to an object store to see whether it can be

# The names by which file systems describe the version of a file, the most reliable first.
_VERSIONS = (
    *("etag", "ETag", "generation", "md5Hash", "blob_id"),
    *("mtime", "LastModified", "last_modified", "updated", "created"),
)


class FileStatus(NamedTuple):
    """A file. `modified` (a time or a hash) changes when the file changes; "" if there is none."""

    path: str
    num_bytes: int
    modified: str


@contextlib.contextmanager
def _filesystem_of(path: FilePath) -> Iterator[tuple["AbstractFileSystem", str]]:
    """Yields the file system of a path and the name in it. Every error inside the context becomes an OSError.

    Raises: UserError: the protocol of a URL is unknown, or its package is not installed.
    """
    from fsspec.core import url_to_fs  # takes 0.1 s
    from fsspec.implementations.local import LocalFileSystem

    path = os.fspath(path)
    try:
        filesystem, name = url_to_fs(path) if is_remote(path) else (LocalFileSystem(), path)
    except (ImportError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None
    try:
        yield filesystem, name
    except OSError:
        raise
    except Exception as error:  # each store has its own exceptions, for example for missing credentials
        raise OSError(None, f"{type(error).__name__}: {first_line(error)}", path) from error


def matches(pattern: str) -> list[FileStatus]:
    """Returns the files, without directories, that match a glob, sorted by path; `**` matches any directories."""
    if not is_remote(pattern):
        found = [pattern] if os.path.isfile(pattern) else glob.glob(pattern, recursive=True)  # a name may have brackets
        paths = {path for path in found if os.path.isfile(path)}
        statuses = ((path, os.stat(path)) for path in sorted(paths))
        return [FileStatus(path, status.st_size, str(status.st_mtime_ns)) for path, status in statuses]
    with _filesystem_of(pattern) as (filesystem, glob_name):
        filesystem.invalidate_cache()
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


def names_in(directory: FilePath) -> list[str]:
    """Returns the sorted names of the files and directories in a directory; none if it does not exist."""
    try:
        with _filesystem_of(directory) as (filesystem, name):
            filesystem.invalidate_cache()
            # Some object stores also list the directory itself, as an empty object.
            entries = [entry.strip("/") for entry in filesystem.ls(name, detail=False)]
            return sorted(entry.rpartition("/")[2] for entry in entries if entry and entry != name.strip("/"))
    except FileNotFoundError:
        return []


def size_of(path: FilePath) -> int | None:
    """Returns the size of a file in bytes, or None if it does not exist."""
    try:
        with _filesystem_of(path) as (filesystem, name):
            filesystem.invalidate_cache()
            return filesystem.size(name)
    except FileNotFoundError:
        return None


def open_binary(path: FilePath) -> BinaryIO:
    """Opens a file for reading from any offset."""
    if not is_remote(path):
        return open(path, "rb")  # faster than through fsspec
    with _filesystem_of(path) as (filesystem, name):
        return filesystem.open(name, "rb")


def read_bytes(path: FilePath) -> bytes:
    """Returns the content of a file."""
    with _filesystem_of(path) as (filesystem, name):
        return filesystem.cat_file(name)


def write_bytes(path: FilePath, content: bytes) -> None:
    """Writes or replaces a file, atomically."""
    with replace_file(path) as file:
        file.write_bytes(content)


@contextlib.contextmanager
def replace_file(path: FilePath, scratch_dir: Path | None = None) -> Iterator[Path]:
    """Yields the path of a local file to write, which replaces `path` at the end of the block, atomically.

    Args:
        scratch_dir: directory of the local file if `path` is a URL (None: the system's temporary directory).
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory(dir=scratch_dir) as directory:
            yield Path(directory) / "file"
            _upload(os.path.join(directory, "file"), str(path))
        return
    partial = Path(partial_name(path))
    try:
        yield partial
        synchronize(partial)
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)  # a full disk has none
        raise


def synchronize(path: Path) -> None:
    """Waits until a file's content is on the disk: after a power cut, a renamed file may else be empty."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def partial_name(path: FilePath) -> str:
    """Returns a unique name for an incomplete file."""
    return f"{path}.{uuid.uuid4().hex}.partial"


def _upload(local_file: str, url: str) -> None:
    with _filesystem_of(url) as (filesystem, name):
        if _is_in_object_store(url):
            filesystem.put_file(local_file, name)
            return
        partial = partial_name(name)
        try:
            filesystem.put_file(local_file, partial)
            filesystem.mv(partial, name)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to report
                filesystem.rm_file(partial)
            raise


def _is_in_object_store(url: str) -> bool:
    return url.partition("://")[0] in _OBJECT_STORES


def remove(path: FilePath) -> None:
    """Removes a file if it exists."""
    with contextlib.suppress(FileNotFoundError), _filesystem_of(path) as (filesystem, name):
        filesystem.rm_file(name)


def make_directory(path: FilePath) -> None:
    """Makes a directory and its parents if they do not exist. Object stores need none, but the bucket has to exist."""
    if _is_in_object_store(str(path)):
        probe = os.path.join(path, PROBE_FILE)
        if size_of(probe) is None:  # else it was left by a writer who may neither remove nor replace files
            write_bytes(probe, b"")
        with contextlib.suppress(OSError):
            remove(probe)
        return
    with _filesystem_of(path) as (filesystem, name):
        filesystem.makedirs(name, exist_ok=True)
