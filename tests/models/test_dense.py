"""Dense layers in bfloat16: eight bits of mantissa must not reach sums over tokens, GELU's tail or logits."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.dense import Dense, DenseGelu
from electra_tf.models.heads import ReplacedTokenHead

EPSILON = 2.0**-8  # of one rounding to bfloat16


@pytest.mark.parametrize("training", [False, True])
def test_dense_is_a_product_and_a_bias(training):
    layer = Dense(2, bias_initializer="ones")
    layer.build([None, None, 3])
    layer.kernel.assign([[1.0, 0.0], [0.0, 10.0], [2.0, 0.0]])
    assert layer(tf.constant([[[1.0, 2.0, 3.0]]]), training=training).numpy().tolist() == [[[8.0, 21.0]]]


@pytest.mark.parametrize("kind", [Dense, DenseGelu])
def test_the_gradient_of_a_bias_is_summed_over_many_tokens_without_loss(kind):
    """In bfloat16 a sum of ones ends at 256."""
    layer, values = kind(2, kernel_initializer="zeros", dtype="mixed_bfloat16"), tf.ones([8, 512, 3])
    with tf.GradientTape() as tape:
        output = tf.cast(layer(values, training=True), tf.float32)
    one = 1.0 if kind is Dense else 0.5  # the slope of GELU at 0
    assert tape.gradient(output, layer.bias).numpy().tolist() == [4096 * one] * 2


@pytest.mark.parametrize("training", [False, True])
def test_gelu_of_bfloat16_is_rounded_once(training):
    layer = DenseGelu(1, kernel_initializer="zeros", bias_initializer=tf.constant_initializer(-3.0), dtype="bfloat16")
    found = float(layer(tf.zeros([1, 1, 3], tf.bfloat16), training=training))
    assert found == pytest.approx(-0.00404969, rel=EPSILON)


@pytest.fixture
def head(tiny_config) -> ReplacedTokenHead:
    return ReplacedTokenHead(tiny_config().encoder, dtype="mixed_bfloat16")


def test_logits_of_the_replaced_token_head_are_not_rounded_to_bfloat16(head):
    hidden = tf.cast(np.random.default_rng(0).normal(size=[3, 7, 16]), tf.bfloat16)
    logits = head(hidden)
    assert logits.dtype == tf.float32
    assert (logits != tf.cast(tf.cast(logits, tf.bfloat16), tf.float32)).numpy().mean() > 0.9


def test_the_replaced_token_head_counts_every_token_in_its_last_bias(head):
    with tf.GradientTape() as tape:
        logits = head(tf.ones([8, 512, 16], tf.bfloat16), training=True)
    assert tape.gradient(logits, head.score.bias).numpy().tolist() == [4096.0]
