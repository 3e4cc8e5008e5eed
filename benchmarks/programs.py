"""Measures the time of a program, or the peak memory of its process tree."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.harness import PROJECT, last_line
from electra_tf.config.errors import UserError

SAMPLING_SECONDS = 0.05


def run(command: Sequence[str], directory: Path = PROJECT) -> tuple[float, str]:
    """Runs a program in the root of a checkout. Returns: its wall-clock seconds, and its standard output.

    Raises: UserError: if it fails, with the last line of its error output.
    """
    seconds, output, _ = _run(command, directory, watches_memory=False)
    return seconds, output


def peak_memory_of(command: Sequence[str]) -> int:
    """The highest proportional set size of a program's process tree in bytes, sampled every 50 ms.

    A page that n processes share counts 1/n for each. Raises: UserError: if the program fails.
    """
    return _run(command, PROJECT, watches_memory=True)[2]


def _run(command: Sequence[str], directory: Path, watches_memory: bool) -> tuple[float, str, int]:
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    # The output must not be a pipe: that stays open until the last helper process ends, up to a second later.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=output, stderr=errors)
        try:
            peak = _watch(process) if watches_memory else 0
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        seconds = time.perf_counter() - start
        if status:
            errors.seek(0)
            program = " ".join(" ".join(command).split())  # one line, even if an argument has several
            raise UserError(f"exit status {status} from {program}: {last_line(errors.read())}")
        output.seek(0)
        return seconds, output.read(), peak


def _watch(process: subprocess.Popen) -> int:
    """The highest sample of the tree's PSS until the process ends; an ended process counts 0."""
    import psutil

    highest = 0
    with suppress(psutil.NoSuchProcess):  # it ended between two samples
        root = psutil.Process(process.pid)
        while process.poll() is None:
            pss = 0
            for each in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # denied while a process ends
                    pss += each.memory_full_info().pss
            highest = max(highest, pss)
            time.sleep(SAMPLING_SECONDS)
    return highest
