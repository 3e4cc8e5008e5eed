"""The two towers of Electric: which tokens a prediction depends on."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.heads import MaskedLmHead
from electra_tf.models.layers import ForwardContext
from electra_tf.models.two_towers import TwoTowerGenerator
from electra_tf.ops.random import RandomStream

LENGTHS = [10, 7, 5]


@pytest.fixture(scope="module")
def generator(tiny_config):
    """Two encoders of three layers without dropout."""
    quiet = {"num_layers": 3, "initializer_range": 0.5, "hidden_dropout": 0.0, "attention_dropout": 0.0}
    sizes = tiny_config(encoder=quiet).encoder
    keras.utils.set_random_seed(1)
    embeddings = Embeddings(sizes, name="embeddings")
    towers = (Encoder(sizes, embeddings, mask, name=mask) for mask in ("left_to_right", "right_to_left"))
    return TwoTowerGenerator(*towers, MaskedLmHead(sizes, embeddings))


@pytest.fixture(scope="module")
def batch(tiny_config, tiny_batch):
    return tiny_batch(tiny_config(), LENGTHS)


def inputs_of(batch, **changes) -> dict[str, tf.Tensor]:
    return {**{name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}, **changes}


def test_a_prediction_depends_on_every_real_token_but_the_predicted_one(generator, batch):
    every_position = tf.tile(tf.range(10)[tf.newaxis], [3, 1])

    def logits(ids):
        return generator(**inputs_of(batch, input_ids=ids), positions=every_position).logits.numpy()

    before = logits(batch["input_ids"])
    for position in range(7):
        ids = batch["input_ids"].numpy()
        ids[1, position] = 5 + (ids[1, position] + 1) % 42
        difference = np.abs(logits(tf.constant(ids)) - before)[1, :7].max(axis=-1)
        assert difference[position] == 0.0
        assert (np.delete(difference, position) > 0).all()


def test_logits_at_given_positions_equal_those_at_all_positions(generator, batch):
    output = generator(**inputs_of(batch), positions=batch["masked_lm_positions"])
    assert output.logits.shape == (3, 3, 47) and output.everywhere.logits.shape == (3, 10, 47)
    expected = tf.gather(output.everywhere.logits, batch["masked_lm_positions"], batch_dims=1)
    np.testing.assert_allclose(output.logits, expected, rtol=1e-5, atol=1e-5)


def test_the_logits_at_given_positions_have_no_gradient(generator, batch):
    with tf.GradientTape() as tape:
        context = ForwardContext(training=True, random=RandomStream(0, 0, 0))
        output = generator(**inputs_of(batch), positions=batch["masked_lm_positions"], context=context)
        total = tf.reduce_sum(output.distribution.losses(batch["masked_lm_ids"]))
    towers = (generator.left_to_right, generator.right_to_left)
    kernels = [tower.transformer_layers[0].intermediate.kernel for tower in towers]
    assert tape.gradient(total, kernels) == [None, None]
