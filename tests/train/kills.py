"""Ends a run as a kill would: in this process at a call of a function, or a process at a moment that its files show."""

import contextlib
import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from electra_tf.train.reporting import Reporter


class Killed(BaseException):
    """In place of a kill: nothing is closed or flushed afterwards."""


@contextlib.contextmanager
def killed_at(owner: Any, name: str, number: int = 1, when: str = "after") -> Iterator[None]:
    """Ends the block before or after a call, counted from 1, of a function of a module or a class."""
    original, calls = getattr(owner, name), itertools.count(1)

    def killing(*arguments, **options):
        is_last = next(calls) == number
        if is_last and when == "before":
            raise Killed
        result = original(*arguments, **options)
        if is_last:
            raise Killed
        return result

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        patched.setattr(owner, name, killing)
        patched.setattr(Reporter, "close", lambda self: None)
        yield


def wait_until(is_reached: Callable[[], bool], process: subprocess.Popen, log: Path, seconds: float = 300.0) -> None:
    """Waits for a moment of a process that still runs then; it fails with the end of its log."""
    deadline = time.monotonic() + seconds
    while not is_reached():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.0005)
