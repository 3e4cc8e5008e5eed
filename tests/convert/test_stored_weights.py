"""Weights of any store: float32 and finite, or refused by name."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.convert.stored_weights import ArrayReader, StoredWeight, assign_strictly, sound_values


@pytest.mark.parametrize("dtype", [np.float16, tf.bfloat16.as_numpy_dtype, np.float64, np.float32])
def test_every_precision_becomes_float32(dtype):
    value = sound_values("there", {"x": np.array([0.5, -3.0], dtype)})["x"]
    assert (value.dtype, value.tolist()) == (np.float32, [0.5, -3.0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])  # the last one is more than float32 holds
def test_what_is_no_finite_number_is_refused_by_name(value):
    with pytest.raises(UserError, match="^there: b/bias holds NaN or infinity, its training has failed; give an earli"):
        sound_values("there", {"a": np.ones([2]), "b/bias": np.array([1.0, value])})


@pytest.mark.parametrize("value", [np.array([1, 2], np.int8), np.array("text"), b"bytes", np.array([True])])
def test_what_is_no_floating_point_number_is_refused_by_name(value):
    with pytest.raises(UserError, match="^there: b holds no floating-point numbers; give a model's own weights"):
        sound_values("there", {"a": np.ones([2]), "b": value})


def test_nothing_is_assigned_where_one_weight_is_not_finite():
    first, second = tf.Variable([1.0, 2.0]), tf.Variable([3.0])
    reader = ArrayReader({"a": np.array([5.0, 6.0], np.float32), "b": np.array([np.nan], np.float32)})
    weights = [StoredWeight(name, name, variable) for name, variable in (("a", first), ("b", second))]
    with pytest.raises(UserError, match="there: b holds NaN"):
        assign_strictly("there", reader, weights)
    assert first.numpy().tolist() == [1.0, 2.0]


def test_half_precision_is_assigned_as_float32():
    variable = tf.Variable([1.0, 2.0])
    reader = ArrayReader({"a": np.array([0.5, 6.0], np.float16)})
    assert assign_strictly("there", reader, [StoredWeight("a", "a", variable)]) == []
    assert variable.numpy().tolist() == [0.5, 6.0]
