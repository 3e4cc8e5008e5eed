"""The records of runs."""

import json
import math

import pytest

from electra_tf.config.errors import UserError
from electra_tf.reports.runs import RunResults
from electra_tf.tasks.finetune.summary import milestone_scores
from experiments.replication.record import read_record, write_record


@pytest.fixture
def run(tiny_config) -> RunResults:
    """A run with evaluations and notes."""
    held_out = {4: {"masked_lm_accuracy": 0.125}, 12: {"masked_lm_accuracy": 0.1234567891}}
    config = tiny_config(optimizer={"learning_rate": 0.00123456789})
    notes = {"seconds": 1234.5678, "machine": "x"}
    return RunResults("electra-0", config, held_out, data=["wikipedia", "books"], notes=notes)


@pytest.fixture
def record(run, tmp_path):
    """The file of the run's record, with scores."""
    rows = milestone_scores({4: {0: 0.5, 3: math.nan}, 12: {0: 0.75}}, run.cost)
    write_record(tmp_path / "electra-0.json", run, [{"task": "rte", "metric": "accuracy", "results": rows}])
    return tmp_path / "electra-0.json"


def test_a_record_is_read_back_with_measured_numbers_rounded(record, run):
    loaded = read_record(record)
    assert (loaded.name, loaded.config, loaded.data, loaded.init_from) == (run.name, run.config, run.data, None)
    assert loaded.metrics == {4: {"masked_lm_accuracy": 0.125}, 12: {"masked_lm_accuracy": 0.123457}}
    assert list(loaded.metrics) == [4, 12]
    assert loaded.scores["finetuned_rte"][4] == (0.5, pytest.approx(math.nan, nan_ok=True))
    assert loaded.scores["finetuned_rte"][12] == (0.75,)
    assert loaded.notes == {"seconds": 1234.57, "machine": "x"}


def test_a_record_has_sorted_keys(record):
    text = record.read_text()
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"


def test_another_json_file_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"held_out": {}}')
    with pytest.raises(UserError, match=r"a\.json is no record"):
        read_record(tmp_path / "a.json")
