"""Reports: rates, the lines on the terminal, TensorBoard's events."""

import json
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.flops.budget import RunCost
from electra_tf.runs.directory import RATES, RunDirectory
from electra_tf.runs.reporting import Reporter
from electra_tf.train.device_peak import Peak

METRICS = {"loss": 2.5, "learning_rate": 0.1, "gradient_norm": 1.0}


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.create()
    return run


def steps_reported(directory: RunDirectory) -> list[int]:
    return [json.loads(line)["step"] for line in Path(directory.metrics_file).read_text().splitlines()]


def test_events_that_cannot_be_written_do_not_affect_metrics_jsonl(directory, monkeypatch, caplog):
    def fail(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    reporter = Reporter(directory, 0, 8)
    monkeypatch.setattr(tf.summary, "scalar", fail)
    reporter.evaluation(2, {"loss": 0.5})
    reporter.close()
    assert steps_reported(directory) == [2]
    assert caplog.messages == ["TensorBoard's events of step 2 could not be written (No space left on device)"]


def test_a_closed_terminal_does_not_end_a_training(directory, monkeypatch):
    def gone(text: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(sys.stderr, "write", gone)
    Reporter(directory, 0, 8).evaluation(1, {"loss": 0.5})
    assert steps_reported(directory) == [1]


@pytest.fixture
def reported(directory, tiny_config, monkeypatch, capsys):
    """A report of step 5 of the tiny run, two seconds after step 3, on devices of 1 GFLOP/s: its line, what it says."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    reporter = Reporter(directory, 3, 8, RunCost(tiny_config()), peak=Peak(1e9, "stated"))
    reporter.start_interval(3)
    clock[0] += 2.0
    with reporter.pause():  # an evaluation
        clock[0] += 10.0
    reporter.train(5, METRICS | reporter.rates(5, batch_size=4, tokens_per_example=10))
    reporter.close()
    return json.loads(Path(directory.metrics_file).read_text()), capsys.readouterr().err


def test_a_report_has_the_flops_of_all_steps_and_the_rates_since_the_last_report(reported, tiny_config):
    line, said = reported
    cost = RunCost(tiny_config())
    spent = cost.spent(5)
    assert (line["examples_seen"], line["token_slots_seen"]) == (5 * 4, 5 * 4 * 10)
    assert (line["paper_flops"], line["hardware_flops"]) == (float(spent.paper), spent.hardware.total)
    products = spent.hardware.products - cost.spent(3).hardware.products
    assert line["model_flops_utilization"] == pytest.approx(products / 2.0 / 1e9)
    assert line["examples_per_second"] == pytest.approx(2 * 4 / 2.0)
    assert set(RATES) == {"examples_per_second", "tokens_per_second", "model_flops_utilization", "peak_flops"}
    assert set(RATES) <= set(line)
    assert f"| {line['hardware_flops']:.3g} FLOPs | mfu {line['model_flops_utilization']:.2g} | ETA" in said
    assert "peak_flops" not in said


def test_a_utilisation_above_one_is_one_warning_about_the_peak(tiny_config, monkeypatch, caplog):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    reporter = Reporter(None, 0, 8, RunCost(tiny_config()), peak=Peak(10.0, "train.peak_flops"))
    for step in (1, 2, 3):
        clock[0] += 1.0
        reporter.rates(step, batch_size=4, tokens_per_example=10)
    (message,) = caplog.messages
    assert message.startswith("step 1: ")
    assert "the peak of 10 FLOP/s (train.peak_flops) is too low; state a device's as train.peak_flops" in message
