"""Reads and writes files on this machine, and at URLs that TensorFlow reads, such as `gs://` and `ram://`.

Errors of a file system become one-line UserErrors. Local paths need no TensorFlow. (The data builder also reads
stores that TensorFlow does not support: see `data_prep.storage`.)
"""

import contextlib
import errno
import fcntl
import functools
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator

from electra_tf.config.errors import UserError, first_line

logger = logging.getLogger(__name__)
_warn_once = functools.cache(logger.warning)

HUB = "hf://"  # the beginning of the names of models of the Hugging Face Hub, see `electra_tf.weights.hub`
UNFINISHED = ".unfinished"  # the name of a directory, or the end of its name, until it is complete

_FILE_URL = re.compile("^file://[^/]*(?=/)")  # TensorFlow ignores the host
# Errors of a file system that has no locks, or cannot wait for its disk.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)


class DamagedFile(UserError):
    """A file does not hold what its writer has written: a power cut may leave it empty, or cut it off."""


def is_remote(path: str | os.PathLike) -> bool:
    """Whether a path is a URL."""
    return "://" in os.fspath(path)


def local_path(path: str | os.PathLike) -> str:
    """The path of a `file://` URL; another path or URL unchanged."""
    return _FILE_URL.sub("", os.fspath(path))


def absolute_path(path: str | os.PathLike) -> str:
    """A local path from the root on; a URL without its last slashes."""
    path = local_path(path)
    return path.rstrip("/") if is_remote(path) else os.path.abspath(path)


def is_hub(path: str | os.PathLike) -> bool:
    """Whether a path names a model of the Hugging Face Hub."""
    return os.fspath(path).startswith(HUB)


@contextlib.contextmanager
def store_errors(place: str | os.PathLike, problem: str) -> Iterator[None]:
    """Turns an error of a file system, local or TensorFlow's, into a UserError: "PLACE PROBLEM: REASON".

    Args:
        place: the path, or FLAG=PATH.
        problem: for example "cannot be read".
    """
    try:
        yield
    except OSError as error:
        other = f"{error.filename}: " if error.filename and str(error.filename) not in str(place) else ""
        raise UserError(f"{place} {problem}: {other}{error.strerror or first_line(error)}") from None
    except Exception as error:
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is None or not isinstance(error, tensorflow.errors.OpError):
            raise
        raise UserError(f"{place} {problem}: {first_line(error)}") from None


def exists(path: str | os.PathLike) -> bool:
    """Whether a file or directory exists at `path`. Raises: UserError: the store cannot be reached."""
    with store_errors(path, "cannot be reached"):
        if not is_remote(path):
            return os.path.exists(path)
        import tensorflow as tf

        try:
            tf.io.gfile.stat(path)  # on some stores, `gfile.exists` returns False for every error
        except (tf.errors.NotFoundError, tf.errors.FailedPreconditionError):  # FailedPrecondition: below a file
            return False
        return True


def names_in(directory: str | os.PathLike) -> list[str]:
    """The names of the files and directories in a directory; none if it does not exist.

    Raises: UserError: the store cannot be reached. (An empty list would hide the checkpoints of a run.)
    """
    with store_errors(directory, "cannot be read"):
        if not is_remote(directory):
            return os.listdir(directory) if os.path.exists(directory) else []
        import tensorflow as tf

        try:
            return [name.rstrip("/") for name in tf.io.gfile.listdir(directory)]
        except tf.errors.NotFoundError:
            return []


def read_bytes(path: str | os.PathLike) -> bytes | None:
    """The content of a file; None if it does not exist. Raises: UserError: it cannot be read."""
    with store_errors(path, "cannot be read"):
        if not is_remote(path):
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as stream:
                return stream.read()
            return None
        import tensorflow as tf

        try:
            with tf.io.gfile.GFile(path, "rb") as stream:
                return stream.read()
        except tf.errors.NotFoundError:
            return None


def read_json(path: str | os.PathLike) -> dict:
    """The JSON object in a file; empty if the file does not exist. Raises: DamagedFile: it holds no JSON object."""
    content = read_bytes(path)
    try:
        values = {} if content is None else json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: {first_line(error)}") from None
    if not isinstance(values, dict):
        raise DamagedFile(f"{path} is damaged: expected a JSON object")
    return values


def read_rewritten(path: str | os.PathLike, read: Callable[[str | os.PathLike], dict] = read_json) -> dict:
    """The values in a file that each call of a run writes anew; empty if it is damaged, which is logged once."""
    try:
        return read(path)
    except DamagedFile as error:
        _warn_once(f"{error}; nothing is compared with it, and a call that trains writes it anew")
        return {}


def write_atomically(path: str | os.PathLike, content: bytes) -> None:
    """Writes a file; if that fails, or the power, the old file stays. Raises: UserError: it cannot be written."""
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.tmp")
    with store_errors(path, "cannot be written"):
        if not is_remote(path):
            _write_local(temporary, path, content)
            return
        import tensorflow as tf

        try:
            with tf.io.gfile.GFile(temporary, "wb") as stream:
                stream.write(content)
            tf.io.gfile.rename(temporary, path, overwrite=True)
        except tf.errors.OpError:
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.remove(temporary)
            raise


def _write_local(temporary: str, path: str | os.PathLike, content: bytes) -> None:
    try:
        with open(temporary, "wb") as stream:
            stream.write(content)
        sync(temporary)
        os.replace(temporary, path)
        sync(os.path.dirname(path) or ".")
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


def sync(path: str | os.PathLike) -> None:
    """Returns when the content of a local file, or the names in a local directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def remove(path: str | os.PathLike) -> None:
    """Removes a file, a directory with its content, or a link without its target, if there is one."""
    if not is_remote(path):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.remove(path)
        return
    import tensorflow as tf

    with contextlib.suppress(tf.errors.NotFoundError):  # ram:// raises this after it has removed a whole directory
        tf.io.gfile.rmtree(path) if tf.io.gfile.isdir(path) else tf.io.gfile.remove(path)


@contextlib.contextmanager
def written_whole(directory: str | os.PathLike) -> Iterator[str]:
    """Fills a new or empty directory when a `with` block ends; if the block fails, the directory stays as it was.

    The block writes to another directory, which the next call removes after a kill: beside a new one, and inside an
    empty one, which may be a mounted disk. A remote store cannot rename a directory, so the block writes in place.

    Yields: the directory to write to.
    Raises: UserError: a directory cannot be made or renamed.
    """
    directory = os.fspath(directory) if is_remote(directory) else os.path.normpath(directory)
    parent, name = os.path.split(directory)
    is_new, place = not os.path.isdir(directory), directory
    if not is_remote(directory):
        place = os.path.join(parent, f".{name}{UNFINISHED}") if is_new else os.path.join(directory, UNFINISHED)
    try:
        if place != directory:
            with store_errors(directory, "cannot be written"):
                remove(place)
                os.makedirs(place)
        yield place
        if place != directory:
            with store_errors(directory, "cannot be written"):
                _rename(place, directory, is_new)
    except BaseException:
        with contextlib.suppress(UserError), store_errors(place, "cannot be removed"):
            remove(place)
        raise


def _rename(place: str, directory: str, is_new: bool) -> None:
    """Renames `place` to a directory that is new, or moves its content to one that is empty."""
    if is_new:
        os.rename(place, directory)
        return
    for name in os.listdir(place):
        os.rename(os.path.join(place, name), os.path.join(directory, name))
    os.rmdir(place)


@contextlib.contextmanager
def locked_file(path: str | os.PathLike) -> Iterator[int]:
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
