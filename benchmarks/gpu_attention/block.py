"""Times many steps on one GPU within a budget of seconds: programs compile side by side, and each is timed alone.

    python -m benchmarks.gpu_attention.block JOBS.json RESULTS.jsonl --budget=500

JOBS.json is a list of waves, each a list of jobs {"name": ..., "command": ..., "environment": {...}}. A command runs in
a shell, and has the flag --wait of `benchmarks.gpu_attention.timing`. All jobs of a wave begin together. When one has
run its first step, all others are stopped until it is timed, at most --turn seconds. What runs when the budget ends is
killed, and what it has answered until then is kept. RESULTS.jsonl gets a line for each job, its directory their logs.
"""

import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path


class Job:
    """A running job. Its lines of JSON, then None at its end, are put into `lines`."""

    def __init__(self, name: str, command: str, lines: queue.Queue, log: Path, environment: dict[str, str]):
        self.name, self.answers = name, {}
        self.process = subprocess.Popen(
            ["bash", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("wb"),
            text=True,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=[lines], daemon=True).start()

    def _read(self, lines: queue.Queue) -> None:
        for line in self.process.stdout:
            if line.startswith("{"):
                lines.put((self, json.loads(line)))
        lines.put((self, None))

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)


def run_wave(jobs: list[dict], seconds: float, turn: float, logs: Path) -> list[Job]:
    """Runs the jobs of a wave. Those that do not end within the seconds, or whose timing takes a `turn`, are killed."""
    lines, deadline = queue.Queue(), time.monotonic() + seconds
    running = [
        Job(job["name"], job["command"], lines, logs / f"{job['name']}.log", job.get("environment", {})) for job in jobs
    ]
    jobs, compiled, timed, turn_ends = list(running), [], None, deadline
    while running and time.monotonic() < deadline:
        try:
            job, answer = lines.get(timeout=max(min(deadline, turn_ends) - time.monotonic(), 0.01))
        except queue.Empty:
            if timed is not None:
                timed.signal(signal.SIGKILL)
            turn_ends = deadline
            continue
        job.answers |= answer or {}
        if answer is None:
            running.remove(job)
        elif "first_step_s" in answer:
            compiled.append(job)
        if timed in (None, job) and (answer is None or timed is None or "ms" in answer):
            waiting = [each for each in compiled if each in running and "ms" not in each.answers]
            timed, turn_ends = (waiting[0], time.monotonic() + turn) if waiting else (None, deadline)
            for each in running:
                each.signal(signal.SIGCONT if timed in (None, each) else signal.SIGSTOP)
            if timed is not None:
                with contextlib.suppress(BrokenPipeError):  # it has ended
                    timed.process.stdin.write("\n")
                    timed.process.stdin.flush()
    for each in jobs:
        each.signal(signal.SIGKILL)
    return jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path, metavar="JOBS.json")
    parser.add_argument("results", type=Path, metavar="RESULTS.jsonl")
    parser.add_argument("--budget", type=float, required=True, metavar="SECONDS", help="for all waves together")
    parser.add_argument("--turn", type=float, default=60, metavar="SECONDS", help="for timing one job (default: 60)")
    flags = parser.parse_args()
    deadline = time.monotonic() + flags.budget
    waves = json.loads(flags.jobs.read_text(encoding="utf-8"))
    flags.results.parent.mkdir(parents=True, exist_ok=True)
    for number, wave in enumerate(waves):
        for job in run_wave(wave, deadline - time.monotonic(), flags.turn, flags.results.parent):
            row = {"wave": number, "name": job.name, "status": job.process.wait(), **job.answers}
            print(json.dumps(row), flush=True)
            with flags.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
