"""Times many steps on one GPU within a budget of seconds: programs compile side by side, and each is timed alone.

    python -m benchmarks.gpu_attention.block JOBS.json RESULTS.jsonl --budget=500

JOBS.json is a list of waves, each a list of jobs {"name": ..., "command": ..., "environment": {...}}. A command runs in
a shell, and has the flag --wait of `benchmarks.gpu_attention.timing`. All jobs of a wave begin together. When one has
run its first step, all others are stopped until it is timed, at most --turn seconds. Each wave has an equal share of
what is left of the budget; what runs at its end is killed. RESULTS.jsonl gets a line for each job when it ends, with
what it has answered until then, and its directory their logs.

XLA chooses kernels by timing them in the first step, here beside other programs: compare jobs that run twice.
"""

import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path


class Job:
    """A running job. Its lines of JSON, then None when it ends, are put into `lines`."""

    def __init__(self, name: str, command: str, lines: queue.Queue, log: Path, environment: dict[str, str]):
        self.name, self.answers = name, {}
        self.process = subprocess.Popen(
            ["bash", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("ab"),
            text=True,
            errors="replace",
            env={**os.environ, **environment},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=[lines], daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, args=[lines], daemon=True).start()

    def _wait(self, lines: queue.Queue) -> None:
        self.process.wait()
        self._reader.join(timeout=0.5)  # not longer: what it has started may hold the pipe
        lines.put((self, None))

    def _read(self, lines: queue.Queue) -> None:
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):  # not JSON
                if line.startswith("{"):
                    lines.put((self, json.loads(line)))

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def run_wave(jobs: list[dict], seconds: float, turn: float, logs: Path, report: Callable[[Job], None]) -> None:
    """Runs the jobs of a wave. Those that do not end within the seconds, or whose timing takes a `turn`, are killed.

    Args: report: is called with each job when it has ended.
    """
    lines, running, timed = queue.Queue(), [], None
    deadline = turn_ends = time.monotonic() + seconds
    try:
        for job in jobs:
            log = logs / f"{job['name']}.log"
            running.append(Job(job["name"], job["command"], lines, log, job.get("environment", {})))
        while running and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                job, answer = lines.get(timeout=max(min(deadline, turn_ends) - time.monotonic(), 0.0))
                job.answers |= answer or {}
                if answer is None:
                    job.signal(signal.SIGKILL)  # what it has started
                    running.remove(job)
                    report(job)
            if timed in running and "ms" not in timed.answers:
                if time.monotonic() < turn_ends:
                    continue
                timed.signal(signal.SIGKILL)
                timed.answers["ms"] = None
            waiting = [each for each in running if "first_step_s" in each.answers and "ms" not in each.answers]
            timed, turn_ends = (waiting[0], time.monotonic() + turn) if waiting else (None, deadline)
            for each in running:
                each.signal(signal.SIGCONT if timed in (None, each) else signal.SIGSTOP)
            if timed is not None:
                with contextlib.suppress(BrokenPipeError):  # it has ended
                    timed.process.stdin.write("\n")
                    timed.process.stdin.flush()
    finally:
        for each in running:
            each.signal(signal.SIGKILL)
            each.process.wait()
    for each in running:
        report(each)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path, metavar="JOBS.json")
    parser.add_argument("results", type=Path, metavar="RESULTS.jsonl")
    parser.add_argument("--budget", type=float, required=True, metavar="SECONDS", help="for all waves together")
    parser.add_argument("--turn", type=float, default=60, metavar="SECONDS", help="for timing one job (default: 60)")
    flags = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no job is left
    deadline = time.monotonic() + flags.budget
    waves = json.loads(flags.jobs.read_text(encoding="utf-8"))
    flags.results.parent.mkdir(parents=True, exist_ok=True)
    for number, wave in enumerate(waves):

        def report(job: Job, number: int = number) -> None:
            row = {"wave": number, "name": job.name, "status": job.process.returncode, **job.answers}
            with flags.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)

        share = (deadline - time.monotonic()) / (len(waves) - number)
        run_wave(wave, share, flags.turn, flags.results.parent, report)


if __name__ == "__main__":
    main()
