"""What every script shares: a flag parser and the exit codes.

Scripts import this module, parse their flags and only then import what needs TensorFlow, so `--help` answers at once.
"""

import argparse
import contextlib
import ctypes
import gc
import logging
import os
import select
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from electra_tf.config import errors
from electra_tf.config.errors import TrainingStopped, UserError

# For data frames, sparse arrays, images and HDF5 files in Keras, and for finding machines (a TPU by name) in a cloud.
_OPTIONAL_IMPORTS = ("pandas", "scipy", "PIL", "h5py", "googleapiclient")


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the description's line breaks and appends each flag's default."""


class _Parser(argparse.ArgumentParser):
    """Refuses values that can be no path: those of a shell variable that was never set, and bytes that are no UTF-8."""

    def parse_known_args(self, args=None, namespace=None):
        namespace, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            given = getattr(namespace, action.dest, None)
            name = (action.option_strings or [action.dest])[-1]
            for value in given if isinstance(given, list) else [given]:
                if value == "" and given != action.default:
                    self.error(f"{name} is empty; give a value, or leave the flag out")
                if isinstance(value, str) and not _is_utf8(value):
                    self.error(f"{name} is {value!r}, which is no UTF-8; rename the file")
        return namespace, rest


def _is_utf8(argument: str) -> bool:
    """Python keeps other bytes of an argument as surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def flag_parser(description: str) -> argparse.ArgumentParser:
    """A parser that refuses abbreviated flags, so that adding a flag never changes what an old command means.

    An empty value of a flag is refused too.

    Args:
        description: the script's docstring; its line breaks are kept.
    """
    return _Parser(description=description, formatter_class=_HelpFormatter, allow_abbrev=False)


def add_set_flag(parser: argparse.ArgumentParser) -> None:
    """The flag of every command that takes settings beside a configuration's; `overrides` is the list of them."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="A.B=VALUE",
        help="changes one setting; repeatable",
    )


class ExitStatus:
    """The exit status of a command: 0, or one of `electra_tf.config.errors`."""

    code: int = 0


@contextlib.contextmanager
def errors_reported() -> Iterator[ExitStatus]:
    """Prints an error that the user can mend, or that ends a training, as one line on stderr, and sets the status."""
    # TensorFlow's C++ start-up notes ("failed call to cuInit" on every machine without a GPU) bury the lines that
    # matter, and its real errors arrive as Python exceptions. A user's own setting wins.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # A client library that tf-models-official brings warns of the Python's age at every start; worker processes hear of
    # this by the environment.
    warnings.filterwarnings("ignore", message="You are using a", category=FutureWarning)
    os.environ.setdefault("PYTHONWARNINGS", "ignore:You are using a:FutureWarning")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    status = ExitStatus()
    try:
        yield status
        sys.stdout.flush()
    except UserError as error:
        print("error:", *str(error).splitlines(), file=sys.stderr)
        status.code = errors.EXIT_USER_ERROR
    except TrainingStopped as error:
        print("training stopped:", *str(error).splitlines(), file=sys.stderr)
        status.code = errors.EXIT_TRAINING_STOPPED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status.code = errors.EXIT_INTERRUPTED
    except BrokenPipeError:
        if not _has_no_reader(sys.stdout):
            raise
        # Python flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status.code = errors.EXIT_READER_GONE


def run_command(command: Callable[[], None]) -> int:
    """Runs a script's work under `errors_reported`. Returns: the exit status."""
    with errors_reported() as status:
        command()
    return status.code


def import_tensorflow(tpu: bool = False) -> None:
    """Imports TensorFlow and Keras, nearly twice as fast as `import` alone, and silences their notes.

    Args:
        tpu: whether the command may use one.
    """
    if "tensorflow" not in sys.modules:
        _import_fast(hidden=() if tpu else _OPTIONAL_IMPORTS)
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
        return
    import tensorflow as tf

    tf.get_logger().setLevel("WARNING")  # else it tells of every strategy and reduction
    # Notes of its absl ("Compiled cluster using XLA!") heed no other level than 0; warnings and errors stay. Python has
    # no call for this, and the name of that in C++ has absl's version in it: under another TensorFlow than 2.20, or
    # another system than Linux, the notes stay too.
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2"))
        library._ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE(1)  # 0: notes, 1: warnings


def _import_fast(hidden: Iterable[str]) -> None:
    """They are a million objects that stay, so no garbage is looked for while they come, nor among them ever after.

    Args:
        hidden: packages that they import only where they are installed, and that no command needs of them.
    """
    hidden = [name for name in hidden if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # with None, an import fails
    gc.disable()
    import tensorflow  # noqa: F401
    import tf_keras  # noqa: F401

    gc.freeze()
    gc.enable()
    for name in hidden:
        del sys.modules[name]


def _has_no_reader(stream: TextIO) -> bool:
    """Whether a stream is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
