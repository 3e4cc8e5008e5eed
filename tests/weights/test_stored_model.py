"""Stored models: weights of any source become float32 and must be finite; encoders with fewer layers."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.weights.stored_model import sound_weights
from tests.weights.conftest import MODERN, SHALLOW


@pytest.mark.parametrize("dtype", [tf.bfloat16.as_numpy_dtype, np.float64])
def test_every_precision_becomes_float32(dtype):
    value = sound_weights("there", {"x": np.array([0.5, -3.0], dtype)})["x"]
    assert (value.dtype, value.tolist()) == (np.float32, [0.5, -3.0])


# 1e39 is more than float32 holds.
@pytest.mark.parametrize("value", [np.array([1.0, np.nan]), np.array([1e39]), np.array([1, 2], np.int8)])
def test_weights_that_are_not_finite_floats_are_refused_by_name(value):
    with pytest.raises(UserError, match="^there: b/bias holds "):
        sound_weights("there", {"a": np.ones([2]), "b/bias": value})


def test_a_truncated_model_is_an_encoder_with_its_first_layers(stored):
    model = stored(encoder={"num_layers": 3}).truncated(2)
    assert (model.encoder.num_layers, model.generator) == (2, None)
    layers = {name.split("/")[2] for name in model.weights if name.startswith("electra/encoder/")}
    assert layers == {"layer_0", "layer_1"}
    assert {name.split("/")[1] for name in model.weights} == {"embeddings", "embeddings_project", "encoder"}


def test_a_truncated_modern_encoder_keeps_its_last_norm(stored):
    model = stored(encoder=MODERN, objective={"generator": SHALLOW}).truncated(1)
    assert "electra/final_norm/gamma" in model.weights
    assert not any("layer_1" in name or "layer_2" in name for name in model.weights)


def test_the_length_is_that_of_the_training_if_it_is_known(stored, stored_finetuned):
    assert stored(facts={"configuration": {"data": {"max_seq_length": 9}}}).trained_length == 9
    assert stored().trained_length == 13
    assert stored_finetuned({"kind": "regression"}).truncated(1).trained_length == 12


def test_an_encoder_is_not_truncated_to_more_layers_than_it_has(stored):
    with pytest.raises(UserError, match="layers=4: the encoder of a test has 3 layers; give 1 to 3"):
        stored(encoder={"num_layers": 3}).truncated(4)
