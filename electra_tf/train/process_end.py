"""Ending a process in which TensorFlow still waits for another one."""

import atexit
import os
import sys


def end_without_teardown(exit_code: int) -> None:
    """Has the interpreter's exit end the process with `exit_code` at once, whatever TensorFlow's threads still do.

    They would be waited for: for ever where a TPU never answers, until the time-outs of a service where a worker died.
    """
    atexit.register(_end, exit_code)


def _end(exit_code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
