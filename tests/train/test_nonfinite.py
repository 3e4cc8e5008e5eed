"""Explanations of nonfinite steps."""

import math

import pytest

from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.reporting import explain_nonfinite
from tests.toy import ToyStage, built, toy_config, toy_run


@pytest.mark.parametrize(
    ("replicas", "precision", "nan_steps"), [(1, "float32", (2,)), (1, "bfloat16", (2,)), (2, "float32", ())]
)
def test_a_step_that_is_not_finite_is_explained(two_replicas, tmp_path, replicas, precision, nan_steps):
    """By data that are not finite, or else by a weight."""
    config = toy_config(train={"precision": precision})
    run = toy_run(config, tmp_path, two_replicas if replicas == 2 else None)
    task, stage = built(run), ToyStage(config, nan_steps=nan_steps)
    if not nan_steps:
        task.output_layer.bias.assign([math.nan])
    loop = DeviceLoop(task, run.strategy)
    _, is_nonfinite, metrics = loop.train(task, loop.read(lambda context: stage.training_batches(0, context)), 4)
    assert is_nonfinite
    message = explain_nonfinite(task, task.completed_steps, metrics)
    assert f"step {3 if nan_steps else 1} is not finite (squared_error nan, noise " in message and "\n" not in message
    assert ("gradient_norm nan); weights not finite before it: output/bias;" in message) == (not nan_steps)
    assert ("train.on_nonfinite=skip" in message) == bool(nan_steps)
    assert "start again with a lower optimizer.learning_rate" in message
    assert ("train.precision=float32" in message) == (precision == "bfloat16")
