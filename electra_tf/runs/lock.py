"""Keeps two processes from training in one directory."""

import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.files import is_remote
from electra_tf.files import read_bytes, write_atomically
from electra_tf.runs.directory import RunDirectory

logger = logging.getLogger(__name__)

# What a local filesystem without locks answers.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)


@contextlib.contextmanager
def locked(run: RunDirectory, force: bool = False) -> Iterator[None]:
    """Holds a run's directory, which must exist, for this process.

    Locally an operating system's lock goes with the process, however that ends. A remote store has none: a file says
    who holds the run and since when, and outlives a process that is killed; see `require_held`.

    Args:
        force: take a remote directory over from whoever the file names.
    Raises: UserError: if another process holds it, naming process and machine.
    """
    with _owner_file(run, force) if is_remote(run.path) else _flock(run):
        yield


def require_held(run: RunDirectory) -> None:
    """Asked before what would overwrite the work of another process.

    Raises: UserError: if another process has taken over a remote directory that this one held.
    """
    if run.owner is not None and (holder := read_bytes(run.lock_file)) != run.owner:
        raise UserError(
            f"{run.flag}={run.path} was taken over from this process by {_describe(holder or b'')}, with --force; "
            "stop one of the two: this one ends and writes nothing more"
        )


@contextlib.contextmanager
def _owner_file(run: RunDirectory, force: bool) -> Iterator[None]:
    holder = read_bytes(run.lock_file)
    if holder is not None and not force:
        raise UserError(
            f"{run.flag}={run.path} is held by {_describe(holder)}; if that process is gone (a preempted machine "
            "leaves its file), give --force to take the run over; else wait for it, or give another directory"
        )
    run.owner = _identify()
    write_atomically(run.lock_file, run.owner)
    try:
        yield
    finally:
        if read_bytes(run.lock_file) == run.owner:  # nobody has taken over
            tf.io.gfile.remove(run.lock_file)
        run.owner = None


@contextlib.contextmanager
def _flock(run: RunDirectory) -> Iterator[None]:
    try:
        # For writing: the lock of a network filesystem wants that.
        descriptor = os.open(run.lock_file, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(f"{run.flag}={run.path} cannot be written: {error.strerror}; give another one") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{run.flag}={run.path} is in use by {_describe(os.pread(descriptor, 1000, 0))}; wait for it, stop "
                "it, or give another one"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            logger.warning("%s: its filesystem has no locks; make sure that no second run uses it", run.path)
        with contextlib.suppress(OSError):  # the name is for a message only: a full disk must not refuse a run
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _identify(), 0)
        yield
    finally:
        os.close(descriptor)


def _identify() -> bytes:
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since}).encode()


def _describe(content: bytes) -> str:
    try:
        holder = json.loads(content)
        return f"process {holder['process']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
