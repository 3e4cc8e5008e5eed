"""Reads and writes the files of a build: local, or at a URL (`gs://`, `s3://`, `hdfs://`, ...) through fsspec.

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

# Stores with atomic uploads and without directories. (`makedirs` could create a bucket with a mistyped name.)
_OBJECT_STORES = frozenset({"gs", "gcs", "s3", "s3a", "az", "abfs", "abfss", "oss"})

# The names by which file systems describe the version of a file, the most reliable first.
_VERSIONS = ("etag", "ETag", "generation", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "created")


class FileStatus(NamedTuple):
    """A file. `modified` (a time or a hash) changes when the file changes; "" if there is none."""

    path: str
    num_bytes: int
    modified: str


@contextlib.contextmanager
def _filesystem_of(url: str) -> Iterator[tuple["AbstractFileSystem", str]]:
    """Yields the file system of a URL and the path in it. Every error inside the context becomes an OSError.

    Raises: UserError: the protocol is unknown, or its package is not installed.
    """
    from fsspec.core import url_to_fs  # takes 0.1 s

    try:
        filesystem, name = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UserError(f"{url}: {error}") from None
    try:
        yield filesystem, name
    except OSError:
        raise
    except Exception as error:  # each store has its own exceptions, for example for missing credentials
        raise OSError(None, f"{type(error).__name__}: {first_line(error)}", url) from error


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


def names_in(directory: str | os.PathLike) -> list[str]:
    """Returns the sorted names of the files and directories in a directory; none if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        if not is_remote(directory):
            return sorted(os.listdir(directory))
        with _filesystem_of(str(directory)) as (filesystem, name):
            filesystem.invalidate_cache()
            found = filesystem.ls(name, detail=False)
        # Some object stores also list the directory itself, as an empty object.
        entries = (entry.rstrip("/") for entry in found)
        return sorted(entry.rpartition("/")[2] for entry in entries if entry.strip("/") != name.strip("/"))
    return []


def size_of(path: str | os.PathLike) -> int | None:
    """Returns the size of a file in bytes, or None if it does not exist."""
    try:
        if not is_remote(path):
            return os.path.getsize(path)
        with _filesystem_of(str(path)) as (filesystem, name):
            filesystem.invalidate_cache()
            return filesystem.size(name)
    except FileNotFoundError:
        return None


def open_binary(path: str | os.PathLike) -> BinaryIO:
    """Opens a file for reading from any offset."""
    if not is_remote(path):
        return open(path, "rb")
    with _filesystem_of(str(path)) as (filesystem, name):
        return filesystem.open(name, "rb")


def read_bytes(path: str | os.PathLike) -> bytes:
    """Returns the content of a file."""
    if not is_remote(path):
        return Path(path).read_bytes()
    with _filesystem_of(str(path)) as (filesystem, name):
        return filesystem.cat_file(name)


def write_bytes(path: str | os.PathLike, content: bytes) -> None:
    """Writes or replaces a file, atomically."""
    with replaced(path) as file:
        file.write_bytes(content)


@contextlib.contextmanager
def replaced(path: str | os.PathLike, scratch_dir: Path | None = None) -> Iterator[Path]:
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


def partial_name(path: str | os.PathLike) -> str:
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


def remove(path: str | os.PathLike) -> None:
    """Removes a file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        if not is_remote(path):
            os.remove(path)
            return
        with _filesystem_of(str(path)) as (filesystem, name):
            filesystem.rm_file(name)


def make_directory(path: str | os.PathLike) -> None:
    """Makes a directory and its parents if they do not exist; object stores need none."""
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)
    elif not _is_in_object_store(str(path)):
        with _filesystem_of(str(path)) as (filesystem, name):
            filesystem.makedirs(name, exist_ok=True)
