"""Explanations of nonfinite steps."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.train.nonfinite import explain_nonfinite
from electra_tf.train.step import compile_task
from tests.toy import Regression, ToyStage, toy_config


@pytest.fixture
def explained(two_replicas):
    """`explained(damage, replicas, nan_steps)`: the explanation for step 8, after `damage(task)`."""

    def explain(damage=lambda task: None, replicas=1, nan_steps=(), **changes) -> str:
        config = toy_config(**changes)
        strategy = two_replicas if replicas == 2 else tf.distribute.OneDeviceStrategy("CPU:0")
        stage = ToyStage(config, nan_steps=nan_steps)
        tf_keras.utils.set_random_seed(5)
        with strategy.scope():
            task = Regression(config)
            task.create_variables()
            compile_task(task)
            damage(task)

        def batches_from(step: int):
            return strategy.distribute_datasets_from_function(lambda context: stage.training_batches(step, context))

        before = [variable.numpy() for variable in task.variables]
        message = explain_nonfinite(task, strategy, batches_from, 7)
        assert all(np.array_equal(a, b.numpy(), equal_nan=True) for a, b in zip(before, task.variables, strict=True))
        assert "\n" not in message
        return message

    return explain


@pytest.mark.parametrize("replicas", [1, 2])
def test_nonfinite_weights_and_gradients_are_named(explained, replicas):
    message = explained(lambda task: task.output_layer.bias.assign([math.nan]), replicas)
    assert "step 8 is not finite (squared_error nan, noise " in message
    assert "weights not finite before it: output/bias; " in message
    assert "gradients not finite: output/bias, output/kernel, hidden/bias, hidden/kernel; usual causes" in message


def test_nonfinite_data_names_no_weight(explained):
    message = explained(nan_steps=(7,))
    assert "step 8 is not finite (squared_error nan, noise " in message
    assert "weights not finite" not in message


def test_largest_gradients_are_named_if_the_repeated_step_is_finite(explained):
    message = explained()
    assert "step 8 is not finite (" in message and "computed again, all is finite" in message
    norms = [float(entry.split()[1]) for entry in message.partition("norms: ")[2].partition("; ")[0].split(", ")]
    assert len(norms) == 4 and norms == sorted(norms, reverse=True) and norms[-1] > 0.0


def test_micro_batches_of_the_step_are_repeated_together(explained):
    losses = [explained(train={"gradient_accumulation_steps": parts}).partition("(")[2].split()[1] for parts in (1, 2)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_float32_is_no_advice_to_a_run_in_float32(explained, precision):
    message = explained(nan_steps=(7,), train={"precision": precision})
    assert ("train.precision=float32" in message) == (precision == "bfloat16")
    assert "optimizer.learning_rate" in message and "train.on_nonfinite=skip" in message


def test_leaving_steps_out_is_no_advice_if_the_weights_are_not_finite(explained):
    message = explained(lambda task: task.output_layer.bias.assign([math.nan]))
    assert "train.on_nonfinite" not in message and "start again with a lower optimizer.learning_rate" in message
