"""The kill benchmark in small: real processes, real signals."""

import json
import random
import shutil
import signal

import pytest

from benchmarks.kills.killed_run import AIMS, KilledRun, training_command
from benchmarks.kills.run_files import RunState, differences
from electra_tf.config.loader import config_to_yaml

pytestmark = pytest.mark.slow
STATE = RunState(reported_step=4, saved_step=3, evaluated_step=0, is_writing_checkpoint=False)


def write_reports(directory, *reports: dict, torn: str = "") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(report) + "\n" for report in reports) + torn
    (directory / "metrics.jsonl").write_text(text)


def test_the_state_of_a_run_is_read_from_its_directory(tmp_path):
    assert RunState.of(tmp_path) == RunState(0, None, 0, False)
    reports = [{"step": step, "split": split} for step, split in ((4, "train"), (4, "held_out"), (6, "train"))]
    write_reports(tmp_path, *reports, torn="{")
    (tmp_path / "checkpoints").mkdir()
    for name in ("step-2.index", "step-10.index", "step-12_temp"):
        (tmp_path / "checkpoints" / name).touch()
    assert RunState.of(tmp_path) == RunState(6, 10, 4, True)


@pytest.mark.parametrize(
    ("name", "now", "is_reached"),
    [
        ("in a step", RunState(8, 3, 0, False), True),
        ("in a checkpoint", RunState(8, 3, 0, True), True),
        ("after a checkpoint", RunState(8, 6, 0, False), True),
        ("in an evaluation", RunState(6, 6, 0, False), True),
        ("in an evaluation", RunState(6, 6, 6, False), False),
    ],
)
def test_an_aim_is_reached_by_the_state_of_the_directory(name, now, is_reached):
    (aim,) = (aim for aim in AIMS if aim.name == name)
    assert aim.is_reached(STATE, now) is is_reached


def test_every_number_but_a_rate_and_every_report_counts(tmp_path):
    report = {"step": 4, "split": "train", "loss": 2.0}
    write_reports(tmp_path / "a", {**report, "examples_per_second": 1.0})
    write_reports(tmp_path / "b", {**report, "examples_per_second": 2.0})
    write_reports(tmp_path / "c", {**report, "loss": 2.0000000001})
    write_reports(tmp_path / "doubled", report, report)
    assert differences(tmp_path / "a", tmp_path / "b") == []
    (difference,) = differences(tmp_path / "a", tmp_path / "c")
    assert difference.startswith("metrics.jsonl: entry 0 is")
    assert differences(tmp_path / "a", tmp_path / "doubled") == ["metrics.jsonl: 1 and 2 entries"]


def test_a_killed_and_stopped_training_equals_an_uninterrupted_one_bit_for_bit(tiny_config, write_data, tmp_path):
    config = tiny_config(
        train={"num_steps": 600, "log_every_steps": 4, "save_every_steps": 5, "keep_checkpoints": 2},
        evaluation={"every_steps": 10},
    )
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    command = training_command(tmp_path / "tiny.yaml", [str(write_data(tmp_path / "data"))], [])
    whole, killed = KilledRun(command, tmp_path / "whole"), KilledRun(command, tmp_path / "killed")
    delays = random.Random(0)
    assert whole.attempt(None, delays).exit_code == 0
    by_name = {aim.name: aim for aim in AIMS}
    aims = (by_name["in a checkpoint"], by_name["in an evaluation"], by_name["SIGTERM in a step"], None)
    exit_codes = [killed.attempt(aim, delays).exit_code for aim in aims]
    assert exit_codes == [-signal.SIGKILL, -signal.SIGKILL, 128 + signal.SIGTERM, 0]
    assert differences(whole.model_dir, killed.model_dir) == []
    shutil.rmtree(killed.model_dir / "milestones")
    assert differences(whole.model_dir, killed.model_dir) != []
