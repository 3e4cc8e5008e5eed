"""Programs run as a user runs them: how long they take, and how much memory the whole process tree holds."""

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from electra_tf.config.errors import UserError

PROJECT = Path(__file__).resolve().parents[1]
SAMPLING_SECONDS = 0.05
_COPY_BYTES = 2**20


@dataclass(frozen=True)
class Run:
    """One program from its start to its end: wall-clock seconds and what it printed on stdout."""

    seconds: float
    output: str


@dataclass(frozen=True)
class PeakMemory:
    """Highest totals over a process and its descendants, in bytes.

    Attributes:
        pss: proportional set size: a page that n processes share counts 1/n in each, so the sum is what they hold.
        rss: resident set size: a shared page counts in each, so the sum is too large.
        num_samples: how often it was looked; between two looks a peak is missed.
    """

    pss: int
    rss: int
    num_samples: int


def run(command: Sequence[str]) -> Run:
    """Runs a program in the project's root, its stderr aside. Raises: UserError: it fails, with its last line."""
    start = time.perf_counter()
    process = subprocess.run(command, cwd=PROJECT, env=_environment(), capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    _require_success(command, process.returncode, process.stderr)
    return Run(seconds, process.stdout)


def peak_memory_of(command: Sequence[str]) -> PeakMemory:
    """Runs a program while looking at its process tree every 50 ms. Raises: UserError: it fails."""
    process = subprocess.Popen(
        command, cwd=PROJECT, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    peaks: list[PeakMemory] = []
    sampler = threading.Thread(target=lambda: peaks.append(_watch(process.pid)))
    sampler.start()
    _, errors = process.communicate()
    sampler.join()
    _require_success(command, process.returncode, errors)
    return peaks[0]


def _watch(process_id: int) -> PeakMemory:
    """Samples until the process has ended."""
    import psutil

    pss = rss = num_samples = 0
    try:
        root = psutil.Process(process_id)
        while root.status() != psutil.STATUS_ZOMBIE:
            sampled = _memory_of([root, *root.children(recursive=True)])
            pss, rss, num_samples = max(pss, sampled[0]), max(rss, sampled[1]), num_samples + 1
            time.sleep(SAMPLING_SECONDS)
    except psutil.NoSuchProcess:
        pass  # it ended between two looks
    return PeakMemory(pss, rss, num_samples)


def _memory_of(processes: Iterable) -> tuple[int, int]:
    """PSS and RSS of processes, summed; one that has ended meanwhile counts 0."""
    import psutil

    pss = rss = 0
    for process in processes:
        try:
            memory = process.memory_full_info()
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # access is denied to what is ending
            continue
        pss, rss = pss + memory.pss, rss + memory.rss
    return pss, rss


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROJECT)}


def _require_success(command: Sequence[str], status: int, errors: str) -> None:
    if status:
        last_line = (errors.strip().splitlines() or ["no message"])[-1]
        program = " ".join(" ".join(command).split())  # one line, whatever its arguments hold
        raise UserError(f"exit status {status} from {program}: {last_line}")


def interleaved(measurements: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Takes every measurement once a round, in turns, so that what else the machine does meets all of them."""
    values: dict[str, list[float]] = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, measure in measurements.items():
            values[name].append(measure())
    return values


def ratio_of_medians(values: dict[str, list[float]], over: str, under: str) -> float:
    return statistics.median(values[over]) / statistics.median(values[under])


def head_of_text(source: Path, num_bytes: int, target: Path) -> Path:
    """Copies whole documents, up to a blank line, from the head of a text file.

    Args:
        num_bytes: of the copy, at most; a first document that is longer is cut.
    """
    left = num_bytes
    with open(source, "rb") as whole, open(target, "wb") as head:
        while left > 0 and (block := whole.read(min(_COPY_BYTES, left))):
            if len(block) == left and (end := block.rfind(b"\n\n")) >= 0:
                block = block[: end + 2]
                left = len(block)
            head.write(block)
            left -= len(block)
    return target
