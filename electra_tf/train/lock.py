"""The lock of a run's directory, so that one process trains in it."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator

from electra_tf.config.errors import UserError
from electra_tf.files import is_remote, locked_file, read_bytes
from electra_tf.train.run_directory import RunDirectory


@contextlib.contextmanager
def locked(run: RunDirectory) -> Iterator[None]:
    """Holds a run's directory, which must exist, for this process, by the operating system's lock.

    A remote store has no locks: there nothing keeps a second process from training in the same directory.

    Raises: UserError: if another process holds the directory; the message names it and its machine.
    """
    if is_remote(run.path):
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(locked_file(run.lock_file))
        except BlockingIOError:
            holder = "another process"
            with contextlib.suppress(ValueError, KeyError):  # it is being written
                owner = json.loads(read_bytes(run.lock_file) or b"")
                holder = f"process {owner['process']} on {owner['host']} since {owner['since']}"
            raise UserError(f"{run.flag}={run.path} is in use by {holder}; wait, or give another directory") from None
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        owner = json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)
        yield
