"""A run's record says what its directory says, and report.py reads it."""

import dataclasses
import functools
import json
import math
import operator

import pytest

import report
from electra_tf.config.errors import UserError
from electra_tf.reports.reading import read_run, read_runs, read_scored_runs
from electra_tf.reports.records import read_record, write_record
from electra_tf.reports.scores import milestone_scores

HELD_OUT = {4: {"masked_lm_accuracy": 0.125}, 12: {"masked_lm_accuracy": 0.1234567891}}


@pytest.fixture
def record(write_run, tmp_path):
    """The file of a run with evaluations, scores and notes."""
    directory = write_run("electra-0", HELD_OUT, optimizer={"learning_rate": 0.00123456789})
    (directory / "data.json").write_text('{"data": ["wikipedia", "books"]}')
    run = dataclasses.replace(read_run(directory), notes={"seconds": 1234.5678, "machine": "x"})
    rows = milestone_scores({4: {0: 0.5, 3: math.nan}, 12: {0: 0.75}}, run.cost)
    write_record(tmp_path / "electra-0.json", run, [{"task": "rte", "metric": "accuracy", "results": rows}])
    return tmp_path / "electra-0.json"


def test_a_record_is_read_back(record, tmp_path):
    run, found = read_run(tmp_path / "electra-0"), read_record(record)
    assert (found.name, found.config, found.data, found.init_from) == (run.name, run.config, run.data, None)
    assert found.metrics == {4: {"masked_lm_accuracy": 0.125}, 12: {"masked_lm_accuracy": 0.123457}}
    assert list(found.metrics) == [4, 12]
    assert found.scores["finetuned_rte"][4] == (0.5, pytest.approx(math.nan, nan_ok=True))
    assert found.scores["finetuned_rte"][12] == (0.75,)
    assert found.notes == {"seconds": 1234.57, "machine": "x"}


def test_equal_runs_have_equal_records_with_sorted_keys(record, tmp_path):
    text = record.read_text()
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"


def test_report_reads_records_beside_directories(record, write_run, capsys):
    other = write_run("electra-1", HELD_OUT, train={"seed": 1}, optimizer={"learning_rate": 0.00123456789})
    (other / "data.json").write_text('{"data": ["wikipedia", "books"]}')
    assert report.main([str(record), str(other), "--metric=masked_lm_accuracy"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("| electra | 0, 1 | 12 |")


def test_the_scores_of_a_record_are_those_of_its_tasks(record, caplog):
    (run,) = read_scored_runs([record], "rte")
    assert run.scores["finetuned_rte"][12] == (0.75,)
    with pytest.raises(UserError, match="none of the runs was fine-tuned on qqp"):
        read_scored_runs([record], "qqp")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"held_out": []}', '{"held_out": {"4": 1}}'])
def test_a_file_that_is_no_record_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=r"a\.json is (damaged|no record of a run)"):
        read_runs([tmp_path / "a.json"])


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["name"], 5, "name is 5: Input should be a valid string"),
        (["held_out"], {}, "held_out is {}: Dictionary should have at least 1 item"),
        (["held_out", "12", "masked_lm_accuracy"], None, "held_out.12.masked_lm_accuracy is None: Input should be a"),
        (["held_out", "4", "masked_lm_accuracy"], "0.5", "held_out.4.masked_lm_accuracy is '0.5': Input should be a"),
        (["held_out", "x"], {}, r"held_out.x.\[key\] is 'x': Input should be a valid integer"),
        (["finetuned", 0, "results", 1, "scores", "0"], "0.5", "finetuned.0.results.1.scores.0 is '0.5': Input should"),
        (["notes"], None, "notes is None: Input should be a valid dictionary"),
        (["notes"], [], r"notes is \[\]: Input should be a valid dictionary"),
        (["notes", "tokens_per_second"], "9", "notes.tokens_per_second is '9': Input should be a valid number"),
        (["notes", "as_masked_lm"], {"masked_lm_accuracy": "1"}, "notes.as_masked_lm.masked_lm_accuracy is '1': Input"),
    ],
)
def test_a_damaged_record_is_refused_with_what_is_wrong_in_it(record, place, value, message):
    content = json.loads(record.read_text())
    *parents, last = place
    functools.reduce(operator.getitem, parents, content)[last] = value
    record.write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"electra-0\.json is no record of a run: {message}"):
        read_record(record)
