"""What the experiments share: processes side by side, each on its share of the cores, and the frame of a command."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote

PROJECT = Path(__file__).resolve().parents[1]
_POLL_SECONDS = 0.2


class Job(Protocol):
    """What a process does.

    Attributes:
        name: in the lines about it.
        log_file: gets what the process prints, behind what it holds.
        output_file: gets what the process prints to its standard output, instead of `log_file`; None: nothing does.
    """

    @property
    def name(self) -> str: ...
    @property
    def command(self) -> Sequence[str]: ...
    @property
    def log_file(self) -> Path: ...
    @property
    def output_file(self) -> Path | None: ...


JobT = TypeVar("JobT", bound=Job)


def run_experiment(experiment: Callable[[], bool]) -> int:
    """Runs an experiment. Returns the exit status: 0 if it returns True, 1 for False, 2 for a `UserError`."""
    results: list[bool] = []
    status = run_command(lambda: results.append(experiment()))
    return status or int(not all(results))


def local_directory(path: str) -> Path:
    """The argparse type of a directory that must be on this machine."""
    if is_remote(path):
        raise ArgumentTypeError(f"{path}: expected a directory of this machine")
    return Path(path)


def core_shares(jobs: int) -> list[list[int] | None]:
    """The cores of each of `jobs` runs at once; None: all. Raises: UserError: if there are fewer cores than jobs."""
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= jobs <= len(cores):
        raise UserError(f"--jobs={jobs}: expected 1 to {len(cores)}, the number of cores")
    each = len(cores) // jobs
    return [None] if jobs == 1 else [cores[job * each : (job + 1) * each] for job in range(jobs)]


def run_all(
    jobs: Sequence[JobT],
    shares: Sequence[list[int] | None],
    is_ready: Callable[[JobT], bool] = lambda job: True,
    after: Callable[[JobT], None] = lambda job: None,
) -> dict[str, str]:
    """Runs the jobs in their order, one on each share of the cores at once, and prints a line as each ends.

    Args:
        is_ready: jobs that are not ready let later ones pass; those that never are do not run.
        after: called with each that has not failed.
    Returns: why jobs failed, by their names.
    """
    failures, started = {}, time.monotonic()
    print(f"{len(jobs)} processes to run", file=sys.stderr, flush=True)
    for number, (job, status) in enumerate(_ended(jobs, shares, is_ready), start=1):
        if status:
            failures[job.name] = _failure(job, status)
        else:
            after(job)
        ending = f"failed: {failures[job.name]}" if status else "done"
        seconds = time.monotonic() - started
        print(f"{number}/{len(jobs)} after {seconds:,.0f} s: {job.name} {ending}", file=sys.stderr, flush=True)
    return failures


def _ended(
    jobs: Sequence[JobT], shares: Sequence[list[int] | None], is_ready: Callable[[JobT], bool]
) -> Iterator[tuple[JobT, int]]:
    """Yields: each job when it ends, and its exit status."""
    waiting, running, terminated = list(jobs), {}, []
    previous = signal.signal(signal.SIGTERM, lambda *_: terminated.append(True))
    try:
        while True:
            for share in set(range(len(shares))) - running.keys():
                if (job := next(filter(is_ready, waiting), None)) is not None:
                    waiting.remove(job)
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
    finally:  # Ctrl-C reaches the processes too, SIGTERM does not; of either they end with a checkpoint
        for _, process in running.values() if terminated else ():
            process.terminate()
        signal.signal(signal.SIGTERM, previous)
        for _, process in running.values():
            process.wait()


def start(job: Job, cores: list[int] | None) -> subprocess.Popen:
    """Starts the process of a job on these cores. Raises: UserError: if what it prints cannot be written."""
    with contextlib.ExitStack() as files, _on_cores(cores):
        try:
            job.log_file.parent.mkdir(parents=True, exist_ok=True)
            log = files.enter_context(open(job.log_file, "ab"))
            output = log if job.output_file is None else files.enter_context(open(job.output_file, "wb"))
        except OSError as error:
            problem = f"{error.filename} cannot be written: {error.strerror}"
            raise UserError(f"{problem}; give another --output_dir") from None
        return subprocess.Popen(job.command, stdout=output, stderr=log)


def _failure(job: Job, status: int) -> str:
    """The status and what happened, without the advice behind it: all of it is in the log."""
    log = job.log_file.read_text(encoding="utf-8", errors="replace")
    last_line = (log.strip().splitlines() or ["no message"])[-1].strip()
    return f"status {status}, {last_line.partition(';')[0]}"


@contextlib.contextmanager
def _on_cores(cores: list[int] | None) -> Iterator[None]:
    """What is started inside inherits these cores, and TensorFlow has as many threads as it finds cores."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
