"""A compiled program and its own gradient, against the formula as ordinary operations and TensorFlow's gradient."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.ops import compilation, fused
from electra_tf.ops.random import RandomStream

EPSILON = 1e-12
# A few roundings of sums of up to 24 float32 terms of size 1; bfloat16 keeps eight bits.
TOLERANCE = {tf.float32: 5e-6, tf.bfloat16: 4e-2}
DTYPES = pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16], ids=["float32", "bfloat16"])


def normal(*shape: int, seed: int, dtype=tf.float32) -> tf.Tensor:
    return tf.cast(np.random.default_rng(seed).normal(size=shape), dtype)


def with_gradients(function, inputs, upstream):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = function(*inputs)
    return [output, *tape.gradient(output, inputs, tf.cast(upstream, output.dtype))]


def assert_alike(function, inputs, upstream, dtype):
    """`function(*inputs, training)`: as a program, and as ordinary operations in float32."""
    exact = [tf.cast(value, tf.float32) for value in inputs]
    expected = with_gradients(lambda *values: function(*values, False), exact, upstream)
    found = with_gradients(lambda *values: function(*values, True), inputs, upstream)
    assert found[0].dtype == dtype
    for index, (value, other) in enumerate(zip(found, expected, strict=True)):
        scale = max(1.0, float(np.abs(other).max()))
        assert np.abs(tf.cast(value, tf.float32) - other).max() < TOLERANCE[dtype] * scale, index
        assert np.abs(other).max() > 0.01, index


@DTYPES
def test_bias_and_gelu(dtype):
    inputs = [normal(2, 5, 12, seed=0, dtype=dtype), normal(12, seed=1, dtype=dtype)]
    assert_alike(fused.bias_gelu, inputs, normal(2, 5, 12, seed=2), dtype)


def test_gelu_weighs_by_the_normal_distribution():
    values = [-6.0, -1.0, -0.1, 0.0, 0.5, 2.0, 7.0]
    expected = [value * 0.5 * math.erfc(-value / math.sqrt(2)) for value in values]
    # 1 + erf rounds at 2^-24 for large negative values.
    assert fused.gelu(tf.constant(values)).numpy() == pytest.approx(expected, rel=1e-6, abs=6 * 2**-24)


@DTYPES
def test_splitting_heads(dtype):
    inputs = [normal(2, 5, 3 * 3 * 4, seed=0, dtype=dtype), normal(36, seed=1, dtype=dtype)]
    split = lambda product, bias, training: tf.stack(fused.split_heads(product, bias, 3, training))  # noqa: E731
    assert_alike(split, inputs, normal(3, 2, 3, 5, 4, seed=2), dtype)


def test_heads_lie_side_by_side_in_each_of_queries_keys_and_values():
    product = tf.reshape(tf.range(12.0), [1, 1, 12])
    found = fused.split_heads(product, tf.zeros([12]), 2, training=True)
    assert [part.numpy()[0, :, 0].tolist() for part in found] == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
        [[8, 9], [10, 11]],
    ]


@DTYPES
def test_adding_and_normalising(dtype):
    shapes = [(2, 5, 24), (24,), (2, 5, 24)]
    inputs = [normal(*shape, seed=index, dtype=dtype) for index, shape in enumerate(shapes)]
    inputs += [normal(24, seed=3), normal(24, seed=4)]

    def output(product, bias, residual, gamma, beta, training):
        options = {"epsilon": EPSILON, "rate": 0.0, "draw": None, "training": training}
        return fused.dropout_add_layer_norm(product, bias, residual, gamma, beta, **options)

    assert_alike(output, inputs, normal(2, 5, 24, seed=5), dtype)


def test_what_is_dropped_before_normalising_is_dropped_on_the_way_back_too():
    draw, rate = RandomStream(3, 0, 0).draw(), 0.4
    kept = draw.keep_mask(rate, 2, (5, 24))
    inputs = [normal(2, 5, 24, seed=0), normal(24, seed=1), normal(2, 5, 24, seed=2), tf.ones([24]), tf.zeros([24])]

    def output(product, bias, residual, gamma, beta, training):
        if training:
            options = {"epsilon": EPSILON, "rate": rate, "draw": draw, "training": True}
            return fused.dropout_add_layer_norm(product, bias, residual, gamma, beta, **options)
        summed = tf.where(kept, (product + bias) / (1 - rate), 0.0) + residual
        return fused.layer_norm(summed, gamma, beta, epsilon=EPSILON)

    assert_alike(output, inputs, normal(2, 5, 24, seed=5), tf.float32)


def test_layer_norm_alone():
    inputs = [normal(2, 5, 24, seed=0), normal(24, seed=1), normal(24, seed=2)]

    def output(values, gamma, beta, training):
        norm = fused.compiled_layer_norm if training else fused.layer_norm
        return norm(values, gamma, beta, epsilon=EPSILON)

    assert_alike(output, inputs, normal(2, 5, 24, seed=3), tf.float32)


def test_the_statistics_of_bfloat16_are_taken_in_float32():
    """In bfloat16 the mean of 256 and 257 and their difference would be lost."""
    values = tf.constant([[256.0, 258.0] * 12], tf.bfloat16)
    normalized = fused.layer_norm(values, tf.ones([24]), tf.zeros([24]), epsilon=EPSILON)
    assert tf.cast(normalized, tf.float32).numpy()[0].tolist() == [-1.0, 1.0] * 12


@DTYPES
@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_attention_probabilities_and_the_gradient_of_the_scores(dtype, rate):
    mask = tf.constant([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    draw = RandomStream(3, 0, 0).draw() if rate else None
    scores, upstream = normal(2, 3, 5, 5, seed=0, dtype=dtype), normal(2, 3, 5, 5, seed=1)

    def dropped(scores, training):
        if training:
            return fused.attention_probs(scores, mask, rate=rate, draw=draw, training=True)[1]
        probs = tf.nn.softmax(tf.where(mask[:, tf.newaxis, tf.newaxis] > 0, scores, -np.inf))
        return tf.where(draw.keep_mask(rate, 2, (3, 5, 5)), probs / (1 - rate), 0.0) if rate else probs

    assert_alike(dropped, [scores], upstream, dtype)


@DTYPES
@pytest.mark.parametrize("direction", ["left_to_right", "right_to_left"])
def test_attention_to_one_side(dtype, direction):
    mask = tf.constant([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    side = np.tril(np.ones([5, 5])) if direction == "left_to_right" else np.triu(np.ones([5, 5]))
    scores, upstream = normal(2, 3, 5, 5, seed=0, dtype=dtype), normal(2, 3, 5, 5, seed=1)

    def attended(scores, training):
        if training:
            options = {"rate": 0.0, "draw": None, "direction": direction}
            return fused.attention_probs(scores, mask, training=True, **options)[1]
        # Where padding is all that is to be seen, it is seen.
        masked = scores + tf.where(mask[:, tf.newaxis, tf.newaxis] > 0, 0.0, -10000.0)
        return tf.nn.softmax(tf.where(side > 0, masked, -np.inf))

    assert_alike(attended, [scores], upstream, dtype)
    for training in (True, False):
        probs, _ = fused.attention_probs(scores, mask, rate=0.0, draw=None, training=training, direction=direction)
        assert not probs.numpy().astype(np.float32)[:, :, side == 0].any()


def test_probabilities_before_dropout_are_given_without_a_gradient():
    mask, draw = tf.ones([2, 5], tf.int32), RandomStream(3, 0, 0).draw()
    scores = normal(2, 3, 5, 5, seed=0)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        probs, _ = fused.attention_probs(scores, mask, rate=0.4, draw=draw, training=True)
    assert probs.numpy().sum(axis=-1) == pytest.approx(1.0, rel=1e-6)
    assert tape.gradient(probs, scores) is None


def test_within_a_program_the_formulas_are_no_programs_of_their_own():
    """Else a step that is compiled as a whole would hold calls that XLA has to flatten, and sums taken as products."""

    def sums(rows):
        with compilation.part_of_one_program():
            return compilation.compiled(compilation.column_sums)(rows)

    graph = tf.function(sums).get_concrete_function(tf.TensorSpec([4, 3])).graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert "Sum" in kinds and not kinds & {"PartitionedCall", "StatefulPartitionedCall", "MatMul"}
