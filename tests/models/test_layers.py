"""Dropout, and layers in bfloat16, whose rounding must not reach logits."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.heads import ReplacedTokenHead
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective


def training(step: int = 0, first_example: int = 0) -> ForwardContext:
    return ForwardContext(training=True, random=RandomStream(3, step, first_example))


def encode(encoder, rows: int, context: ForwardContext) -> np.ndarray:
    ids = tf.tile([[2, 9, 8, 7, 31, 3]], [rows, 1])
    output = encoder(ids, input_mask=tf.ones_like(ids), segment_ids=tf.zeros_like(ids), context=context)
    return output.sequence_output.numpy()


def test_dropout_of_a_tenth_zeroes_a_tenth_and_scales_the_rest_up_in_training_alone():
    values = tf.ones([50, 401])
    dropped = training().dropout(values, 0.1, "here").numpy()
    n = dropped.size
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.9)}
    assert abs((dropped == 0).sum() - 0.1 * n) < 4 * math.sqrt(0.1 * 0.9 * n)
    for context, rate in ((INFERENCE, 0.9), (training(), 0.0), (training().frozen(), 0.9)):
        assert context.dropout(values, rate, "here") is values


def test_no_two_draws_of_a_forward_pass_share_a_name(tiny_config, tiny_batch, monkeypatch):
    drawn = []
    original = RandomStream._key
    monkeypatch.setattr(RandomStream, "_key", lambda self: (drawn.append(self._name), original(self))[1])
    config = tiny_config(encoder={"num_layers": 2})
    objective, batch = build_objective(config), tiny_batch(config, [10, 7, 5, 8])
    drawn.clear()
    objective.forward(batch, training())
    # Each network: embeddings and, in each layer, probabilities and two outputs; then the sampling.
    assert len(drawn) == 2 * (1 + 2 * 3) + 1
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("kind", ["hidden_dropout", "attention_dropout"])
def test_each_dropout_rate_has_an_effect_of_its_own_and_in_training_alone(tiny_config, kind):
    rates = {"hidden_dropout": 0.0, "attention_dropout": 0.0, kind: 0.3}
    encoder = build_objective(tiny_config(encoder={**rates, "initializer_range": 0.5})).encoder
    inference = encode(encoder, 4, INFERENCE)
    assert np.abs(encode(encoder, 4, training()) - inference).max() > 0.01
    assert np.array_equal(inference, encode(encoder, 4, ForwardContext(random=RandomStream(3, 0, 0))))


def test_logits_of_the_replaced_token_head_are_not_rounded_to_bfloat16(tiny_config):
    head = ReplacedTokenHead(tiny_config().encoder, dtype="mixed_bfloat16")
    logits = head(tf.cast(np.random.default_rng(0).normal(size=[3, 7, 16]), tf.bfloat16))
    assert logits.dtype == tf.float32
    assert (logits != tf.cast(tf.cast(logits, tf.bfloat16), tf.float32)).numpy().mean() > 0.9
