"""The errors that a command reports in one line, and the exit codes of all commands."""

import contextlib
import difflib
import os
import re
from collections.abc import Iterable, Iterator

EXIT_TRAINING_STOPPED = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141  # the shell's status for SIGPIPE

# What code that reads a file raises where it finds other contents than it expects.
_WRONG_CONTENTS: tuple[type[Exception], ...] = (
    *(ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError, EOFError, OSError),
)


class UserError(ValueError):
    """A mistake that the user can correct: a path, a flag, a setting, a column, a file format.

    The message is one line: what was found, where, what to do. Commands print it without a stack trace and exit with
    status 2. See "Errors" in docs/architecture.md.
    """


class TrainingStopped(Exception):
    """A run cannot continue although its input is right: for example, its losses are no longer finite.

    The message is one line: what happened, at which step, the usual cause, what to do. Commands print it without a
    stack trace and exit with status 1. The newest checkpoint is older than that step.
    """


def first_line(error: Exception) -> str:
    """The first line of an error's message, without the node and operation names that TensorFlow adds."""
    message = str(getattr(error, "message", None) or error)[:2000]  # it may quote a file of any size
    text = re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*", "", message).strip()
    return text.splitlines()[0] if text else type(error).__name__


@contextlib.contextmanager
def wrong_contents(place: str | os.PathLike[str], *of_libraries: type[Exception]) -> Iterator[None]:
    """Turns what reading wrong contents raises into a UserError: "PLACE cannot be read: KIND: REASON".

    Only around code that reads files from elsewhere: anywhere else such an error is a bug, and keeps its stack trace.

    Args:
        place: the file, or the folder.        of_libraries: errors that are none of Python's.
    """
    try:
        yield
    except UserError:
        raise
    except _WRONG_CONTENTS + of_libraries as error:
        raise UserError(f"{place} cannot be read: {type(error).__name__}: {first_line(error)}") from error


def did_you_mean(unknown: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: "; did you mean ...?", or known names if none is similar."""
    names = sorted(map(str, known))
    if match := close_name(unknown, names, cutoff=0.5):
        return f"; did you mean {match if match.split() == [match] else repr(match)}?"
    return f"; there are: {list_briefly(names, most=50)}"


def list_briefly(texts: Iterable[str], separator: str = ", ", most: int = 20) -> str:
    """The first texts for a message, and the number of the others."""
    texts = list(texts)
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more


def close_name(unknown: str, known: Iterable[str], cutoff: float = 0.8) -> str | None:
    """The known name most similar to an unknown one (difflib's ratio); None if all ratios are below `cutoff`."""
    return next(iter(difflib.get_close_matches(unknown, list(known), n=1, cutoff=cutoff)), None)
