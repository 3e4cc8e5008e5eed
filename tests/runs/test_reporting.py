"""What the reports of a training say of its cost, and what two runs of one configuration may differ in."""

import json
import time

import pytest

from electra_tf.flops.budget import RunCost
from electra_tf.runs.directory import RATES, RunDirectory
from electra_tf.runs.reporting import TrainingReporter
from electra_tf.train.device_peak import Peak

METRICS = {"loss": 2.5, "learning_rate": 0.1, "gradient_norm": 1.0}


@pytest.fixture
def reported(tmp_path, tiny_config, monkeypatch, capsys):
    """A report of step 5 of the tiny run, two seconds after step 3, on devices of 1 GFLOP/s: its line, what it says."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    reporter = TrainingReporter(directory, 3, 8, RunCost(tiny_config()), peak=Peak(1e9, "stated"))
    reporter.start_interval(3)
    clock[0] += 2.0
    reporter.train(5, METRICS | reporter.rates(5, batch_size=4, tokens_per_example=10))
    reporter.close()
    (line,) = directory.metrics_file.read_text(encoding="utf-8").splitlines()
    return json.loads(line), capsys.readouterr().err


def test_a_report_has_what_all_steps_so_far_took(reported, tiny_config):
    line, _ = reported
    spent = RunCost(tiny_config()).spent(5)
    assert (line["examples_seen"], line["token_slots_seen"]) == (5 * 4, 5 * 4 * 10)
    assert (line["paper_flops"], line["hardware_flops"]) == (float(spent.paper), spent.hardware.total)


def test_utilisation_is_the_products_of_the_last_steps_over_what_could_be_done(reported, tiny_config):
    line, _ = reported
    two_steps = 2 * RunCost(tiny_config()).of_step(5).hardware.products
    assert line["model_flops_utilization"] == pytest.approx(two_steps / 2.0 / 1e9)
    assert line["examples_per_second"] == pytest.approx(2 * 4 / 2.0)


def test_the_peak_that_utilisation_is_a_share_of_stands_in_the_file_and_not_on_the_terminal(reported):
    line, said = reported
    assert line["peak_flops"] == 1e9
    assert "peak_flops" not in said


def test_the_terminal_shows_flops_and_utilisation(reported):
    line, said = reported
    assert f"| {line['hardware_flops']:.3g} FLOPs | mfu {line['model_flops_utilization']:.2g} | ETA" in said


def test_the_rates_are_all_that_depends_on_the_machine(reported):
    line, _ = reported
    assert set(RATES) == {"examples_per_second", "tokens_per_second", "model_flops_utilization", "peak_flops"}
    assert set(RATES) <= set(line)


def test_without_a_cost_nothing_is_said_of_it(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    reporter = TrainingReporter(directory, 0, 8)
    reporter.train(2, METRICS | reporter.rates(2, batch_size=4, tokens_per_example=10))
    reporter.close()
    line = json.loads(directory.metrics_file.read_text(encoding="utf-8"))
    assert set(line) == {"step", "split", *METRICS, "examples_per_second", "tokens_per_second"}


def test_a_utilisation_above_one_is_said_to_be_of_too_low_a_peak_once(tmp_path, tiny_config, monkeypatch, caplog):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    reporter = TrainingReporter(None, 0, 8, RunCost(tiny_config()), peak=Peak(10.0, "train.peak_flops"))
    for step in (1, 2, 3):
        clock[0] += 1.0
        reporter.rates(step, batch_size=4, tokens_per_example=10)
    (message,) = [record.message for record in caplog.records]
    assert message.startswith("step 1: ")
    assert "the peak of 10 FLOP/s (train.peak_flops) is too low; state a device's as train.peak_flops" in message
