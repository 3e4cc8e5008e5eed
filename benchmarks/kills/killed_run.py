"""A training as a subprocess that is killed and started again, and what two runs left behind, compared bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from electra_tf.runs.run_directory import RATES

PROJECT = Path(__file__).resolve().parents[1]
# Long enough for a start on a busy machine, short enough to notice a run that hangs.
_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.0005


@dataclass(frozen=True)
class RunState:
    """What a run's directory shows at a moment, read without TensorFlow."""

    reported_step: int
    saved_step: int | None
    evaluated_step: int
    is_writing_checkpoint: bool

    @classmethod
    def of(cls, model_dir: Path) -> "RunState":
        reports = _whole_lines(model_dir / "metrics.jsonl")
        steps = {split: [0, *(r["step"] for r in reports if r["split"] == split)] for split in ("train", "held_out")}
        saved = [int(path.stem.removeprefix("step-")) for path in (model_dir / "checkpoints").glob("step-*.json")]
        return cls(
            reported_step=steps["train"][-1],
            saved_step=max(saved, default=None),
            evaluated_step=steps["held_out"][-1],
            is_writing_checkpoint=any((model_dir / "checkpoints" / ".partial").glob("step-*")),
        )

    def __str__(self) -> str:
        writing = ", a checkpoint half written" if self.is_writing_checkpoint else ""
        return f"reported {self.reported_step}, evaluated {self.evaluated_step}, saved {self.saved_step}{writing}"


@dataclass(frozen=True)
class Aim:
    """A moment to kill at: when a condition on the run's directory first holds, and a random while later.

    Attributes:
        name: for the table.
        is_reached: given the state at the attempt's start and that of now.
        delay_seconds: at most, drawn uniformly.
        sent: the signal.
    """

    name: str
    is_reached: Callable[[RunState, RunState], bool]
    delay_seconds: float = 0.0
    sent: signal.Signals = signal.SIGKILL


AIMS = (
    Aim("while it starts", lambda start, now: True, delay_seconds=8.0),
    Aim("in a step", lambda start, now: now.reported_step > start.reported_step, delay_seconds=0.3),
    Aim("in a checkpoint", lambda start, now: now.is_writing_checkpoint and now != start),
    Aim("after a checkpoint", lambda start, now: (now.saved_step or 0) > (start.saved_step or 0)),
    Aim(
        "in an evaluation",
        lambda start, now: now != start and (now.saved_step or 0) == now.reported_step > now.evaluated_step,
        delay_seconds=0.02,
    ),
    Aim(
        "SIGTERM in a step",
        lambda start, now: now.reported_step > start.reported_step,
        delay_seconds=0.3,
        sent=signal.SIGTERM,
    ),
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

    def attempt(self, aim: Aim | None, chance: random.Random) -> Attempt:
        """Gives the command and kills it as aimed; None lets it end by itself, as does an aim that it never reaches."""
        start = RunState.of(self.model_dir)
        with open(self._log, "ab") as log:
            process = subprocess.Popen(self._command, cwd=PROJECT, stdout=log, stderr=log)
            if aim is not None and self._wait_for(aim, process, start):
                time.sleep(chance.uniform(0.0, aim.delay_seconds))
                process.send_signal(aim.sent)
            signalled = time.monotonic()
            exit_code = process.wait(_PATIENCE_SECONDS)
        seconds = time.monotonic() - signalled if aim is not None else 0.0
        return Attempt(aim.name if aim else "none", exit_code, RunState.of(self.model_dir), seconds)

    def log_tail(self) -> str:
        """The last lines that the calls have printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def _wait_for(self, aim: Aim, process: subprocess.Popen, start: RunState) -> bool:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while process.poll() is None:
            if aim.is_reached(start, RunState.of(self.model_dir)):
                return True
            if time.monotonic() > deadline:
                process.kill()
                raise TimeoutError(f"the run never came to be {aim.name}")
            time.sleep(_POLL_SECONDS)
        return False


def training_command(config: str | os.PathLike, data_dirs: list[str], settings: list[str]) -> list[str]:
    """The command of `run_pretraining.py` with this interpreter, without --model_dir."""
    script = str(PROJECT / "run_pretraining.py")
    flags = [f"--config={config}", *(f"--data_dir={data_dir}" for data_dir in data_dirs)]
    return [sys.executable, script, *flags, *(f"--set={setting}" for setting in settings)]


def differences(expected: Path, found: Path) -> list[str]:
    """What differs between the directories of two finished runs; empty if nothing does that should not.

    Compared are every tensor of every last checkpoint and milestone, the lines of metrics.jsonl without the rates, and
    TensorBoard's events without rates and times.
    """
    return [
        *_checkpoint_differences(expected, found),
        *_list_differences("metrics.jsonl", *(list(_reports(path / "metrics.jsonl")) for path in (expected, found))),
        *(
            difference
            for split in ("train", "held_out")
            for difference in _list_differences(
                f"tensorboard/{split}", *(_events(path / "tensorboard" / split) for path in (expected, found))
            )
        ),
    ]


def _checkpoint_differences(expected: Path, found: Path) -> Iterator[str]:
    for folder in ("checkpoints", "milestones"):
        names = [sorted(path.stem for path in (run / folder).glob("step-*.json")) for run in (expected, found)]
        if folder == "checkpoints":  # the last ones but the newest depend on where the run was stopped
            names = [sorted(of_run, key=lambda name: int(name.removeprefix("step-")))[-1:] for of_run in names]
        if names[0] != names[1]:
            yield f"{folder}: {names[0]} and {names[1]}"
            continue
        for name in names[0]:
            yield from _tensor_differences(expected / folder / name, found / folder / name)


def _tensor_differences(expected: Path, found: Path) -> Iterator[str]:
    tensors = [_tensors(prefix) for prefix in (expected, found)]
    if set(tensors[0]) != set(tensors[1]):
        yield f"{found}: other variables than {expected}"
    for name in sorted(set(tensors[0]) & set(tensors[1])):
        # As bytes: a NaN equals itself, and -0 is not 0.
        if tensors[0][name].tobytes() != tensors[1][name].tobytes():
            yield f"{found}: {name} differs"


def _tensors(prefix: Path) -> dict:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    names = [name for name in reader.get_variable_to_shape_map() if not name.startswith("_CHECKPOINTABLE")]
    return {name: reader.get_tensor(name) for name in names}


def _events(directory: Path) -> list[tuple]:
    import tensorflow as tf

    found = []
    for path in sorted(directory.glob("events*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            values = [(value.tag, value.simple_value) for value in event.summary.value if value.tag not in RATES]
            if values:
                found.append((event.step, repr(values)))  # as text: NaN equals NaN
    return found


def _reports(metrics_file: Path) -> Iterator[dict]:
    for line in metrics_file.read_text(encoding="utf-8").splitlines():
        yield {name: value for name, value in json.loads(line).items() if name not in RATES}


def _whole_lines(metrics_file: Path) -> list[dict]:
    try:
        lines = metrics_file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    whole = []
    for line in lines:
        try:
            whole.append(json.loads(line))
        except ValueError:
            break
    return whole


def _list_differences(name: str, expected: list, found: list) -> list[str]:
    if expected == found:
        return []
    place = next((i for i, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), None)
    if place is None:
        return [f"{name}: {len(expected)} and {len(found)} entries"]
    return [f"{name}: entry {place} is {found[place]} instead of {expected[place]}"]
