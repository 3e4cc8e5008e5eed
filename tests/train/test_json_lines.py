"""metrics.jsonl: written line by line, read without a line that a kill has cut off."""

from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.train.json_lines import JsonLines, evaluation_at, lost_lines, reports_of

WHOLE = b'{"step": 2, "split": "train", "loss": 1.0}\n'


@pytest.fixture
def metrics_file(tmp_path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_reports_of_a_split_leave_out_a_cut_off_last_line(metrics_file):
    assert reports_of(metrics_file, "train") == []
    metrics_file.write_bytes(WHOLE + b'{"step": 2, "split": "held_out", "auc": null}\n{"step": 4, "spl')
    assert reports_of(metrics_file, "train") == [{"step": 2, "split": "train", "loss": 1.0}]
    assert str(evaluation_at(metrics_file, 2)) == "{'auc': nan}"
    assert evaluation_at(metrics_file, 4) == {}


def test_damaged_line_is_an_error_with_file_and_number(metrics_file):
    metrics_file.write_bytes(WHOLE + b'{"step": 4, "spl\n' + WHOLE)
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2"):
        reports_of(metrics_file, "train")


@pytest.mark.parametrize(
    "before",
    [WHOLE + b'{"step": 4, "split": "train"}\n{"step": 5, "spl', WHOLE.rstrip()],
    ids=["later_lines_and_a_cut_off_one", "a_last_line_without_its_end"],
)
def test_continued_file_keeps_the_whole_lines_up_to_its_step(metrics_file, before):
    metrics_file.write_bytes(before)
    JsonLines(str(metrics_file), last_step=2).append({"step": 3})
    assert metrics_file.read_bytes() == WHOLE + b'{"line": 2, "step": 3}\n'


def test_remote_file_is_written_at_each_flush():
    path = "ram://reporting/metrics.jsonl"
    with tf.io.gfile.GFile(path, "w") as stream:
        stream.write('{"step": 1}\n{"step": 2}\n')
    lines = JsonLines(path, last_step=1)
    for step in (2, 3):
        lines.append({"step": step})
        assert f'"step": {step}' not in tf.io.gfile.GFile(path).read()
        lines.flush()
    assert tf.io.gfile.GFile(path).read() == '{"step": 1}\n{"line": 2, "step": 2}\n{"line": 3, "step": 3}\n'


def write_reports(metrics_file, steps, evaluated=(), last_step: int = 0) -> None:
    lines = JsonLines(str(metrics_file), last_step)
    for step in steps:
        lines.append({"step": step, "split": "train"})
        if step in evaluated:
            lines.append({"step": step, "split": "held_out"})


def remove_lines(metrics_file, *numbers: int) -> None:
    lines = metrics_file.read_bytes().splitlines(keepends=True)
    metrics_file.write_bytes(b"".join(line for number, line in enumerate(lines, start=1) if number not in numbers))


@pytest.mark.parametrize(
    ("lost", "checkpoint", "expected"),
    [
        ((), 44, None),
        ((1,), 44, "1 line between steps 0 and 10"),
        ((3,), 44, "1 line between steps 10 and 20"),  # the evaluation of step 20 comes after it
        ((4,), 44, "1 line between steps 20 and 30"),
        ((2, 3, 6), 44, "2 lines between steps 1 and 20; 1 line between steps 30 and 40"),
        ((7,), 39, None),
        ((6, 7), 44, "all lines after step 30, up to the checkpoint of step 44"),
        ((6, 7), 39, None),
        ((1, 2, 3, 4, 5, 6, 7), 44, "all lines after step 0, up to the checkpoint of step 44"),
        ((1, 2, 3, 4, 5, 6, 7), 9, None),
    ],
)
def test_lost_lines_are_named_by_the_steps_around_them(metrics_file, lost, checkpoint, expected):
    write_reports(metrics_file, (1, 10, 20, 30, 40), evaluated=(20, 40))
    remove_lines(metrics_file, *lost)
    warning = lost_lines(metrics_file, 10, checkpoint)
    assert warning == (expected and f"{metrics_file} has lost {expected}")


def test_other_periods_in_continued_calls_are_no_loss(metrics_file):
    write_reports(metrics_file, (1, 7, 14, 21))
    write_reports(metrics_file, (20, 30), last_step=18)  # continued at step 18, every 10 steps
    assert lost_lines(metrics_file, 10, checkpoint=35) is None
    assert lost_lines(metrics_file, 3, checkpoint=38) is None  # continued every 3 steps, killed before a report
    remove_lines(metrics_file, 3)
    assert "1 line between steps 7 and 20" in lost_lines(metrics_file, 10, checkpoint=35)


def test_a_loss_stays_noticed_after_the_run_was_continued(metrics_file):
    write_reports(metrics_file, (1, 10, 20, 30))
    remove_lines(metrics_file, 2)
    write_reports(metrics_file, (40, 50), last_step=30)
    assert "1 line between steps 1 and 20" in lost_lines(metrics_file, 10, checkpoint=50)


def test_lines_of_older_versions_have_no_numbers(metrics_file):
    metrics_file.write_bytes(WHOLE + b'{"step": 6, "split": "train"}\n')
    write_reports(metrics_file, (8, 10), last_step=6)
    assert lost_lines(metrics_file, 2, checkpoint=10) is None
