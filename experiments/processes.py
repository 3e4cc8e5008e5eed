"""Runs the processes of an experiment side by side, each on its share of the cores."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from electra_tf.config.errors import UserError

PROJECT = Path(__file__).resolve().parents[1]
_POLL_SECONDS = 0.2


class Job(Protocol):
    """A process to run.

    Attributes:
        name: in messages.
        log_file: the process's output is appended to it.
        output_file: replaced by the process's standard output; None: that goes to `log_file` too.
    """

    name: str
    command: Sequence[str]
    log_file: Path
    output_file: Path | None


JobT = TypeVar("JobT", bound=Job)


def core_shares(jobs: int) -> list[list[int]]:
    """The cores of each of `jobs` simultaneous processes. Raises: UserError: if there are fewer cores than jobs."""
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= jobs <= len(cores):
        raise UserError(f"--jobs={jobs}: expected 1 to {len(cores)}, the number of cores")
    each = len(cores) // jobs
    return [cores[job * each : (job + 1) * each] for job in range(jobs)]


def run_all(
    jobs: Sequence[JobT],
    shares: Sequence[list[int]],
    is_ready: Callable[[JobT], bool] = lambda job: True,
    before: Callable[[JobT], None] = lambda job: None,
    after: Callable[[JobT], None] = lambda job: None,
) -> dict[str, str]:
    """Runs jobs in their order, one at a time on each share of the cores, and prints a line when one ends.

    Args:
        is_ready: whether a job can start. A job that is not ready waits while later ones run, and may never run.
        before: called with each job before it starts.        after: called with each job that succeeded.
    Returns: the reasons of failures by the jobs' names.
    """
    failures, started = {}, time.monotonic()
    print(f"{len(jobs)} processes to run", file=sys.stderr, flush=True)
    for number, (job, status) in enumerate(_ended(jobs, shares, is_ready, before), start=1):
        if status:
            failures[job.name] = _failure(job, status)
        else:
            after(job)
        ending = f"failed: {failures[job.name]}" if status else "done"
        seconds = time.monotonic() - started
        print(f"{number}/{len(jobs)} after {seconds:,.0f} s: {job.name} {ending}", file=sys.stderr, flush=True)
    return failures


def _ended(
    jobs: Sequence[JobT],
    shares: Sequence[list[int]],
    is_ready: Callable[[JobT], bool],
    before: Callable[[JobT], None],
) -> Iterator[tuple[JobT, int]]:
    """Yields: each job when it ends, and its exit status."""
    waiting, running, terminated = list(jobs), {}, []
    previous = signal.signal(signal.SIGTERM, lambda *_: terminated.append(True))
    try:
        while True:
            for share in set(range(len(shares))) - running.keys():
                if (job := next(filter(is_ready, waiting), None)) is not None:
                    waiting.remove(job)
                    before(job)
                    running[share] = (job, start(job, shares[share]))
            if not running:
                return
            while not (
                terminated
                or (ended := [share for share, (_, process) in running.items() if process.poll() is not None])
            ):
                time.sleep(_POLL_SECONDS)
            if terminated:
                raise SystemExit(128 + signal.SIGTERM)
            for job, process in map(running.pop, ended):
                yield job, process.returncode
    finally:  # Ctrl-C reaches the processes too, SIGTERM does not; after both they save a checkpoint
        for _, process in running.values() if terminated else ():
            process.terminate()
        signal.signal(signal.SIGTERM, previous)
        for _, process in running.values():
            process.wait()


def start(job: Job, cores: Sequence[int]) -> subprocess.Popen:
    """Starts the process of a job on these cores."""
    job.log_file.parent.mkdir(parents=True, exist_ok=True)
    with open(job.log_file, "ab") as log, open(job.output_file or os.devnull, "wb") as output:
        process = subprocess.Popen(job.command, stdout=output if job.output_file else log, stderr=log)
    os.sched_setaffinity(process.pid, cores)  # long before its first thread starts
    return process


def _failure(job: Job, status: int) -> str:
    """The status, and the last line of the log up to its semicolon."""
    log = job.log_file.read_text(encoding="utf-8", errors="replace")
    last_line = (log.strip().splitlines() or ["no message"])[-1].strip()
    return f"status {status}, {last_line.partition(';')[0]}"
