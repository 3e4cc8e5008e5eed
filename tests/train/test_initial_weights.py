"""Runs with initial weights from another run."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.train.checkpoints import latest_intact, restore_strictly, steps_in
from tests.toy import TOKENIZER, Regression


def initialize(task, source, tokenizer) -> list[str]:
    assert tokenizer == TOKENIZER
    layers = tf.train.Checkpoint(hidden=task.hidden, output_layer=task.output_layer)  # without the optimizer
    restore_strictly(tf.train.Checkpoint(task=layers), latest_intact(f"{source}/checkpoints"))
    return [f"weights from {source}"]


def test_run_starts_with_the_weights_of_another_and_records_it(whole, train_toy, tensors, tmp_path):
    train_toy(tmp_path, init_from=whole[0], initialize=initialize, stop_at_step=2)
    started, source = (tensors(path) for path in (tmp_path / "checkpoints/step-0", f"{whole[0]}/checkpoints/step-8"))
    weights = [name for name in source if name.startswith("task/")]
    assert len(weights) == 4 and all(np.array_equal(started[name], source[name]) for name in weights)
    assert json.loads((tmp_path / "warm_start.json").read_text()) == {
        "init_from": whole[0],
        "with_optimizer": False,
        "step": 0,
        "report": [f"weights from {whole[0]}"],
    }
    with pytest.raises(UserError, match=rf"init_from=elsewhere: .* was started from {whole[0]}"):
        train_toy(tmp_path, init_from="elsewhere", initialize=initialize)
    train_toy(tmp_path, init_from=whole[0])  # the same source is allowed
    assert steps_in(f"{tmp_path}/checkpoints")[-1] == 8


@pytest.mark.slow
def test_a_run_on_two_replicas_starts_with_the_weights_of_another(whole, train_toy, two_replicas, tmp_path):
    train_toy(tmp_path, init_from=whole[0], initialize=initialize, stop_at_step=1, strategy=two_replicas)
    assert steps_in(f"{tmp_path}/checkpoints") == [0, 1]


@pytest.mark.slow
def test_run_killed_before_its_first_checkpoint_reads_its_source_again(train_toy, whole, tmp_path):
    (tmp_path / "config.yaml").write_text(Path(whole[0], "config.yaml").read_text())
    (tmp_path / "warm_start.json").write_text(json.dumps({"init_from": whole[0], "report": []}))
    train_toy(tmp_path, initialize=initialize, stop_at_step=1)
    assert steps_in(f"{tmp_path}/checkpoints") == [0, 1]


def test_started_run_refuses_init_from(copied, whole, train_toy):
    with pytest.raises(UserError, match="^init_from="):
        train_toy(copied, init_from=whole[0])


def refuse(*_):
    raise UserError("refused")


class Unbuildable(Regression):
    def create_variables(self):
        refuse()


class OfOtherData(Regression):
    def adopt_data(self, data):
        refuse()


@pytest.mark.parametrize(
    ("task", "initialize"),
    [(Unbuildable, None), (OfOtherData, None), (Regression, refuse)],
    ids=["model", "vocabulary", "initial_weights"],
)
def test_a_refused_start_leaves_no_file_and_the_directory_stays_free(train_toy, tmp_path, task, initialize):
    with pytest.raises(UserError, match="refused"):
        train_toy(tmp_path / "run", task=task, initialize=initialize)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    train_toy(tmp_path / "run", stop_at_step=1)
