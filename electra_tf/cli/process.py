"""Exit status and one-line errors of a command, and a faster import of TensorFlow."""

import contextlib
import gc
import importlib.metadata
import io
import logging
import os
import re
import select
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from electra_tf.config import errors
from electra_tf.config.errors import TrainingStopped, UserError, first_line
from electra_tf.train.signals import Interrupted, Interruption, end_without_teardown

# Keras imports these if they are installed (data frames, sparse arrays, images, HDF5), and TensorFlow the last one, to
# find a TPU by its name. No command uses them through Keras.
_OPTIONAL_IMPORTS = ("pandas", "scipy", "PIL", "cv2", "h5py", "googleapiclient", "matplotlib")
# TensorFlow's error of a full disk is of the same class.
_FULL_MEMORY = re.compile("OOM|out of memory|allocat", re.IGNORECASE)
# tensorflow-tpu 2.20 aborts the process with this libtpu and later ones, without a Python error.
_FIRST_BROKEN_LIBTPU = (0, 0, 32)


class ExitStatus:
    """The exit status of a command: 0, or one of `electra_tf.config.errors`."""

    code: int = 0


class _LossyFile(io.FileIO):
    """A file that drops what it cannot write: whoever read the log has left, and the run goes on."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _secure_streams() -> None:
    """Opens the null device for closed standard streams (`>&-`), before a checkpoint gets their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is sys.__stderr__:
        sys.stderr = io.TextIOWrapper(
            _LossyFile(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True
        )


@contextlib.contextmanager
def errors_reported() -> Iterator[ExitStatus]:
    """Prints an expected error as one line on stderr and sets the exit status. Bugs pass through, with their trace.

    Only this function decides how an error ends a command, see "Errors" in docs/architecture.md.
    """
    _secure_streams()
    # TensorFlow's notes at the start ("failed call to cuInit" on every machine without a GPU) hide the lines that
    # matter, and its errors arrive as Python exceptions. A user's own setting wins.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # A client library of tf-models-official warns about old Python versions at every start, also in worker processes.
    warnings.filterwarnings("ignore", message="You are using a", category=FutureWarning)
    os.environ.setdefault("PYTHONWARNINGS", "ignore:You are using a:FutureWarning")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line for each request to the Hugging Face Hub
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
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
            status.code = errors.EXIT_READER_GONE
        elif isinstance(error, (OSError, *_file_errors())):
            print("error:", _library_message(error), file=sys.stderr)
            status.code = errors.EXIT_USER_ERROR
        else:
            raise


def _library_message(error: Exception) -> str:
    """The message of a library's error in one line, starting with the file if it is known."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or first_line(error)}"
    line = first_line(error)
    return f"out of memory: {line}; see docs/questions.md#out-of-memory" if _FULL_MEMORY.search(line) else line


def _file_errors() -> tuple[type[Exception], ...]:
    """TensorFlow's errors for files that are missing, damaged or not accessible; empty before its import.

    Its other errors, such as InvalidArgumentError, may come from a bug in a graph.
    """
    if (tf := sys.modules.get("tensorflow")) is None:
        return ()
    kinds = "NotFound AlreadyExists PermissionDenied Unauthenticated FailedPrecondition ResourceExhausted Unavailable"
    return tuple(getattr(tf.errors, f"{kind}Error") for kind in (*kinds.split(), "DataLoss"))


def run_command(command: Callable[[], bool | None]) -> int:
    """Runs a command under `errors_reported`. Returns: the exit status; 1 if the command returns False."""
    with errors_reported() as status:
        if command() is False:
            status.code = 1
    return status.code


@contextlib.contextmanager
def training_process(strategy: str, ends_process: bool) -> Iterator[ExitStatus]:
    """As `errors_reported`, for a training command, which signals may end early.

    Args:
        strategy: the name of its tf.distribute strategy.
        ends_process: True to end the process after the command, without TensorFlow's teardown.
    """
    _secure_streams()  # before the file descriptors of `Interruption`
    with Interruption(), errors_reported() as status:
        try:
            yield status
        except Interrupted as interrupted:
            status.code = interrupted.exit_code
    # Workers that are done wait for each other in TensorFlow's own teardown.
    if ends_process and (status.code or strategy != "multi_worker_mirrored"):
        end_without_teardown(status.code)


def import_tensorflow(tpu: bool = False) -> None:
    """Imports TensorFlow and Keras in about 60 % of the time of a plain import, and silences their notes.

    Args:
        tpu: True if the command may use a TPU.
    Raises: UserError: the import would abort the process because of the installed libtpu.
    """
    if "tensorflow" not in sys.modules:
        _require_supported_libtpu()
        _import_fast(hidden=() if tpu else _OPTIONAL_IMPORTS)
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") != "0":
        import tensorflow as tf

        tf.get_logger().setLevel("WARNING")  # else it logs every strategy and reduction


def _import_fast(hidden: Iterable[str]) -> None:
    """Imports both without garbage collection and without the `hidden` packages; each saves 0.5 s."""
    hidden = [name for name in hidden if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # an import of a module that is None fails
    gc.disable()
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    gc.freeze()  # a million objects that stay: later collections skip them
    gc.enable()
    for name in hidden:
        del sys.modules[name]


def _require_supported_libtpu() -> None:
    libtpu = _installed_version("libtpu")
    if _installed_version("tensorflow-tpu") and not () < libtpu < _FIRST_BROKEN_LIBTPU:
        installed = ".".join(map(str, libtpu)) or "none"
        raise UserError(
            f"tensorflow-tpu requires libtpu 0.0.30, but {installed} is installed; run: pip install --no-deps "
            "--force-reinstall tensorflow-tpu~=2.20.0 libtpu==0.0.30"
        )


def _installed_version(name: str) -> tuple[int, ...]:
    """The version of an installed package, from its metadata; empty if it is not installed."""
    try:
        parts = importlib.metadata.version(name).split(".")
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(int(part) for part in parts[:3] if part.isdigit())


def _has_no_reader(stream: TextIO) -> bool:
    """True if a stream is a pipe whose reader has closed it."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
