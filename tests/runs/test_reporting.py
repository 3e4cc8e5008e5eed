"""Reports: metrics.jsonl and its damage, what a full disk costs, rates, and the lines on the terminal."""

import contextlib
import io
import json
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import RunCost
from electra_tf.runs import reporting
from electra_tf.runs.checkpoints import steps_in
from electra_tf.runs.directory import RATES, RunDirectory
from electra_tf.runs.reported_lines import evaluation_at, reports_of
from electra_tf.runs.reporting import JsonLines, Reporter
from electra_tf.train.device_peak import Peak
from tests.toy import ToyStage, toy_config

WHOLE = b'{"step": 2, "split": "train", "loss": 1.0}\n'
METRICS = {"loss": 2.5, "learning_rate": 0.1, "gradient_norm": 1.0}


@pytest.fixture
def metrics_file(tmp_path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.create()
    return run


def test_reports_are_those_of_the_split_without_a_torn_last_line(metrics_file):
    assert reports_of(metrics_file, "train") == []
    metrics_file.write_bytes(WHOLE + b'{"step": 2, "split": "held_out", "auc": null}\n{"step": 4, "spl')
    assert reports_of(metrics_file, "train") == [{"step": 2, "split": "train", "loss": 1.0}]
    assert str(evaluation_at(metrics_file, 2)) == "{'auc': nan}"
    assert evaluation_at(metrics_file, 4) == {}


@pytest.mark.parametrize(
    "line",
    [
        b'{"step": 4}\n',
        b'{"step": null, "split": "train"}\n',
        b'{"step": 4, "spl\n' + WHOLE,
        b'{"step": 4, "split": "tr\xffin"}\n' + WHOLE,
        b"[4]\n",
    ],
    ids=["no_split", "no_step", "torn_in_the_middle", "no_utf_8", "no_object"],
)
def test_a_damaged_line_is_named_by_file_and_number(metrics_file, line):
    metrics_file.write_bytes(WHOLE + line)
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: expected .* found '.*; mend the line or remove it"):
        reports_of(metrics_file, "train")


def test_a_directory_in_the_place_of_the_file_is_refused(metrics_file):
    metrics_file.mkdir()
    with pytest.raises(UserError, match=r"metrics\.jsonl cannot be read"):
        reports_of(metrics_file, "train")


@pytest.mark.parametrize(
    "before",
    [WHOLE + b'{"step": null}\n{"step": 1, "x": "\xff"}\n{"step": 4, "split": "train"}\n', WHOLE.rstrip()],
    ids=["damaged_and_later_lines", "a_last_line_without_its_end"],
)
def test_a_continued_file_has_the_whole_lines_up_to_its_step(metrics_file, before):
    metrics_file.write_bytes(before)
    JsonLines(str(metrics_file), last_step=2).append({"step": 3})
    assert metrics_file.read_bytes() == WHOLE + b'{"step": 3}\n'


def test_a_store_that_cannot_append_gets_the_whole_file_at_each_flush():
    path = "ram://reporting/metrics.jsonl"
    with tf.io.gfile.GFile(path, "w") as stream:
        stream.write('{"step": 1}\n{"step": 2}\n')
    lines = JsonLines(path, last_step=1)
    for step in (2, 3):
        lines.append({"step": step})
        assert f'"step": {step}' not in tf.io.gfile.GFile(path).read()
        lines.flush()
    assert tf.io.gfile.GFile(path).read() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


@pytest.fixture
def full_disk(monkeypatch):
    """`with full_disk():` a local file takes the first bytes of what is appended, and no more."""

    class Full(io.FileIO):
        def write(self, content) -> int:
            return super().write(content[:5])

    @contextlib.contextmanager
    def full():
        with monkeypatch.context() as patched:
            patched.setattr(reporting, "open", lambda path, mode, buffering: Full(path, mode), raising=False)
            yield

    return full


def steps_reported(directory: RunDirectory) -> list[int]:
    return [json.loads(line)["step"] for line in Path(directory.metrics_file).read_text().splitlines()]


def test_reports_that_the_disk_refused_follow_in_their_order_and_the_refusal_is_said_once(directory, full_disk, caplog):
    reporter = Reporter(directory, 0, 8)
    reporter.evaluation(1, {"loss": 0.5})
    with full_disk():
        reporter.evaluation(2, {"loss": 0.5})
        reporter.evaluation(3, {"loss": 0.5})
        assert steps_reported(directory) == [1]
        with pytest.raises(UserError, match="cannot be written: No space left on device; make room there"):
            reporter.flush()
    assert [message.partition("metrics.jsonl")[2] for message in caplog.messages] == [
        " cannot be written: No space left on device; make room there; the report is kept and written later"
    ]
    reporter.evaluation(4, {"loss": 0.5})
    reporter.close()
    assert steps_reported(directory) == [1, 2, 3, 4]


def test_a_full_disk_costs_the_checkpoints_of_its_time_and_no_report(
    train_toy, full_disk, tmp_path, monkeypatch, caplog
):
    config = toy_config(train={"save_every_steps": 2, "milestone_fractions": (), "keep_checkpoints": 9})
    report, full = Reporter.train, contextlib.ExitStack()

    def full_from_4_to_6(self, step, metrics):
        if step == 4:
            full.enter_context(full_disk())
        elif step == 8:
            full.close()
        report(self, step, metrics)

    monkeypatch.setattr(Reporter, "train", full_from_4_to_6)
    assert train_toy(tmp_path, config, ToyStage(config, num_evaluation_batches=0)) == {}  # no held-out split
    assert [line for line in caplog.messages if "training goes on" in line][0].startswith(
        "the checkpoint of step 4 could not be written ("
    )
    assert steps_reported(RunDirectory(tmp_path)) == [1, 2, 4, 6, 8]
    assert steps_in(f"{tmp_path}/checkpoints") == [2, 8]


def test_a_disk_that_stays_full_ends_the_run_with_an_error_after_its_last_step(train_toy, full_disk, tmp_path, capsys):
    with full_disk(), pytest.raises(UserError, match="No space left on device"):
        train_toy(tmp_path)
    assert "step 8/8" in capsys.readouterr().err
    assert steps_in(f"{tmp_path}/checkpoints") == []


def test_events_that_cannot_be_written_hold_nothing_back(directory, monkeypatch, caplog):
    def fail(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    reporter = Reporter(directory, 0, 8)
    monkeypatch.setattr(tf.summary, "scalar", fail)
    reporter.evaluation(2, {"loss": 0.5})
    reporter.close()
    assert steps_reported(directory) == [2]
    assert caplog.messages == ["TensorBoard's events of step 2 could not be written (No space left on device)"]


def test_a_terminal_that_is_gone_ends_no_training(directory, monkeypatch):
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


def test_a_report_has_the_cost_of_all_steps_so_far_and_the_rates_of_the_last(reported, tiny_config):
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


def test_a_utilisation_above_one_is_said_to_be_of_too_low_a_peak_once(tiny_config, monkeypatch, caplog):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    reporter = Reporter(None, 0, 8, RunCost(tiny_config()), peak=Peak(10.0, "train.peak_flops"))
    for step in (1, 2, 3):
        clock[0] += 1.0
        reporter.rates(step, batch_size=4, tokens_per_example=10)
    (message,) = caplog.messages
    assert message.startswith("step 1: ")
    assert "the peak of 10 FLOP/s (train.peak_flops) is too low; state a device's as train.peak_flops" in message
