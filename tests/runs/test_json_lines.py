"""metrics.jsonl: written line by line, read without what a kill has cut off, and what a full disk costs."""

import contextlib
import io
import json
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.runs import json_lines
from electra_tf.runs.checkpoints import steps_in
from electra_tf.runs.json_lines import JsonLines, evaluation_at, reports_of
from electra_tf.runs.reporting import Reporter
from tests.toy import ToyStage, toy_config

WHOLE = b'{"step": 2, "split": "train", "loss": 1.0}\n'


@pytest.fixture
def metrics_file(tmp_path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_reports_are_those_of_the_split_without_a_torn_last_line(metrics_file):
    assert reports_of(metrics_file, "train") == []
    metrics_file.write_bytes(WHOLE + b'{"step": 2, "split": "held_out", "auc": null}\n{"step": 4, "spl')
    assert reports_of(metrics_file, "train") == [{"step": 2, "split": "train", "loss": 1.0}]
    assert str(evaluation_at(metrics_file, 2)) == "{'auc': nan}"
    assert evaluation_at(metrics_file, 4) == {}


def test_a_damaged_line_is_named_by_file_and_number(metrics_file):
    metrics_file.write_bytes(WHOLE + b'{"step": 4, "spl\n' + WHOLE)
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2"):
        reports_of(metrics_file, "train")


@pytest.mark.parametrize(
    "before",
    [WHOLE + b'{"step": 4, "split": "train"}\n{"step": 5, "spl', WHOLE.rstrip()],
    ids=["later_lines_and_a_torn_one", "a_last_line_without_its_end"],
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
            patched.setattr(json_lines, "open", lambda path, mode, buffering: Full(path, mode), raising=False)
            yield

    return full


def steps_in_file(path) -> list[int]:
    return [json.loads(line)["step"] for line in Path(path).read_text().splitlines()]


def test_lines_that_the_disk_refused_follow_in_their_order_after_one_warning(metrics_file, full_disk, caplog):
    lines = JsonLines(str(metrics_file), last_step=0)
    lines.append({"step": 1})
    with full_disk():
        lines.append({"step": 2})
        lines.append({"step": 3})
        assert steps_in_file(metrics_file) == [1]
        with pytest.raises(UserError, match="metrics.jsonl cannot be written: No space left on device"):
            lines.flush()
    assert len(caplog.messages) == 1 and "metrics.jsonl" in caplog.messages[0]
    lines.append({"step": 4})
    assert steps_in_file(metrics_file) == [1, 2, 3, 4]


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
    assert steps_in_file(tmp_path / "metrics.jsonl") == [1, 2, 4, 6, 8]
    assert steps_in(f"{tmp_path}/checkpoints") == [2, 8]


def test_a_disk_that_stays_full_ends_the_run_with_an_error_after_its_last_step(train_toy, full_disk, tmp_path, capsys):
    with full_disk(), pytest.raises(UserError, match="No space left on device"):
        train_toy(tmp_path)
    assert "step 8/8" in capsys.readouterr().err
    assert steps_in(f"{tmp_path}/checkpoints") == []
