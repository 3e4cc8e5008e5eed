"""A training in a subprocess that is killed at chosen moments and started again by the same command."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import PROJECT
from benchmarks.kills.run_files import RunState

# Long enough for a start on a busy machine, short enough to notice a run that hangs.
_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.0005


@dataclass(frozen=True)
class Aim:
    """A moment to kill at: a random delay after a condition on the run's directory first holds.

    Attributes:
        name: for the table.
        is_reached: given the state at the attempt's start and the current state.
        delay_seconds: at most, uniformly distributed.
        sent: the signal.
    """

    name: str
    is_reached: Callable[[RunState, RunState], bool]
    delay_seconds: float = 0.0
    sent: signal.Signals = signal.SIGKILL


def _has_reported(start: RunState, now: RunState) -> bool:
    return now.reported_step > start.reported_step


AIMS = (
    Aim("while it starts", lambda start, now: True, delay_seconds=8.0),
    Aim("in a step", _has_reported, delay_seconds=0.3),
    Aim("in a checkpoint", lambda start, now: now.is_writing_checkpoint and now != start),
    Aim("after a checkpoint", lambda start, now: (now.saved_step or 0) > (start.saved_step or 0)),
    Aim(
        "in an evaluation",
        lambda start, now: now != start and (now.saved_step or 0) == now.reported_step > now.evaluated_step,
        delay_seconds=0.02,
    ),
    Aim("SIGTERM in a step", _has_reported, delay_seconds=0.3, sent=signal.SIGTERM),
)


@dataclass(frozen=True)
class Attempt:
    """How one call ended.

    Attributes:
        state: of the directory right after it.
        seconds_to_end: from the signal to the end of the process; 0 if it ended by itself.
    """

    aim: str
    exit_code: int
    state: RunState
    seconds_to_end: float


class KilledRun:
    """One run whose command is given again and again.

    Args:
        command: of `run_pretraining.py`, without --model_dir.
    """

    def __init__(self, command: list[str], model_dir: Path):
        self.model_dir = model_dir
        self._command = [*command, f"--model_dir={model_dir}"]
        self._log = model_dir.with_suffix(".log")

    def attempt(self, aim: Aim | None, delays: random.Random) -> Attempt:
        """Gives the command and kills it at the aim. With None, or if it never reaches the aim, it ends by itself."""
        start = RunState.of(self.model_dir)
        with open(self._log, "ab") as log:
            process = subprocess.Popen(self._command, cwd=PROJECT, stdout=log, stderr=log)
            if aim is not None and self._wait_for(aim, process, start):
                time.sleep(delays.uniform(0.0, aim.delay_seconds))
                process.send_signal(aim.sent)
            signalled = time.monotonic()
            exit_code = process.wait(_PATIENCE_SECONDS)
        seconds = time.monotonic() - signalled if aim is not None else 0.0
        return Attempt(aim.name if aim else "none", exit_code, RunState.of(self.model_dir), seconds)

    def log_tail(self) -> str:
        """The end of what the calls have printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def _wait_for(self, aim: Aim, process: subprocess.Popen, start: RunState) -> bool:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while process.poll() is None:
            if aim.is_reached(start, RunState.of(self.model_dir)):
                return True
            if time.monotonic() > deadline:
                process.kill()
                raise TimeoutError(f"the run did not reach the moment '{aim.name}'")
            time.sleep(_POLL_SECONDS)
        return False


def training_command(config: str | os.PathLike, data_dirs: list[str], settings: list[str]) -> list[str]:
    """The command of `run_pretraining.py` with this interpreter, without --model_dir."""
    script = str(PROJECT / "run_pretraining.py")
    flags = [f"--config={config}", *(f"--data_dir={data_dir}" for data_dir in data_dirs)]
    return [sys.executable, script, *flags, *(f"--set={setting}" for setting in settings)]
