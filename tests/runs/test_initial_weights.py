"""Runs with initial weights from another run."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.runs.checkpoints import newest_whole, restore_strictly, steps_in


def initialize(task, source) -> list[str]:
    layers = tf.train.Checkpoint(hidden=task.hidden, output_layer=task.output_layer)  # without the optimizer
    restore_strictly(tf.train.Checkpoint(task=layers), newest_whole(f"{source}/checkpoints"))
    return [f"weights from {source}"]


def test_run_starts_with_the_weights_of_another_and_records_it(whole, train_toy, tensors, tmp_path):
    train_toy(tmp_path, init_from=whole[0], initialize=initialize, stop_at_step=2)
    started, source = (tensors(path) for path in (tmp_path / "checkpoints/step-0", f"{whole[0]}/checkpoints/step-8"))
    weights = [name for name in source if name.startswith("task/")]
    assert len(weights) == 4 and all(np.array_equal(started[name], source[name]) for name in weights)
    assert json.loads((tmp_path / "warm_start.json").read_text()) == {
        "init_from": whole[0],
        "report": [f"weights from {whole[0]}"],
    }
    with pytest.raises(UserError, match=rf"--init_from=elsewhere: .* was started from {whole[0]}"):
        train_toy(tmp_path, init_from="elsewhere", initialize=initialize)
    train_toy(tmp_path, init_from=whole[0])  # the same source is allowed
    assert steps_in(f"{tmp_path}/checkpoints")[-1] == 8


def test_run_killed_before_its_first_checkpoint_reads_its_source_again(train_toy, whole, tmp_path):
    (tmp_path / "config.yaml").write_text(Path(whole[0], "config.yaml").read_text())
    (tmp_path / "warm_start.json").write_text(json.dumps({"init_from": whole[0], "report": []}))
    train_toy(tmp_path, initialize=initialize, stop_at_step=1)
    assert steps_in(f"{tmp_path}/checkpoints") == [0, 1]


def test_started_run_refuses_init_from(copied, whole, train_toy):
    with pytest.raises(UserError, match="^--init_from="):
        train_toy(copied, init_from=whole[0])
