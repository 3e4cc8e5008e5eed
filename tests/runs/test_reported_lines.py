"""A run's reports, read from lines that are whole, torn or damaged."""

import pytest

from electra_tf.config.errors import UserError
from electra_tf.runs.directory import drop_lines_after
from electra_tf.runs.reported_lines import reports_of

WHOLE = b'{"step": 2, "split": "train", "loss": 1.0}\n'


@pytest.fixture
def metrics_file(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_a_torn_last_line_is_no_report(metrics_file):
    metrics_file.write_bytes(WHOLE + b'{"step": 4, "spl')
    assert reports_of(metrics_file, "train") == [{"step": 2, "split": "train", "loss": 1.0}]


def test_without_a_file_there_are_no_reports(metrics_file):
    assert reports_of(metrics_file, "train") == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"step": 4}\n',
        b'{"step": null, "split": "train"}\n',
        b'{"step": "x", "split": "train"}\n',
        b'{"step": 4, "spl\n' + WHOLE,
        b'{"step": 4, "split": "tr\xffin"}\n' + WHOLE,
        b"[4]\n",
    ],
    ids=["no_split", "no_step", "step_of_text", "torn_in_the_middle", "no_utf_8", "no_object"],
)
def test_a_damaged_line_is_named_by_file_and_number(metrics_file, line):
    metrics_file.write_bytes(WHOLE + line)
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: expected .* found '.*; mend the line or remove it"):
        reports_of(metrics_file, "train")


def test_a_directory_in_the_place_of_the_file_is_refused(metrics_file):
    metrics_file.mkdir()
    with pytest.raises(UserError, match=r"metrics\.jsonl cannot be read: Is a directory"):
        reports_of(metrics_file, "train")


def test_a_run_that_continues_drops_damaged_lines_with_those_that_it_writes_again(metrics_file):
    damaged = b'{"step": null}\n{"step": 1, "x": "\xff"}\n'
    metrics_file.write_bytes(WHOLE + damaged + b'{"step": 4, "split": "train"}\n')
    drop_lines_after(metrics_file, 2)
    assert metrics_file.read_bytes() == WHOLE
