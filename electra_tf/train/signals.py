"""Signals that end a run early: SIGTERM (a preempted machine), SIGINT (the keyboard), SIGHUP (a closed terminal).

SIGUSR1, SIGUSR2 and SIGXCPU are the warnings that schedulers send before the end, as Slurm, LSF and Grid Engine do; the
last one comes once a second.

The first signal ends the run at its next step, with a checkpoint. A second signal ends the process at once. The first
one also does if there is nothing new to save (the model is being built, or its first step compiled). Files stay whole
either way.

A Python handler would run too late, because it waits for the main thread, which is in TensorFlow for all the steps of
a loop on the device. The interpreter's own handler, in C, writes the signal's number to a file descriptor at once, and
a thread reads it there. TensorFlow's `PreemptionCheckpointHandler` also acts only between two such loops.
"""

import atexit
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

logger = logging.getLogger(__name__)

_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
_ONE_SIGNAL = 0.5  # seconds: `timeout` sends one to the process and one to its group
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *_WARNINGS)


class Interrupted(Exception):
    """A signal ended the run early, after a checkpoint. `exit_code` is 128 + the signal's number, as in a shell."""

    def __init__(self, signal_number: int):
        super().__init__(f"ended by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number


class Interruption:
    """A context manager that receives signals. Enter it on the main thread; until then, no signal is received.

    Args:
        of_process: False inside a user's program, such as a notebook: only SIGINT is received, and nothing ends the
            process. A step that is being compiled is completed, and outside `deferred` a KeyboardInterrupt is raised.

    Attributes:
        of_command: the one that receives the signals of this process; None outside a command.
    """

    of_command: "Interruption | None" = None

    def __init__(self, of_process: bool = True):
        self._of_process = of_process
        self._signal_number: int | None = None
        self._request_stop: Callable[[], None] | None = None
        self._has_progress: Callable[[], bool] = lambda: False
        self._lock = threading.Lock()
        # Empty outside the context.
        self._previous_handlers: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}
        self._received = 0.0  # when, on the monotonic clock

    def __enter__(self) -> "Interruption":
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._previous_descriptor = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        received = _SIGNALS if self._of_process else (signal.SIGINT,)
        self._previous_handlers = {number: signal.getsignal(number) for number in received}
        if self._previous_handlers.get(signal.SIGHUP) is signal.SIG_IGN:  # under `nohup`
            del self._previous_handlers[signal.SIGHUP]
        for number in self._previous_handlers:
            signal.signal(number, self._in_main_thread)
        self._thread = threading.Thread(target=self._listen, name="interruption", daemon=True)
        self._thread.start()
        if self._of_process:
            Interruption.of_command = self
        return self

    def __exit__(self, *_: object) -> None:
        if self._of_process:
            Interruption.of_command = None
        signal.set_wakeup_fd(self._previous_descriptor)
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._writer.close()  # ends the thread
        self._thread.join()
        self._previous_handlers = {}
        self._reader.close()

    @contextlib.contextmanager
    def deferred(self, request_stop: Callable[[], None], has_progress: Callable[[], bool]) -> Iterator[None]:
        """A context in which the first signal calls `request_stop` instead of ending the process.

        Args:
            request_stop: makes the run end at its next step and raise `interrupted()`. Called from another thread.
            has_progress: whether there is anything to save since the last checkpoint. Called from another thread.
        """
        with self._lock:
            self._request_stop, self._has_progress = request_stop, has_progress
        try:
            yield
        finally:
            with self._lock:
                self._request_stop, self._has_progress = None, lambda: False

    @property
    def has_signal(self) -> bool:
        """Whether a signal was received, perhaps too late to end anything."""
        return self._signal_number is not None

    def interrupted(self) -> Interrupted:
        """The exception for the received signal; for SIGTERM if only another worker received one."""
        return Interrupted(self._signal_number or signal.SIGTERM)

    def _in_main_thread(self, number: int, frame: object) -> None:
        """The interpreter writes to the descriptor only for signals that have a handler in Python."""
        if not self._of_process and self._request_stop is None:
            raise KeyboardInterrupt

    def _listen(self) -> None:
        while number := self._reader.recv(1):
            if number[0] not in self._previous_handlers:
                continue
            received = signal.Signals(number[0])
            with self._lock:
                if not self._of_process:
                    self._signal_number = received
                    if self._request_stop is not None:
                        logger.info("ending at the next step, with a checkpoint")
                        self._request_stop()
                    continue
                if self._signal_number is not None:
                    is_same = self._signal_number == received and time.monotonic() < self._received + _ONE_SIGNAL
                    if is_same or received in _WARNINGS:
                        continue
                    _end_now(received, "a second signal; ended at once, the run continues from its last checkpoint")
                if self._request_stop is None or not self._has_progress():
                    _end_now(received, "ended at once, as there is nothing new to save")
                self._signal_number, self._received = received, time.monotonic()
                again = "another one, but no warning, ends the run at once"
                logger.info("%s: ending at the next step, with a checkpoint; %s", received.name, again)
                self._request_stop()


def end_without_teardown(exit_code: int) -> None:
    """Ends the process with `exit_code` when the interpreter exits, without waiting for TensorFlow's threads.

    The threads would wait for ever for a TPU that does not answer, and until a time-out for a dead worker. An input
    thread that calls Python may also block or abort the interpreter's exit.
    """
    atexit.register(_end, exit_code)


def _end_now(received: signal.Signals, why: str) -> NoReturn:
    logger.info("%s: %s", received.name, why)
    _end(128 + received)  # no exception would reach the main thread in a compilation


def _end(exit_code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
