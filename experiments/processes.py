"""Runs the processes of an experiment side by side, each on its share of the cores."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from electra_tf.config.errors import UserError

PROJECT = Path(__file__).resolve().parents[1]
_POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process to run.

    Attributes:
        name: in messages.
        log_file: the process's output is appended to it.
        is_done: whether its results exist; then it is not started.
        is_ready: whether it can start. Until then later processes start before it, and it may never run.
    """

    name: str
    command: Sequence[str]
    log_file: Path
    is_done: Callable[[], bool]
    is_ready: Callable[[], bool] = lambda: True


ProcessT = TypeVar("ProcessT", bound=Process)


def core_shares(jobs: int) -> list[list[int]]:
    """The cores of each of `jobs` simultaneous processes. Raises: UserError: if there are fewer cores than jobs."""
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= jobs <= len(cores):
        raise UserError(f"--jobs={jobs}: expected 1 to {len(cores)}, the number of cores")
    each = len(cores) // jobs
    return [cores[job * each : (job + 1) * each] for job in range(jobs)]


def run_all(
    processes: Sequence[ProcessT],
    shares: Sequence[list[int]],
    before: Callable[[ProcessT], None] = lambda process: None,
    after: Callable[[ProcessT], None] = lambda process: None,
) -> dict[str, str]:
    """Runs the processes that are not done, in their order, one at a time on each share of the cores.

    Prints a line when one ends.

    Args:
        before: called with each process before it starts.        after: called with each process that succeeded.
    Returns: the reasons of failures by the processes' names.
    """
    failures, started, num_ended = {}, time.monotonic(), 0
    running: dict[int, tuple[ProcessT, subprocess.Popen]] = {}  # by the number of the share
    terminated: list[bool] = []
    waiting = [process for process in processes if not process.is_done()]
    num_waiting = len(waiting)
    print(f"{num_waiting} processes to run", file=sys.stderr, flush=True)
    previous = signal.signal(signal.SIGTERM, lambda *_: terminated.append(True))
    try:
        while True:
            for share in set(range(len(shares))) - running.keys():
                if (process := next((each for each in waiting if each.is_ready()), None)) is not None:
                    waiting.remove(process)
                    before(process)
                    running[share] = (process, start(process, shares[share]))
            if not running:
                return failures
            while not (
                terminated or (ended := [share for share, (_, popen) in running.items() if popen.poll() is not None])
            ):
                time.sleep(_POLL_SECONDS)
            if terminated:
                raise SystemExit(128 + signal.SIGTERM)
            for process, popen in map(running.pop, ended):
                if popen.returncode:
                    failures[process.name] = _failure(process, popen.returncode)
                else:
                    after(process)
                num_ended += 1
                ending = f"failed: {failures[process.name]}" if popen.returncode else "done"
                so_far = f"{num_ended}/{num_waiting} after {time.monotonic() - started:,.0f} s"
                print(f"{so_far}: {process.name} {ending}", file=sys.stderr, flush=True)
    finally:  # Ctrl-C reaches the processes too, SIGTERM does not; after both they save a checkpoint
        for _, popen in running.values() if terminated else ():
            popen.terminate()
        signal.signal(signal.SIGTERM, previous)
        for _, popen in running.values():
            popen.wait()


def start(process: Process, cores: Sequence[int]) -> subprocess.Popen:
    """Starts a process on these cores."""
    process.log_file.parent.mkdir(parents=True, exist_ok=True)
    with open(process.log_file, "ab") as log:
        popen = subprocess.Popen(process.command, stdout=log, stderr=log)
    os.sched_setaffinity(popen.pid, cores)  # long before its first thread starts
    return popen


def _failure(process: Process, status: int) -> str:
    """The status, and the last line of the log up to its semicolon."""
    log = process.log_file.read_text(encoding="utf-8", errors="replace")
    last_line = (log.strip().splitlines() or ["no message"])[-1].strip()
    return f"status {status}, {last_line.partition(';')[0]}"
