"""A disk that is full, for now: what could not be written is kept and written later, or the run says so in one line."""

import errno
import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import tensorflow as tf

logger = logging.getLogger(__name__)

# What Python and TensorFlow make of a disk that is full, gone, read-only or faulty. Their other errors are not the
# disk's.
DISK_ERRORS = (
    OSError,
    tf.errors.ResourceExhaustedError,
    tf.errors.DataLossError,
    tf.errors.NotFoundError,
    tf.errors.PermissionDeniedError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnknownError,
)

Item = TypeVar("Item")


class Backlog(Generic[Item]):
    """Writes things in their order; what the disk does not take waits, and goes first the next time.

    Args:
        write: writes one of them, and leaves no part of it behind when it raises.
    """

    def __init__(self, write: Callable[[Item], None]):
        self._write = write
        self._waiting: deque[Item] = deque()

    def put(self, item: Item) -> None:
        """Writes what waits and then `item`, if the disk takes it. The first that it refuses is warned of."""
        is_first = not self._waiting
        self._waiting.append(item)
        try:
            self.empty()
        except DISK_ERRORS as error:
            if is_first:
                logger.warning("a report could not be written (%s); it is kept for later", disk_reason(error))

    def empty(self) -> None:
        """Writes what waits. Raises: one of `DISK_ERRORS`: if the disk still refuses it."""
        while self._waiting:
            self._write(self._waiting[0])
            self._waiting.popleft()


def disk_reason(error: Exception) -> str:
    """The first line of an error, without the name of TensorFlow's operation."""
    if isinstance(error, OSError) and error.errno in errno.errorcode:
        return str(error.strerror)
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
