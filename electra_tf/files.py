"""Files on any filesystem that TensorFlow reads; what such a filesystem answers becomes a UserError."""

import contextlib
import json
import os
from collections.abc import Iterator

import tensorflow as tf

from electra_tf.config.errors import UserError, first_line


@contextlib.contextmanager
def store_errors(place: str, what: str, remedy: str) -> Iterator[None]:
    """Raises: UserError: for each error of TensorFlow inside: `place` `what`: the reason; `remedy`."""
    try:
        yield
    except tf.errors.UnimplementedError:
        protocol = place.rpartition("=")[2].partition("://")[0]
        raise UserError(
            f"{place}: TensorFlow has no file system for {protocol}://; give a local one or gs://"
        ) from None
    except tf.errors.OpError as error:
        raise UserError(f"{place} {what}: {first_line(error)}; {remedy}") from None


def exists(path: str) -> bool:
    """Whether there is such a file or directory. Raises: UserError: if its filesystem does not answer."""
    with store_errors(path, "cannot be reached", "mend that or give another path"):
        try:
            tf.io.gfile.stat(path)  # `gfile.exists` takes every error for a no on some filesystems
        except (tf.errors.NotFoundError, tf.errors.FailedPreconditionError):  # the second below what is a file
            return False
    return True


def names_in(directory: str) -> list[str]:
    """What a directory holds; nothing if there is none.

    Raises: UserError: if its filesystem does not answer: that must never pass for a run without checkpoints.
    """
    with store_errors(directory, "cannot be read", "see that it can be reached"):
        try:
            return [name.rstrip("/") for name in tf.io.gfile.listdir(directory)]
        except tf.errors.NotFoundError:
            return []


def read_bytes(path: str | os.PathLike) -> bytes | None:
    """The content of a file; None if there is no file. Raises: UserError: if it cannot be read."""
    with store_errors(os.fspath(path), "cannot be read", "a readable file belongs there"):
        try:
            with tf.io.gfile.GFile(path, "rb") as stream:
                return stream.read()
        except tf.errors.NotFoundError:
            return None


def write_atomically(path: str, content: bytes) -> None:
    """Writes a file as a whole or not at all. Raises: UserError: if the filesystem does not take it."""
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.tmp")
    try:
        with store_errors(path, "cannot be written", "make room there or give another place"):
            with tf.io.gfile.GFile(temporary, "wb") as stream:
                stream.write(content)
            tf.io.gfile.rename(temporary, path, overwrite=True)
    except UserError:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)
        raise


def read_json(path: str) -> dict:
    """The JSON object in a file; empty if there is no file.

    Raises: UserError: if it holds anything else, half a surrogate pair (which no file of ours can hold), or is nested
        too deep to be read.
    """
    content = read_bytes(path)
    try:
        values = {} if content is None else json.loads(content)
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise UserError(
            f"{path} is damaged: expected a JSON object of valid Unicode; copy the file again, or from a backup"
        )
    return values
