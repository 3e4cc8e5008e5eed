"""Encoders and their layers: shapes, what attention reads, dropout, bfloat16; the two towers of Electric."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.heads import MaskedLmHead, ReplacedTokenHead
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.models.two_towers import TwoTowerGenerator
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from tests.toy import randomize

SAMPLING = ForwardContext(random=RandomStream(0, 0, 0))
TRAINING = ForwardContext(training=True, random=RandomStream(0, 0, 0))
QUIET = {"num_layers": 3, "initializer_range": 0.5, "hidden_dropout": 0.0, "attention_dropout": 0.0}


@pytest.fixture(scope="module")
def electra(tiny_config):
    keras.utils.set_random_seed(1)
    return build_objective(tiny_config(encoder={"num_layers": 3, "initializer_range": 0.5}))


@pytest.fixture(scope="module")
def batch(tiny_config, tiny_batch):
    return tiny_batch(tiny_config(), [10, 7, 5, 8, 6])


def inputs_of(batch, **changes) -> dict[str, tf.Tensor]:
    return {**{name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}, **changes}


def test_outputs_of_the_discriminator(electra, batch):
    output, creating = electra(batch), ForwardContext(random=RandomStream(0, 0, 0), creates_variables=True)
    created = electra.encoder(**inputs_of(batch), context=creating)
    for layers in (output.all_layer_outputs, created.all_layer_outputs):
        assert [layer.shape for layer in layers] == [(5, 10, 16)] * 3
    assert [probs.shape for probs in output.attention_probs] == [(5, 2, 10, 10)] * 3
    assert np.array_equal(output.pooled_output, output.sequence_output[:, 0])
    assert np.array_equal(output.all_layer_outputs[-1], output.sequence_output)


@pytest.mark.parametrize("attention_mask", ["bidirectional", "left_to_right"])
def test_inference_gives_what_training_gives_without_dropout(tiny_config, batch, attention_mask):
    """tests/train/test_trajectories.py has training, with padding and two segments."""
    config, inputs = tiny_config(encoder=QUIET).encoder, inputs_of(batch)
    encoder = Encoder(config, Embeddings(config), attention_mask)
    encoder(**inputs)
    randomize({variable.path: variable for variable in encoder.variables}, seed=2)
    after, training = (encoder(**inputs, context=each).sequence_output.numpy() for each in (INFERENCE, TRAINING))
    np.testing.assert_allclose(after, training, atol=1e-5)


@pytest.mark.parametrize("name", ["electra", "bert_mlm"])
def test_in_bfloat16_logits_losses_and_weights_are_float32(tiny_config, batch, name):
    objective = build_objective(tiny_config(objective={"name": name}, train={"precision": "bfloat16"}))
    assert objective(batch).sequence_output.dtype == tf.bfloat16
    forward = objective.forward(batch, SAMPLING)
    of_electra = name == "electra"
    logits = [forward.generated.logits, forward.replaced_token_logits] if of_electra else [forward.logits]
    terms = [total.value for total in objective.training_terms(batch, SAMPLING).values()]
    assert {tf.as_dtype(tensor.dtype) for tensor in [*logits, *terms, *objective.trainable_variables]} == {tf.float32}


def test_bfloat16_logits_are_products_with_the_unrounded_table(tiny_config):
    objective = build_objective(tiny_config(train={"precision": "bfloat16"}))
    head = objective.generator.head
    hidden = tf.random.stateless_normal([2, 3, 6], seed=[1, 2])
    transformed = tf.cast(head.layer_norm(head.transform(hidden)), tf.float32).numpy()
    table = objective.discriminator.embeddings.word_embeddings.numpy()
    assert (table != table.astype(tf.bfloat16.as_numpy_dtype)).any()
    # Sums of 12 products in float32.
    np.testing.assert_allclose(head(hidden).logits.numpy(), transformed @ table.T, rtol=0, atol=12 * 2.0**-23)


def test_with_one_row_of_segments_every_token_has_it(tiny_config, batch):
    objective = build_objective(tiny_config(encoder={"type_vocab_size": 1, "initializer_range": 0.5}))
    as_given = objective(batch).sequence_output
    assert np.array_equal(as_given, objective(batch | {"segment_ids": tf.zeros([5, 10], tf.int32)}).sequence_output)
    objective.encoder.embeddings.token_type_embeddings.assign(tf.fill([1, 12], 9.0) * tf.range(12.0))
    assert not np.allclose(as_given, objective(batch).sequence_output)


def test_dropout_of_a_tenth_zeroes_a_tenth_and_scales_the_rest_up_in_training_alone():
    values = tf.ones([50, 401])
    dropped = TRAINING.dropout(values, 0.1, "here").numpy()
    n = dropped.size
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.9)}
    assert abs((dropped == 0).sum() - 0.1 * n) < 4 * math.sqrt(0.1 * 0.9 * n)
    for context, rate in ((INFERENCE, 0.9), (TRAINING, 0.0), (TRAINING.frozen(), 0.9)):
        assert context.dropout(values, rate, "here") is values


def test_no_two_draws_of_a_forward_pass_share_a_name(electra, batch, monkeypatch):
    drawn, original = [], RandomStream._key
    monkeypatch.setattr(RandomStream, "_key", lambda self: (drawn.append(self._name), original(self))[1])
    electra.forward(batch, TRAINING)
    # Each network: embeddings and, in each of 3 layers, probabilities and two outputs; then the sampling.
    assert len(drawn) == 2 * (1 + 3 * 3) + 1
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("kind", ["hidden_dropout", "attention_dropout"])
def test_each_dropout_rate_has_an_effect_of_its_own_and_in_training_alone(tiny_config, batch, kind):
    rates = {"hidden_dropout": 0.0, "attention_dropout": 0.0, kind: 0.3}
    encoder = build_objective(tiny_config(encoder={**rates, "initializer_range": 0.5})).encoder
    inference, sampling, training = (
        encoder(**inputs_of(batch), context=context).sequence_output.numpy()
        for context in (INFERENCE, SAMPLING, TRAINING)
    )
    assert np.abs(training - inference).max() > 0.01
    assert np.array_equal(inference, sampling)


def test_logits_of_the_replaced_token_head_are_not_rounded_to_bfloat16(tiny_config):
    head = ReplacedTokenHead(tiny_config().encoder, dtype="mixed_bfloat16")
    logits = head(tf.cast(np.random.default_rng(0).normal(size=[3, 7, 16]), tf.bfloat16))
    assert logits.dtype == tf.float32
    assert (logits != tf.cast(tf.cast(logits, tf.bfloat16), tf.float32)).numpy().mean() > 0.9


@pytest.fixture(scope="module")
def generator(tiny_config):
    """Two towers of three layers without dropout."""
    sizes = tiny_config(encoder=QUIET).encoder
    keras.utils.set_random_seed(1)
    embeddings = Embeddings(sizes, name="embeddings")
    towers = (Encoder(sizes, embeddings, mask, name=mask) for mask in ("left_to_right", "right_to_left"))
    return TwoTowerGenerator(*towers, MaskedLmHead(sizes, embeddings))


def test_a_prediction_depends_on_every_real_token_but_the_predicted_one(generator, batch):
    every_position = tf.tile(tf.range(10)[tf.newaxis], [5, 1])

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
    assert output.logits.shape == (5, 3, 47) and output.everywhere.logits.shape == (5, 10, 47)
    expected = tf.gather(output.everywhere.logits, batch["masked_lm_positions"], batch_dims=1)
    np.testing.assert_allclose(output.logits, expected, rtol=1e-5, atol=1e-5)


def test_the_logits_at_given_positions_have_no_gradient(generator, batch):
    with tf.GradientTape() as tape:
        output = generator(**inputs_of(batch), positions=batch["masked_lm_positions"], context=TRAINING)
        total = tf.reduce_sum(output.distribution.losses(batch["masked_lm_ids"]))
    towers = (generator.left_to_right, generator.right_to_left)
    kernels = [tower.transformer_layers[0].intermediate.kernel for tower in towers]
    assert tape.gradient(total, kernels) == [None, None]
