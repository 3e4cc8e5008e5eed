"""Keeps two runs out of one directory."""

import contextlib
import errno
import json
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from electra_tf.config.errors import UserError

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"

# What a file system without locks answers.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds a run's directory for this process. The lock goes with the process, however that ends.

    Args:
        directory: must exist. A file in it names the process that has it.
    Raises: UserError: if another process has it, naming its number and machine.
    """
    import fcntl

    try:
        # For writing: the lock of a network file system wants that.
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(f"--model_dir={directory} cannot be written: {error.strerror}; give another one") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"--model_dir={directory} is in use by {_holder(descriptor)}; wait for it, stop it, or give another one"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            logger.warning("%s: its file system has no locks; see that no second run uses it", directory)
        _name_holder(descriptor)
        yield
    finally:
        os.close(descriptor)


def _name_holder(descriptor: int) -> None:
    holder = json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode()
    # A full disk is no reason to refuse a run: the name is for a message only.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder, 0)


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 1000, 0))
        return f"process {holder['process']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
