"""Runs with initial weights from another run."""

import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.train.checkpoints import Checkpoints, latest_intact, restore_strictly, steps_in
from electra_tf.train.run_directory import RunDirectory
from tests.toy import TOKENIZER, Regression, toy_config, toy_run
from tests.train.kills import killed_at


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
def test_run_killed_before_its_first_checkpoint_reads_its_source_again(whole, train_toy, two_replicas, tmp_path):
    with killed_at(Checkpoints, "save", 1, "before"):
        train_toy(tmp_path, init_from=whole[0], initialize=initialize)
    train_toy(tmp_path, initialize=initialize, stop_at_step=1, strategy=two_replicas)
    assert steps_in(f"{tmp_path}/checkpoints") == [0, 1]


def test_started_run_refuses_init_from(copied, whole, train_toy):
    with pytest.raises(UserError, match="^init_from="):
        train_toy(copied, init_from=whole[0])


def refuse(*_):
    raise UserError("refused")


@pytest.mark.parametrize("method", ["create_variables", "adopt_data", None])
def test_a_refused_start_leaves_no_file_and_the_directory_stays_free(train_toy, tmp_path, monkeypatch, method):
    """By the model, the vocabulary or the initial weights."""
    with monkeypatch.context() as patched, pytest.raises(UserError, match="refused"):
        if method:
            patched.setattr(Regression, method, refuse)
        train_toy(tmp_path, initialize=None if method else refuse)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    with RunDirectory(tmp_path).locked():
        assert toy_run(toy_config(), tmp_path).begins()
