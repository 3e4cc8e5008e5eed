"""Explanations of nonfinite steps."""

import math

import pytest
import tensorflow as tf

from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.reporting import explain_nonfinite
from electra_tf.train.step import compile_task
from tests.toy import Regression, ToyStage, toy_config


@pytest.fixture
def explained(two_replicas):
    """`explained(damage, replicas, nan_steps)`: the explanation for the first step that fails, after `damage(task)`."""

    def explain(damage=lambda task: None, replicas=1, nan_steps=(), **changes) -> str:
        config = toy_config(**changes)
        strategy = two_replicas if replicas == 2 else tf.distribute.OneDeviceStrategy("CPU:0")
        stage = ToyStage(config, nan_steps=nan_steps)
        with strategy.scope():
            task = Regression(config)
            task.create_variables()
            compile_task(task)
            damage(task)
        loop = DeviceLoop(task, strategy)
        _, is_nonfinite, metrics = loop.train(task, loop.read(lambda context: stage.training_batches(0, context)), 4)
        assert is_nonfinite
        message = explain_nonfinite(task, task.completed_steps, metrics)
        assert "\n" not in message
        return message

    return explain


@pytest.mark.parametrize("replicas", [1, 2])
def test_weights_that_are_not_finite_are_named(explained, replicas):
    message = explained(lambda task: task.output_layer.bias.assign([math.nan]), replicas)
    assert "step 1 is not finite (squared_error nan, noise " in message
    assert "gradient_norm nan); weights not finite before it: output/bias; usual causes" in message
    assert "train.on_nonfinite" not in message and "start again with a lower optimizer.learning_rate" in message


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_data_that_is_not_finite_names_its_step_and_no_weight(explained, precision):
    message = explained(nan_steps=(2,), train={"precision": precision})
    assert "step 3 is not finite (squared_error nan, noise " in message
    assert "weights not finite" not in message
    assert ("train.precision=float32" in message) == (precision == "bfloat16")
    assert "optimizer.learning_rate" in message and "train.on_nonfinite=skip" in message
