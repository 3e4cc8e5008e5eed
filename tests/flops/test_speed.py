"""Speeds for the question how long a budget lasts."""

import json

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops import speed
from electra_tf.flops.budget import RunCost
from electra_tf.flops.speed import measured_speed, reported_speed
from electra_tf.runs.directory import RunDirectory


def test_the_measured_speed_is_the_products_of_a_step_over_the_median_of_the_timed_steps(tiny_config, monkeypatch):
    clock = iter([0.0, 9.0, 10.0, 15.0, 20.0, 22.0, 30.0, 33.0, 40.0, 48.0])  # steps of 9, 5, 2, 3 and 8 seconds
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    found = measured_speed(tiny_config(), tf.distribute.OneDeviceStrategy("CPU:0"), num_steps=3)
    assert found == pytest.approx(RunCost(tiny_config()).of_step(1).hardware.products / 3.0)


def test_the_timed_step_trains(tiny_config, monkeypatch):
    trained = []
    step_function = speed._step_function

    def watched(objective, strategy):
        trained.append(objective)
        return step_function(objective, strategy)

    monkeypatch.setattr(speed, "_step_function", watched)
    measured_speed(tiny_config(), tf.distribute.OneDeviceStrategy("CPU:0"), num_steps=2)
    assert int(trained[0].optimizer.iterations) == 4  # one that compiles, one more, and two that are timed


@pytest.fixture
def run_with(tmp_path, tiny_config):
    """`run_with(10.0, 30.0)`: a directory of the tiny run with reports of these speeds, in examples a second."""

    def write(*speeds: float):
        directory = RunDirectory(tmp_path / "run")
        directory.create()
        directory.config_file.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
        lines = [{"step": step, "split": "train", "examples_per_second": s} for step, s in enumerate(speeds, start=1)]
        directory.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return directory.path

    return write


def test_the_reported_speed_is_the_median_without_the_first_report(run_with, tiny_config):
    products_of_an_example = RunCost(tiny_config()).of_step(1).hardware.products / 4
    flops_per_second, cost = reported_speed(run_with(1.0, 20.0, 40.0, 30.0))
    assert flops_per_second == pytest.approx(30.0 * products_of_an_example)
    assert cost.of_step(1).hardware.products / 4 == products_of_an_example


def test_a_run_without_a_second_report_is_refused(run_with):
    with pytest.raises(UserError, match="holds no second report"):
        reported_speed(run_with(1.0))


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no config.yaml; give the directory of a run"):
        reported_speed(tmp_path)
