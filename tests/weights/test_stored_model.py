"""Stored models: sound weights, encoders with fewer layers, and the encoder that fine-tuning starts from."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.encoder import Encoder, build_encoder
from electra_tf.weights.names import encoder_variables
from electra_tf.weights.source import load_pretrained, load_trained
from electra_tf.weights.stored_model import StoredModel, sound_weights
from tests.weights.conftest import MODERN, SHALLOW, assert_same_weights, refusal, write_tf1_checkpoint


@pytest.mark.parametrize("dtype", [tf.bfloat16.as_numpy_dtype, np.float64])
def test_every_precision_becomes_float32(dtype):
    value = sound_weights("there", {"x": np.array([0.5, -3.0], dtype)})["x"]
    assert (value.dtype, value.tolist()) == (np.float32, [0.5, -3.0])


# 1e39 is more than float32 holds.
@pytest.mark.parametrize("value", [np.array([1.0, np.nan]), np.array([1e39]), np.array([1, 2], np.int8)])
def test_weights_that_are_not_finite_floats_are_refused_by_name(value):
    message = refusal(sound_weights, "there", {"a": np.ones([2]), "b/bias": value})
    assert message.startswith("there: b/bias holds ")


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
    message = refusal(stored(encoder={"num_layers": 3}).truncated, 4)
    assert message.startswith("layers=4: the encoder of a test has 3 layers; give 1 to 3")


def encoder_of(config: EncoderConfig) -> Encoder:
    encoder = build_encoder(config, "float32")
    encoder(*tf.ones([3, 1, 3], tf.int32))
    return encoder


def values_of(encoder: Encoder) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in encoder_variables(encoder).items()}


@pytest.fixture(scope="module")
def tiny_encoder(tiny_pretrained) -> StoredModel:
    return load_pretrained(tiny_pretrained)


def test_a_run_gives_sizes_vocabulary_and_weights(tiny_pretrained, tiny_encoder):
    model, encoder = load_trained(tiny_pretrained).finished(), encoder_of(tiny_encoder.encoder)
    assert (tiny_encoder.encoder, tiny_encoder.origin) == (model.encoder, f"{tiny_pretrained}/checkpoints/step-3")
    assert tiny_encoder.tokenizer.vocabulary.content == model.stored_tokenizer.content
    assert tiny_encoder.assign_encoder(encoder) == f"loaded 23 of 23 encoder variables from {model.source}"
    assert_same_weights(values_of(encoder), model.part("electra/"))


def test_an_authors_checkpoint_gives_sizes_and_weights(tiny_encoder, tiny_pretrained, tmp_path):
    weights = tiny_encoder.part("electra/")
    other = {"another_head/bias": np.ones(6), "global_step": np.array(3)}
    other["electra/embeddings/word_embeddings/adam_m"] = np.ones([47, 12])
    prefix = write_tf1_checkpoint(tmp_path / "model.ckpt-3", weights | other)
    values = {"data": {"vocab_file": f"{tiny_pretrained}/vocab.txt", "cased": True}, "encoder": {"num_heads": 2}}
    found = load_pretrained(prefix, values)
    assert (found.source, found.encoder, found.tokenizer.settings.lower_case) == (prefix, tiny_encoder.encoder, False)
    assert_same_weights(found.weights, weights)


def test_an_encoder_with_fewer_layers_gets_the_first_ones(stored):
    model = stored(encoder={"num_layers": 3})
    encoder = encoder_of(model.encoder.model_copy(update={"num_layers": 2}))
    assert model.assign_encoder(encoder) == "loaded 39 of 55 encoder variables from a test (the first 2 of 3 layers)"
    assert_same_weights(values_of(encoder), model.truncated(2).weights)


def test_an_encoder_with_another_setting_gets_nothing_unless_the_source_states_none(stored):
    model = stored()
    encoder = encoder_of(model.encoder.model_copy(update={"layer_norm_epsilon": 0.5}))
    before = values_of(encoder)
    message = refusal(model.assign_encoder, encoder)
    assert "was trained with encoder.layer_norm_epsilon 1e-12, not 0.5; remove the setting" in message
    assert_same_weights(values_of(encoder), before)
    dataclasses.replace(model, states_settings=False).assign_encoder(encoder)
    assert_same_weights(values_of(encoder), model.part("electra/"))
