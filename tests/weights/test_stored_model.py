"""Weights of any source become float32 and must be finite."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.weights.stored_model import sound_weights


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
def test_weights_that_are_not_finite_floats_are_refused_by_name(value):
    with pytest.raises(UserError, match="^there: b/bias holds "):
        sound_weights("there", {"a": np.ones([2]), "b/bias": value})
