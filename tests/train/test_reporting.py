"""Reports: rates, FLOPs and the lines on the terminal."""

import json
import sys
import time
from pathlib import Path

import pytest

from electra_tf.flops.budget import RunCost
from electra_tf.train.device_peak import Peak
from electra_tf.train.reporting import Reporter
from electra_tf.train.run_directory import RATES, RunDirectory

METRICS = {"loss": 2.5, "learning_rate": 0.1, "gradient_norm": 1.0}


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.create()
    return run


def test_closed_terminal_does_not_end_a_training(directory, monkeypatch):
    def fail(text: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(sys.stderr, "write", fail)
    Reporter(directory, 0, 8).evaluation(1, {"loss": 0.5})
    assert json.loads(Path(directory.metrics_file).read_text())["step"] == 1


@pytest.fixture
def reported(directory, tiny_config, monkeypatch, capsys):
    """`reported(peak)`: a report of step 5 of the tiny run, two seconds after step 3.

    Returns: its line of metrics.jsonl, and its line on the terminal.
    """

    def report(peak: Peak) -> tuple[dict, str]:
        clock = [100.0]
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])
        reporter = Reporter(directory, 3, 8, RunCost(tiny_config()), peak=peak)
        reporter.start_interval(3)
        clock[0] += 2.0
        with reporter.pause():  # an evaluation
            clock[0] += 10.0
        reporter.train(5, METRICS | reporter.rates(5, batch_size=4, tokens_per_example=10))
        reporter.close()
        return json.loads(Path(directory.metrics_file).read_text()), capsys.readouterr().err

    return report


def test_report_has_the_flops_of_all_steps_and_the_rates_since_the_last_report(reported, tiny_config):
    line, printed = reported(Peak(1e9, "train.peak_flops"))
    cost = RunCost(tiny_config())
    spent = cost.spent(5)
    assert (line["examples_seen"], line["token_slots_seen"]) == (5 * 4, 5 * 4 * 10)
    assert (line["paper_flops"], line["hardware_flops"]) == (float(spent.paper), spent.hardware.total)
    products = spent.hardware.products - cost.spent(3).hardware.products
    assert line["model_flops_utilization"] == pytest.approx(products / 2.0 / 1e9)
    assert line["examples_per_second"] == pytest.approx(2 * 4 / 2.0)
    assert set(RATES) == {"examples_per_second", "tokens_per_second", "model_flops_utilization", "peak_flops"}
    assert set(RATES) <= set(line)
    assert f"| {line['hardware_flops']:.3g} FLOPs | mfu {line['model_flops_utilization']:.2g} | ETA" in printed
    assert "peak_flops" not in printed
