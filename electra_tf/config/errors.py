"""The exceptions that a script reports in one line: what a user can mend, and a training that must not go on."""


class UserError(Exception):
    """Something the user gave is wrong: a flag, a file, a config value, a directory.

    The message is one line: what was found, where, what was expected, what to do. The scripts print it without a stack
    trace and exit with status 2. Errors that only a programmer can cause stay `assert` or the exception they are.
    """

    exit_code = 2


class TrainingStopped(Exception):
    """A run that cannot go on, though nobody gave anything wrong: its losses are no longer finite, say.

    The message is one line: what happened, at which step, what usually causes it, what to do. The scripts print it
    without a stack trace and exit with status 1. The newest checkpoint is from before.
    """

    exit_code = 1


def first_line(error: Exception) -> str:
    """The first line of an error's message, for a message of ours that must be one line."""
    text = str(getattr(error, "message", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__
