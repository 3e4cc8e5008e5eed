"""The errors that a command reports in one line, and the exit codes of all commands."""

import atexit
import difflib
import os
import re
import sys
from collections.abc import Iterable

EXIT_TRAINING_STOPPED = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141  # as of a process that SIGPIPE has ended


class UserError(Exception):
    """A mistake that the user can correct: a flag, a file, a config value, a directory.

    The message is one line: what was found, where, what was expected, what to do. Commands print it without a stack
    trace and exit with status 2. Errors that only a programmer can cause stay `assert` or the exception they are.
    """


class TrainingStopped(Exception):
    """A run that cannot continue though no input was wrong: its losses are no longer finite, for example.

    The message is one line: what happened, at which step, what usually causes it, what to do. Commands print it without
    a stack trace and exit with status 1. The newest checkpoint is from before.
    """


def first_line(error: Exception) -> str:
    """The first line of an error's message, without the nodes and operations that TensorFlow puts around it."""
    text = re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*", "", str(getattr(error, "message", None) or error)).strip()
    return text.splitlines()[0] if text else type(error).__name__


def did_you_mean(unknown: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: "; did you mean ...?", or the known names if none is similar."""
    names = sorted(map(str, known))
    match = close_name(unknown, names, likeness=0.5)
    return f"; did you mean {match}?" if match else f"; there are: {', '.join(names)}"


def close_name(unknown: str, known: Iterable[str], likeness: float = 0.8) -> str | None:
    """The known name most similar to an unknown one (difflib's ratio); None if no ratio reaches `likeness`."""
    return next(iter(difflib.get_close_matches(unknown, list(known), n=1, cutoff=likeness)), None)


def end_without_teardown(exit_code: int) -> None:
    """Makes the interpreter's exit end the process with `exit_code` at once, without waiting for TensorFlow's threads.

    They would wait for ever for a TPU that never answers, and until a service's time-out for a worker that died. A
    thread of the input that has called into Python may keep the interpreter from ending, or abort it.
    """
    atexit.register(_end, exit_code)


def _end(exit_code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
