"""The plain operations equal literals and NumPy; sums and statistics of bfloat16 are computed in float32."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.ops.random import RandomStream
from electra_tf.ops.reference import REFERENCE, AttentionOptions, gelu

EPSILON = 1e-12
BFLOAT16_ROUNDING = 2.0**-8


def normal(*shape: int, seed: int = 0, dtype=tf.float32) -> tf.Tensor:
    return tf.cast(np.random.default_rng(seed).normal(size=shape), dtype)


def test_gelu_is_exact():
    values = [-6.0, -1.0, -0.1, 0.0, 0.5, 2.0, 7.0]
    expected = [value * 0.5 * math.erfc(-value / math.sqrt(2)) for value in values]
    # 1 + erf rounds at 2^-24 for large negative values.
    assert gelu(tf.constant(values)).numpy() == pytest.approx(expected, rel=1e-6, abs=6 * 2**-24)


def test_gelu_of_bfloat16_is_rounded_once():
    actual = REFERENCE.bias_gelu(tf.zeros([1, 1, 1], tf.bfloat16), tf.constant([-3.0], tf.bfloat16))
    assert actual.dtype == tf.bfloat16
    assert float(actual[0, 0, 0]) == pytest.approx(-0.00404969, rel=BFLOAT16_ROUNDING)


@pytest.mark.parametrize(("operation", "slope"), [(REFERENCE.add_bias, 1.0), (REFERENCE.bias_gelu, 0.5)])
def test_the_gradient_of_a_bfloat16_bias_is_summed_in_float32(operation, slope):
    """In bfloat16 a sum of ones ends at 256."""
    bias = tf.zeros([2], tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(bias)
        output = operation(tf.zeros([8, 512, 2], tf.bfloat16), bias)
    assert tape.gradient(output, bias).numpy().tolist() == [4096 * slope] * 2


def test_layer_norm_of_bfloat16_computes_in_float32():
    """In bfloat16 neither the mean of 256 and 258 nor their difference from it is exact."""
    values = tf.constant([[256.0, 258.0] * 12], tf.bfloat16)
    normalized = REFERENCE.layer_norm(values, tf.ones([24]), tf.zeros([24]), epsilon=EPSILON)
    assert tf.cast(normalized, tf.float32).numpy()[0].tolist() == [-1.0, 1.0] * 12


def test_dropout_comes_before_the_residual_and_the_normalisation():
    dropout_key = RandomStream(3, 0, 0).dropout_key(0.4)
    product, bias, residual = normal(2, 5, 24), normal(24, seed=1), normal(2, 5, 24, seed=2)
    actual = REFERENCE.dropout_add_layer_norm(
        product, bias, residual, tf.ones([24]), tf.zeros([24]), epsilon=EPSILON, dropout_key=dropout_key
    )
    keep = dropout_key.keep_mask(2, (5, 24)).numpy()
    summed = np.where(keep, (product + bias).numpy() / (1 - 0.4), 0.0) + residual.numpy()
    expected = (summed - summed.mean(-1, keepdims=True)) / summed.std(-1, keepdims=True)
    assert actual.numpy() == pytest.approx(expected, abs=1e-5)


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
SIDES = {
    "bidirectional": np.ones([5, 5]),
    "left_to_right": np.tril(np.ones([5, 5])),
    "right_to_left": np.triu(np.ones([5, 5])),
}


@pytest.mark.parametrize("attention_mask", SIDES)
def test_attention_is_a_softmax_over_the_visible_keys(attention_mask):
    scores, side = normal(2, 3, 5, 5), SIDES[attention_mask]
    probs = REFERENCE.attention_probs(scores, tf.constant(MASK), AttentionOptions(attention_mask=attention_mask))
    # Where all visible keys are padding, they are attended to.
    padded = scores.numpy() + np.where(MASK[:, np.newaxis, np.newaxis] > 0, np.float32(0), np.float32(-10000))
    visible = np.where(side > 0, padded, -np.inf)
    powers = np.exp(visible - visible.max(-1, keepdims=True))
    assert probs.numpy() == pytest.approx(powers / powers.sum(-1, keepdims=True), abs=1e-6)
    assert not probs.numpy()[:, :, side == 0].any()


def test_dropout_scales_the_probabilities_that_it_keeps():
    dropout_key = RandomStream(3, 0, 0).dropout_key(0.4)
    scores = normal(2, 3, 5, 5)
    dropped = REFERENCE.attention_probs(scores, tf.ones([2, 5]), AttentionOptions(dropout_key))
    keep = dropout_key.keep_mask(2, (3, 5, 5)).numpy()
    assert dropped.numpy() == pytest.approx(np.where(keep, tf.nn.softmax(scores).numpy() / 0.6, 0.0), rel=1e-6)
