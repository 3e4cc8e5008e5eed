"""Keeps two processes from training in one directory."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.files import is_remote, locked_file, read_bytes, write_atomically
from electra_tf.runs.directory import RunDirectory


@contextlib.contextmanager
def locked(run: RunDirectory, force: bool = False) -> Iterator[None]:
    """Holds a run's directory, which must exist, for this process.

    On a local disk the operating system's lock ends with the process. A remote store has no locks: there a file names
    the process, its machine and its start. A killed process leaves the file; see `require_held`.

    Args:
        force: take over a remote directory from the process that its file names.
    Raises: UserError: if another process holds the directory; the message names it and its machine.
    """
    with _owner_file(run, force) if is_remote(run.path) else _flock(run):
        yield


def require_held(run: RunDirectory) -> None:
    """Call this before writing to a run. Raises: UserError: if another process has taken over its remote directory."""
    if run.owner is not None and (holder := read_bytes(run.lock_file)) != run.owner:
        raise UserError(
            f"{run.flag}={run.path} was taken over by {_describe(holder)} with --force; this process stops training"
        )


@contextlib.contextmanager
def _owner_file(run: RunDirectory, force: bool) -> Iterator[None]:
    holder = read_bytes(run.lock_file)
    if holder is not None and not force:
        raise UserError(
            f"{run.flag}={run.path} is held by {_describe(holder)}; if that process is gone (a preempted machine "
            "leaves its file), take the run over with --force; else wait, or give another directory"
        )
    run.owner = _identify()
    write_atomically(run.lock_file, run.owner)
    try:
        yield
    finally:
        if read_bytes(run.lock_file) == run.owner:  # not taken over
            tf.io.gfile.remove(run.lock_file)
        run.owner = None


@contextlib.contextmanager
def _flock(run: RunDirectory) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(locked_file(run.lock_file))
        except BlockingIOError:
            holder = _describe(read_bytes(run.lock_file))
            raise UserError(f"{run.flag}={run.path} is in use by {holder}; wait, or give another directory") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _identify(), 0)
        yield


def _identify() -> bytes:
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since}).encode()


def _describe(content: bytes | None) -> str:
    """The process that a lock file names."""
    try:
        holder = json.loads(content or b"")
        return f"process {holder['process']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError):  # it is being written
        return "another process"
