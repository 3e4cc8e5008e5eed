"""Reports: rates, FLOPs, the lines on the terminal and in files, and which evaluation was the best."""

import json
import math
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EvaluationConfig
from electra_tf.flops.budget import RunCost
from electra_tf.train.reporting import BestScore, JsonLines, Reporter
from electra_tf.train.run_directory import RATES, RunDirectory

WHOLE = b'{"step": 2, "split": "train", "loss": 1.0}\n'
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

    def report(peak: float) -> tuple[dict, str]:
        clock = [100.0]
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])
        reporter = Reporter(directory, 3, 8, RunCost(tiny_config()), peak=peak)
        reporter.start_interval(3)
        clock[0] += 2.0
        with reporter.pause():  # an evaluation
            clock[0] += 10.0
        reporter.train(5, METRICS, batch_size=4, tokens_per_example=10)
        reporter.close()
        return json.loads(Path(directory.metrics_file).read_text()), capsys.readouterr().err

    return report


def test_report_has_the_flops_of_all_steps_and_the_rates_since_the_last_report(reported, tiny_config):
    line, printed = reported(1e9)
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


def test_reports_of_a_split_leave_out_a_cut_off_last_line(tmp_path):
    directory = RunDirectory(tmp_path)
    assert directory.reports("train") == []
    content = WHOLE + b'{"step": 2, "split": "held_out", "auc": null}\n{"step": 4, "spl'
    (tmp_path / "metrics.jsonl").write_bytes(content)
    assert directory.reports("train") == [{"step": 2, "split": "train", "loss": 1.0}]
    assert str(directory.evaluation_at(2)) == "{'auc': nan}"
    assert directory.evaluation_at(4) == {}


def test_damaged_line_is_an_error_with_file_and_number(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(WHOLE + b'{"step": 4, "spl\n' + WHOLE)
    with pytest.raises(UserError, match=f"{tmp_path}/metrics.jsonl is damaged in line 2"):
        RunDirectory(tmp_path).reports("train")


@pytest.mark.parametrize(
    "before",
    [WHOLE + b'{"step": 4, "split": "train"}\n{"step": 5, "spl', WHOLE.rstrip()],
    ids=["later_lines_and_a_cut_off_one", "a_last_line_without_its_end"],
)
def test_continued_file_keeps_the_whole_lines_up_to_its_step(tmp_path, before):
    metrics_file = tmp_path / "metrics.jsonl"
    metrics_file.write_bytes(before)
    JsonLines(str(metrics_file), last_step=2).append({"step": 3})
    assert metrics_file.read_bytes() == WHOLE + b'{"step": 3}\n'


def test_remote_file_is_written_at_each_flush():
    path = "ram://reporting/metrics.jsonl"
    with tf.io.gfile.GFile(path, "w") as stream:
        stream.write('{"step": 1}\n{"step": 2}\n')
    lines = JsonLines(path, last_step=1)
    for step in (2, 3):
        lines.append({"step": step})
        assert f'"step": {step}' not in tf.io.gfile.GFile(path).read()
        lines.flush()
    assert tf.io.gfile.GFile(path).read() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


def scores(patience: int = 0, *values: float | None) -> BestScore:
    best = BestScore(EvaluationConfig(best_metric="f1", patience=patience))
    for number, value in enumerate(values, start=1):
        best.observe(10 * number, {"f1": value, "loss": 3.0})
    return best


def test_first_of_equal_scores_is_the_best():
    best = scores(0, 0.25, 0.5, 0.5, 0.375)
    assert [best.is_best(step) for step in (10, 20, 30, 40)] == [False, True, False, False]


@pytest.mark.parametrize("missing", [None, math.nan])
def test_score_without_a_value_is_the_lowest(missing):
    assert scores(0, missing, -0.5).is_best(20)


def test_training_stalls_after_patience_evaluations_without_a_better_one():
    assert not scores(2, 0.5, 0.4).has_stalled()
    assert scores(2, 0.5, 0.4, 0.5).has_stalled()
    assert not scores(2, 0.5, 0.4, 0.6).has_stalled()
    assert not scores(0, 0.5, 0.4, 0.3, 0.2).has_stalled()


@pytest.mark.parametrize("name", ["loss", "mse", "masked_lm_loss"])
def test_lowest_loss_is_the_best(name):
    best = BestScore(EvaluationConfig(best_metric=name, patience=1))
    for step, value in ((10, 0.75), (20, 0.5), (30, 0.625)):
        best.observe(step, {name: value})
    assert [best.is_best(step) for step in (10, 20, 30)] == [False, True, False]
    assert best.has_stalled()


def test_without_best_metric_no_evaluation_is_the_best():
    best = BestScore(EvaluationConfig())
    best.observe(10, {"loss": 1.0})
    assert not best.is_best(10) and not best.has_stalled()


def test_unknown_best_metric_is_an_error_that_lists_the_metrics():
    with pytest.raises(UserError, match="best_metric=f1 .*accuracy, loss"):
        BestScore(EvaluationConfig(best_metric="f1")).observe(5, {"step": 5, "accuracy": 0.5, "loss": 1.0})
