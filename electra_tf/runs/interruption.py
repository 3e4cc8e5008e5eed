"""Signals that ask a run to end: a preempted machine's SIGTERM, the keyboard's SIGINT, a closed terminal's SIGHUP.

The first one has the run end at its next step with a checkpoint; a second one, or one that finds nothing new to save
(while the model is built, or its first step compiled), ends the process at once. Either way nothing on disk is torn.

A handler in Python cannot do this: it runs on the main thread, which sits in TensorFlow for all the steps of a loop on
the device. The interpreter's own handler in C writes the signal's number to a file descriptor at once, whatever thread
it meets, and a thread of ours waits there.

TensorFlow's `PreemptionCheckpointHandler` is not used: it looks between two calls of its `run` from Python, so a loop
of many steps on the device would be one call to it, and it saves with a manager and a directory of its own.
"""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupted(Exception):
    """A run ended early, as a signal asked, with everything saved. `exit_code` is the shell's for that signal."""

    def __init__(self, signal_number: int):
        super().__init__(f"ended by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number


class Interruption:
    """Listens for signals while it is entered, from the main thread; one that is never entered hears nothing."""

    def __init__(self):
        self._signal_number: int | None = None
        self._request_stop: Callable[[], None] | None = None
        self._has_progress: Callable[[], bool] | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._signals: tuple[signal.Signals, ...] = ()

    def __enter__(self) -> "Interruption":
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._previous_descriptor = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        # `nohup` has SIGHUP ignored, and means it.
        ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._signals = tuple(number for number in _SIGNALS if number is not signal.SIGHUP or not ignores_hangup)
        self._previous_handlers = [signal.getsignal(number) for number in self._signals]
        self._put_handlers()
        self._thread = threading.Thread(target=self._listen, name="interruption", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        signal.set_wakeup_fd(self._previous_descriptor)
        for number, handler in zip(self._signals, self._previous_handlers, strict=True):
            signal.signal(number, handler)
        self._writer.close()  # ends the thread
        self._thread.join()
        self._thread = None
        self._reader.close()

    @contextlib.contextmanager
    def deferred(self, request_stop: Callable[[], None], has_progress: Callable[[], bool]) -> Iterator[None]:
        """Has the first signal ask for the end, for as long as this lasts, instead of ending the process.

        Args:
            request_stop: called from another thread; must make the run end at its next step and raise `interrupted()`.
            has_progress: whether anything happened that the last checkpoint does not hold; called from that thread too.
        """
        if self._thread is not None:
            self._put_handlers()
        with self._lock:
            self._request_stop, self._has_progress = request_stop, has_progress
        try:
            yield
        finally:
            with self._lock:
                self._request_stop = self._has_progress = None

    def interrupted(self) -> Interrupted:
        """The exception that ends the run: of this process's signal, or of SIGTERM where another worker has it."""
        return Interrupted(self._signal_number or signal.SIGTERM)

    def _put_handlers(self) -> None:
        # TensorFlow's cluster runtime puts its own handler of SIGTERM in place when a worker starts.
        for number in self._signals:
            signal.signal(number, _leave_it_to_the_thread)

    def _listen(self) -> None:
        while received := self._reader.recv(1):
            if received[0] in self._signals:
                self._handle(signal.Signals(received[0]))

    def _handle(self, received: signal.Signals) -> None:
        with self._lock:
            if self._signal_number is not None:
                _end_now(received, "a second signal; ended at once, the run continues from its last checkpoint")
            if self._request_stop is None or not self._has_progress():
                _end_now(received, "ended at once, as there is nothing new to save")
            self._signal_number = received
            logger.info("%s: ending at the next step, with a checkpoint; once more ends it at once", received.name)
            self._request_stop()


def _leave_it_to_the_thread(number: int, frame) -> None:
    """In place of Python's own handlers: without one the interpreter would write to no descriptor."""


def _end_now(received: signal.Signals, why: str) -> None:
    logger.info("%s: %s", received.name, why)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(128 + received)  # the main thread may be deep in a compilation that no exception reaches
