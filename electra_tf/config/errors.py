"""The one exception for what a user can mend."""


class UserError(Exception):
    """Something the user gave is wrong: a flag, a file, a config value, a directory.

    The message is one line: what was found, where, what was expected, what to do. The scripts print it without a stack
    trace and exit with status 2. Errors that only a programmer can cause stay `assert` or the exception they are.
    """
