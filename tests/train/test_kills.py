"""A run that is ended several times by kill -9 or SIGTERM equals an uninterrupted one, bit for bit.

    ELECTRA_TF_KILLS=30 python -m pytest -s tests/train/test_kills.py

Each call of electra-tf pretrain is killed at a certain moment, which the run's directory shows, plus a random delay.
Then the same command runs again. Prints a table of the calls. Without the variable there are 3 kills, of one run.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from electra_tf.config.loader import config_to_yaml
from electra_tf.train.checkpoints import steps_in
from tests.toy import MODERN
from tests.train.runs import assert_same_run, wait_until

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[2]
NUM_KILLS = int(os.environ.get("ELECTRA_TF_KILLS", "3"))
STEPS_PER_KILL = 200
PATIENCE_SECONDS = 600.0 + 120.0 * NUM_KILLS  # long enough for all steps on a busy machine
IN_BFLOAT16 = {
    **{"precision": "bfloat16", "rematerialize": True, "gradient_accumulation_steps": 2, "fused_ops": True},
    "num_steps": STEPS_PER_KILL * NUM_KILLS // 2,  # these take longer
}
RUNS = {"modern-bfloat16": (MODERN, IN_BFLOAT16)} | ({"bert": ({}, {})} if "ELECTRA_TF_KILLS" in os.environ else {})


class RunState(NamedTuple):
    """The last steps that were reported, saved and evaluated, as a run's directory shows them."""

    reported: int
    saved: int
    evaluated: int
    is_writing_checkpoint: bool

    @classmethod
    def of(cls, run: Path) -> "RunState":
        steps, checkpoints = {"train": 0, "held_out": 0}, run / "checkpoints"
        text = (run / "metrics.jsonl").read_text() if (run / "metrics.jsonl").exists() else ""
        reports = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        steps |= {report["split"]: report["step"] for report in reports}
        saved = max((int(path.stem.removeprefix("step-")) for path in checkpoints.glob("step-*.index")), default=0)
        return cls(steps["train"], saved, steps["held_out"], any(checkpoints.glob("step-*_temp*")))


class Moment(NamedTuple):
    """When to kill: at most `delay_seconds` after `is_reached`, given the state at the call's start and now."""

    name: str
    is_reached: Callable[[RunState, RunState], bool]
    delay_seconds: float = 0.0
    sent: signal.Signals = signal.SIGKILL


def _has_reported(start: RunState, now: RunState) -> bool:
    return now.reported > start.reported


MOMENTS = (
    Moment("in a checkpoint", lambda start, now: now.is_writing_checkpoint and now != start),
    Moment("in an evaluation", lambda start, now: now != start and now.saved == now.reported > now.evaluated, 0.02),
    Moment("SIGTERM in a step", _has_reported, 0.3, signal.SIGTERM),
    Moment("while it starts", lambda start, now: True, 8.0),
    Moment("in a step", _has_reported, 0.3),
    Moment("after a checkpoint", lambda start, now: now.saved > start.saved),
)


def call(command: list[str], run: Path, moment: Moment | None, delays: random.Random) -> int:
    """Runs the command and kills it at the moment, or waits for its end. Returns: the exit status."""
    start, log = RunState.of(run), run.with_suffix(".log")
    with open(log, "ab") as stream:
        process = subprocess.Popen([*command, f"--model_dir={run}"], cwd=PROJECT, stdout=stream, stderr=stream)
        try:
            if moment:
                wait_until(lambda: moment.is_reached(start, RunState.of(run)), process, log, PATIENCE_SECONDS)
                time.sleep(delays.uniform(0.0, moment.delay_seconds))
                process.send_signal(moment.sent)
            return process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()


@pytest.mark.parametrize(("encoder", "train"), RUNS.values(), ids=RUNS)
def test_run_with_several_kills_equals_an_uninterrupted_one(tiny_config, write_data, tmp_path, encoder, train):
    # Reports, checkpoints and evaluations fall on different steps, and sometimes on the same one.
    train = {"num_steps": STEPS_PER_KILL * NUM_KILLS, "log_every_steps": 4, "save_every_steps": 5, **train}
    config = tiny_config(encoder=encoder, train=train, evaluation={"every_steps": 10})
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    wiki, books = write_data(tmp_path / "wiki"), write_data(tmp_path / "books", train=(7, 4), held_out=(5,))
    flags = [f"--config={tmp_path / 'tiny.yaml'}", f"--data_dir={wiki}:0.7,{books}:0.3"]
    command = [sys.executable, str(PROJECT / "run_pretraining.py"), *flags]
    whole, killed, delays = tmp_path / "whole", tmp_path / "killed", random.Random(0)
    assert call(command, whole, None, delays) == 0
    moments = [MOMENTS[number % len(MOMENTS)] for number in range(NUM_KILLS)]
    if len(MOMENTS) < NUM_KILLS:
        delays.shuffle(moments)
    for moment in moments:
        status = call(command, killed, moment, delays)
        print(f"| {moment.name:18} | {status:4} | {RunState.of(killed)} |", flush=True)
        assert status in (-signal.SIGKILL, 128 + signal.SIGTERM)
    assert call(command, killed, None, delays) == 0
    # Which older checkpoints are kept depends on where the run was stopped.
    milestones = [f"milestones/step-{step}" for step in steps_in(str(whole / "milestones"))]
    assert milestones
    assert_same_run(killed, whole, *milestones, f"checkpoints/step-{train['num_steps']}")
    print(f"{NUM_KILLS} kills; bit-identical")
