"""The kill benchmark in small: real processes, real signals."""

import json
import random
import shutil
import signal

import pytest

from benchmarks import kills
from benchmarks.killed_runs import AIMS, Aim, Attempt, KilledRun, RunState, differences, training_command
from electra_tf.config.loader import config_to_yaml

STATE = RunState(reported_step=4, saved_step=3, evaluated_step=0, is_writing_checkpoint=False)


def write_reports(directory, *reports: dict, torn: str = "") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(report) + "\n" for report in reports) + torn
    (directory / "metrics.jsonl").write_text(text)


def test_the_state_of_a_run_is_read_from_its_directory(tmp_path):
    reports = [{"step": step, "split": split} for step, split in ((4, "train"), (4, "held_out"), (6, "train"))]
    write_reports(tmp_path, *reports, torn="{")
    (tmp_path / "checkpoints" / ".partial").mkdir(parents=True)
    for name in ("step-2.json", "step-10.json", "step-12.index", ".partial/step-12.index"):
        (tmp_path / "checkpoints" / name).touch()
    assert RunState.of(tmp_path) == RunState(6, 10, 4, True)


def test_a_directory_that_is_not_there_yet_has_no_state(tmp_path):
    assert RunState.of(tmp_path / "run") == RunState(0, None, 0, False)


@pytest.mark.parametrize(
    ("name", "now", "is_reached"),
    [
        ("in a step", RunState(8, 3, 0, False), True),
        ("in a step", STATE, False),
        ("in a checkpoint", RunState(8, 3, 0, True), True),
        ("after a checkpoint", RunState(8, 6, 0, False), True),
        ("after a checkpoint", RunState(8, 3, 0, True), False),
        ("in an evaluation", RunState(6, 6, 0, False), True),
        ("in an evaluation", RunState(6, 6, 6, False), False),
        ("in an evaluation", RunState(8, 6, 0, False), False),
    ],
)
def test_an_aim_is_reached_by_what_the_directory_shows(name, now, is_reached):
    (aim,) = (aim for aim in AIMS if aim.name == name)
    assert aim.is_reached(STATE, now) is is_reached


def test_rates_are_no_difference_and_every_other_number_is(tmp_path):
    report = {"step": 4, "split": "train", "loss": 2.0}
    write_reports(tmp_path / "a", {**report, "examples_per_second": 1.0})
    write_reports(tmp_path / "b", {**report, "examples_per_second": 2.0})
    write_reports(tmp_path / "c", {**report, "loss": 2.0000000001})
    assert differences(tmp_path / "a", tmp_path / "b") == []
    (difference,) = differences(tmp_path / "a", tmp_path / "c")
    assert difference.startswith("metrics.jsonl: entry 0 is")


def test_a_missing_or_doubled_report_is_a_difference(tmp_path):
    reports = [{"step": step, "split": "train"} for step in (4, 8)]
    write_reports(tmp_path / "whole", *reports)
    write_reports(tmp_path / "missing", reports[0])
    write_reports(tmp_path / "doubled", *reports, reports[1])
    assert differences(tmp_path / "whole", tmp_path / "missing") == ["metrics.jsonl: 2 and 1 entries"]
    assert differences(tmp_path / "whole", tmp_path / "doubled") == ["metrics.jsonl: 2 and 3 entries"]


def test_a_call_that_fails_ends_the_benchmark():
    class Failing:
        def attempt(self, aim: Aim, chance: random.Random) -> Attempt:
            return Attempt("in a step", 2, STATE, 0.0)

        def log_tail(self) -> str:
            return "error: no"

    with pytest.raises(RuntimeError, match="status 2:\nerror: no"):
        kills.kill_again_and_again(Failing(), 3, random.Random(0))


@pytest.mark.slow
def test_a_training_that_is_killed_and_stopped_is_bit_for_bit_the_one_that_was_not(tiny_config, write_data, tmp_path):
    config = tiny_config(
        train={"num_steps": 600, "log_every_steps": 4, "save_every_steps": 5, "keep_checkpoints": 2},
        evaluation={"every_steps": 10},
    )
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    command = training_command(tmp_path / "tiny.yaml", [str(write_data(tmp_path / "data"))], [])
    whole, killed = KilledRun(command, tmp_path / "whole"), KilledRun(command, tmp_path / "killed")
    chance = random.Random(0)
    assert whole.attempt(None, chance).exit_code == 0
    by_name = {aim.name: aim for aim in AIMS}
    exit_codes = [
        killed.attempt(aim, chance).exit_code
        for aim in (by_name["in a checkpoint"], by_name["in an evaluation"], by_name["SIGTERM in a step"], None)
    ]
    assert exit_codes == [-signal.SIGKILL, -signal.SIGKILL, 128 + signal.SIGTERM, 0]
    assert differences(whole.model_dir, killed.model_dir) == []
    shutil.rmtree(killed.model_dir / "milestones")
    assert differences(whole.model_dir, killed.model_dir) != []
