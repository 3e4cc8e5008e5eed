"""Weights of any source: float32 and finite, and assigned as a whole or not at all."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.weights.stored_model import assign_weights, sound_weights


@pytest.mark.parametrize("dtype", [np.float16, tf.bfloat16.as_numpy_dtype, np.float64, np.float32])
def test_every_precision_becomes_float32(dtype):
    value = sound_weights("there", {"x": np.array([0.5, -3.0], dtype)})["x"]
    assert (value.dtype, value.tolist()) == (np.float32, [0.5, -3.0])


@pytest.mark.parametrize(
    "value",
    [
        np.array([1.0, np.nan]),
        np.array([1.0, -np.inf]),
        np.array([1e39]),  # more than float32 holds
        np.array([1, 2], np.int8),
        np.array("text"),
        np.array([True]),
    ],
)
def test_values_that_are_no_finite_floating_point_numbers_are_refused_by_name(value):
    with pytest.raises(UserError, match="^there: b/bias holds "):
        sound_weights("there", {"a": np.ones([2]), "b/bias": value})


@pytest.mark.parametrize(
    ("weights", "message"), [({}, "there holds no variable b"), ({"b": np.ones([2])}, r"b has shape \[2\].* is \[1\]")]
)
def test_nothing_is_assigned_where_one_weight_does_not_fit(weights, message):
    variables = {"a": tf.Variable([1.0, 2.0]), "b": tf.Variable([3.0])}
    with pytest.raises(UserError, match=message):
        assign_weights("there", {"a": np.array([5.0, 6.0], np.float32), **weights}, variables)
    assert variables["a"].numpy().tolist() == [1.0, 2.0]
