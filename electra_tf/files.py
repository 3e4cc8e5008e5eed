"""The one reader and writer of files: on this machine, or at a URL that TensorFlow reads (`gs://`, `ram://`).

What a file system answers becomes a UserError of one line here, so that no caller has to word it. Local paths need no
TensorFlow. (The data builder also reads stores that TensorFlow does not know: see `data_prep.storage`.)
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import sys
from collections.abc import Iterator

from electra_tf.config.errors import UserError, first_line

logger = logging.getLogger(__name__)

# What a file system without locks answers.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)


def is_remote(path: str | os.PathLike) -> bool:
    """Whether a path is a URL."""
    return "://" in os.fspath(path)


@contextlib.contextmanager
def store_errors(place: str | os.PathLike, problem: str) -> Iterator[None]:
    """Turns errors of a file system, local or TensorFlow's, into a UserError: `place` `problem`: the reason.

    Args:
        place: the path, or FLAG=PATH.
        problem: "cannot be read", for example.
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
    """Whether there is such a file or directory. Raises: UserError: its file system does not answer."""
    with store_errors(path, "cannot be reached"):
        if not is_remote(path):
            return os.path.exists(path)
        import tensorflow as tf

        try:
            tf.io.gfile.stat(path)  # on some stores, `gfile.exists` takes every error for a no
        except (tf.errors.NotFoundError, tf.errors.FailedPreconditionError):  # the second one: below a file
            return False
        return True


def names_in(directory: str | os.PathLike) -> list[str]:
    """The names of the files and directories in a directory; none if it does not exist.

    Raises: UserError: its file system does not answer: a run must not look like one without checkpoints then.
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
    """The content of a file; None if there is no file. Raises: UserError: it cannot be read."""
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
    """The JSON object in a file; empty if there is no file. Raises: UserError: the file holds something else."""
    content = read_bytes(path)
    try:
        values = {} if content is None else json.loads(content)
        json.dumps(values, ensure_ascii=False).encode()  # fails for half a surrogate pair, which no file can hold
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {first_line(error)}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is damaged: expected a JSON object")
    return values


def write_atomically(path: str | os.PathLike, content: bytes) -> None:
    """Writes a whole file or, if that fails, leaves the old one. Raises: UserError: it cannot be written."""
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
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


@contextlib.contextmanager
def locked_file(path: str | os.PathLike) -> Iterator[int]:
    """Locks a local file, which is made if need be, or a directory, for this process, and gives its descriptor.

    The operating system ends the lock with the process. On a file system without locks this only logs a warning.

    Raises: BlockingIOError: another process holds it. OSError: it cannot be opened.
    """
    # A network file system only locks what is open for writing; a directory cannot be.
    descriptor = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            logger.warning("%s: this file system has no locks; make sure that no other process uses it", path)
        yield descriptor
    finally:
        os.close(descriptor)
