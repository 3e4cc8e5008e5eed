"""Measures the time of a program, or the peak memory of its process tree."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from benchmarks.harness import PROJECT, last_line
from electra_tf.config.errors import UserError

SAMPLING_SECONDS = 0.05


def run(command: Sequence[str], directory: Path = PROJECT) -> tuple[float, str]:
    """Runs a program in the root of a checkout.

    Returns: its wall-clock seconds, and its standard output.
    Raises: UserError: if it fails, with the last line of its error output.
    """
    with tempfile.TemporaryFile("w+") as output:
        start = time.perf_counter()
        with _started(command, output, directory) as process:
            process.wait()
            seconds = time.perf_counter() - start
        output.seek(0)
        return seconds, output.read()


def peak_memory_of(command: Sequence[str]) -> int:
    """The highest proportional set size of a program's process tree in bytes, sampled every 50 ms.

    A page that n processes share counts 1/n for each. Raises: UserError: if the program fails.
    """
    with _started(command, subprocess.DEVNULL, PROJECT) as process:
        return _watch(process)


@contextmanager
def _started(command: Sequence[str], output: IO[str] | int, directory: Path) -> Iterator[subprocess.Popen]:
    """Starts a program, and waits for its end on exit. Raises: UserError: if it fails.

    The output must not be a pipe: that stays open until the last helper process ends, up to a second later.
    """
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=output, stderr=errors)
        try:
            yield process
        except BaseException:
            process.terminate()
            raise
        finally:
            status = process.wait()
        if status:
            errors.seek(0)
            program = " ".join(" ".join(command).split())  # one line, even if an argument has several
            raise UserError(f"exit status {status} from {program}: {last_line(errors.read())}")


def _watch(process: subprocess.Popen) -> int:
    """The highest sample until the process ends."""
    import psutil

    pss = 0
    with suppress(psutil.NoSuchProcess):  # it ended between two samples
        root = psutil.Process(process.pid)
        while process.poll() is None:
            pss = max(pss, _memory_of([root, *root.children(recursive=True)]))
            time.sleep(SAMPLING_SECONDS)
    return pss


def _memory_of(processes: Iterable) -> int:
    """The sum of the PSS of processes; an ended process counts 0."""
    import psutil

    pss = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # denied while a process ends
            pss += process.memory_full_info().pss
    return pss
