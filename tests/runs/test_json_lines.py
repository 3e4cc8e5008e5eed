"""metrics.jsonl: written line by line, read without a line that a kill has cut off."""

from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.runs.json_lines import JsonLines, evaluation_at, reports_of

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
