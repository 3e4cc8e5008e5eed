"""Operations of the encoder that are worth more as one compiled program than as the ten operations they consist of.

Between its matrix products a transformer adds, scales, draws, exponentiates and sums, each over a whole activation.
As single operations every one of them reads and writes main memory, and that, not arithmetic, is where a step's time
goes. Here each stretch between two products is one formula. In training it is compiled by XLA into a program of its own
(in a step that is compiled as a whole, as on a TPU, it becomes part of that) with a gradient that keeps as few tensors
as it can. In inference the same formula runs as ordinary operations, so that a SavedModel needs no compiler.

Everything is computed in float32 inside, whatever the dtype of what comes in and goes out.
"""

import functools
import math
from collections.abc import Callable

import tensorflow as tf

from electra_tf.ops.compilation import column_sums, compiled, computed_once, on_bare_cpu, row_sums, stored
from electra_tf.ops.random import Draw

# Added to the scores of padded keys before the softmax (modeling.py of the authors' code).
_MASKED_SCORE = -10000.0


def float32(values: tf.Tensor) -> tf.Tensor:
    """The values in float32."""
    return tf.cast(values, tf.float32)


def gelu(values: tf.Tensor) -> tf.Tensor:
    """The exact Gaussian error linear unit, by erf and not by the tanh approximation.

    Not `tf.nn.gelu`: its erfc, more exact where the result is below 1e-6 of the input, takes XLA two loops.
    """
    return 0.5 * values * (1.0 + tf.math.erf(values * math.sqrt(0.5)))


def _bias_gelu(product: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.cast(gelu(float32(product) + float32(bias)), product.dtype)


def _bias_gelu_gradient(product: tf.Tensor, bias: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    values = float32(product) + float32(bias)
    below = 0.5 * (1.0 + tf.math.erf(values * math.sqrt(0.5)))
    density = tf.exp(-0.5 * tf.square(values)) * (1.0 / math.sqrt(2.0 * math.pi))
    return tf.cast(float32(upstream) * (below + values * density), product.dtype)


_bias_gelu_programs = compiled(_bias_gelu), compiled(_bias_gelu_gradient)


def bias_gelu(product: tf.Tensor, bias: tf.Tensor, training: bool) -> tf.Tensor:
    """gelu(product + bias): [..., F] and [F] -> [..., F] in the dtype of `product`. The way back computes it again."""
    if not training:
        return _bias_gelu(product, bias)
    forward, gradient = _bias_gelu_programs

    @tf.custom_gradient
    def operation(product, bias):
        def backward(upstream):
            found = gradient(product, bias, upstream)
            return found, _bias_gradient(found, bias)

        return forward(product, bias), backward

    return operation(product, bias)


def add_bias(product: tf.Tensor, bias: tf.Tensor, training: bool) -> tf.Tensor:
    """product + bias: [..., F] and [F] -> [..., F] in the dtype of `product`."""
    if not training:
        return tf.nn.bias_add(product, bias)

    @tf.custom_gradient
    def operation(product, bias):
        return tf.nn.bias_add(product, bias), lambda upstream: (upstream, _bias_gradient(upstream, bias))

    return operation(product, bias)


def _split_heads(product: tf.Tensor, bias: tf.Tensor, num_heads: int) -> tuple[tf.Tensor, ...]:
    length = product.shape[1] or tf.shape(product)[1]
    biased = tf.cast(float32(product) + float32(bias), product.dtype)
    heads = [-1, length, num_heads, product.shape[2] // (3 * num_heads)]
    return tuple(tf.transpose(tf.reshape(part, heads), [0, 2, 1, 3]) for part in tf.split(biased, 3, axis=2))


def split_heads(product: tf.Tensor, bias: tf.Tensor, num_heads: int, training: bool) -> tuple[tf.Tensor, ...]:
    """Queries, keys and values of every head from one product with the three kernels side by side.

    Args:
        product: [B, S, 3 H], queries, keys and values.        bias: [3 H].
    Returns: three tensors [B, A, S, D] in the dtype of `product`.
    """
    if not training:
        return _split_heads(product, bias, num_heads)

    @tf.custom_gradient
    def operation(product, bias):
        def gradient(*upstream):
            # Not compiled: TensorFlow's transpose is three times as fast on a CPU as the one that XLA makes.
            shape = [*tf.unstack(tf.shape(product))[:2], product.shape[2] // 3]
            parts = [tf.reshape(tf.transpose(part, [0, 2, 1, 3]), shape) for part in upstream]
            merged = tf.concat(parts, axis=2)
            return merged, _bias_gradient(merged, bias)

        return _split_heads_program(num_heads)(product, bias), gradient

    return operation(product, bias)


@functools.cache
def _split_heads_program(num_heads: int) -> Callable:
    return compiled(functools.partial(_split_heads, num_heads=num_heads))


def _row_means(rows: tf.Tensor) -> tf.Tensor:
    return row_sums(rows) * (1.0 / rows.shape[-1])


def _bias_gradient(gradient: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """The gradient of a bias from that of what it was added to, [..., F] -> [F] in the dtype of `bias`."""
    if not on_bare_cpu():
        return tf.cast(column_sums(_rows(gradient)), bias.dtype)
    # A product with ones outside of any program: bfloat16 stays as it is, and is summed in float32 all the same.
    rows = tf.reshape(gradient, [-1, gradient.shape[-1]])
    return tf.cast(tf.matmul(tf.ones_like(rows[:, :1]), rows, transpose_a=True)[0], bias.dtype)


def _rows(values: tf.Tensor) -> tf.Tensor:
    """[..., H] -> [N, H] float32."""
    return tf.reshape(float32(values), [-1, values.shape[-1]])


def _dropped(values: tf.Tensor, draw: Draw | None, rate: float) -> tf.Tensor:
    """[B, ...] float32 -> the same, with a share `rate` set to zero and the rest scaled up."""
    if draw is None:
        return values
    kept = draw.keep_mask(rate, values.shape[0] or tf.shape(values)[0], tuple(values.shape[1:]))
    kept = computed_once(kept)
    return tf.where(kept, values * (1.0 / (1.0 - rate)), 0.0)


def _normalized(values: tf.Tensor, epsilon: float) -> tuple[tf.Tensor, tf.Tensor]:
    """[..., H] float32 -> (z - mean) / deviation as rows [N, H], and 1 / deviation [N, 1]."""
    rows = _rows(values)
    centred = rows - _row_means(rows)
    inverse_deviation = tf.math.rsqrt(_row_means(tf.square(centred)) + epsilon)
    return centred * inverse_deviation, inverse_deviation


def layer_norm(values: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *, epsilon: float) -> tf.Tensor:
    """LayerNorm over the last axis, statistics in float32: [..., H], [H], [H] -> [..., H] in the dtype of `values`."""
    normalized, _ = _normalized(values, epsilon)
    return tf.cast(tf.reshape(normalized * gamma + beta, tf.shape(values)), values.dtype)


@functools.cache
def _layer_norm_programs(epsilon: float) -> tuple[Callable, Callable]:
    def gradient(values, gamma, upstream):
        normalized, inverse_deviation = _normalized(values, epsilon)
        found = _layer_norm_gradient(normalized, inverse_deviation, gamma, _rows(upstream))
        return tf.cast(tf.reshape(found[0], tf.shape(values)), values.dtype), *found[1:]

    return compiled(functools.partial(layer_norm, epsilon=epsilon)), compiled(gradient)


def _layer_norm_gradient(normalized: tf.Tensor, inverse_deviation: tf.Tensor, gamma: tf.Tensor, rows: tf.Tensor):
    """The gradients by what was normalised, [N, H], and by gamma and beta; `rows` is the one by the output."""
    scaled = rows * gamma
    values = scaled - _row_means(scaled) - normalized * _row_means(scaled * normalized)
    return values * inverse_deviation, column_sums(rows * normalized), column_sums(rows)


def compiled_layer_norm(values: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *, epsilon: float) -> tf.Tensor:
    """`layer_norm` as one program, with a gradient that normalises again."""
    forward, gradient = _layer_norm_programs(epsilon)

    @tf.custom_gradient
    def operation(values, gamma, beta):
        return forward(values, gamma, beta), lambda upstream: gradient(values, gamma, upstream)

    return operation(values, gamma, beta)


@functools.cache
def _dropout_program(rate: float) -> Callable:
    return compiled(lambda values, draw: tf.cast(_dropped(float32(values), draw, rate), values.dtype))


def dropout(values: tf.Tensor, *, rate: float, draw: Draw) -> tf.Tensor:
    """Zeroes a share `rate` of [B, ...], scales the rest by 1 / (1 - rate). The gradient draws the mask again."""
    program = _dropout_program(rate)

    @tf.custom_gradient
    def operation(values):
        return program(values, draw), lambda upstream: program(upstream, draw)

    return operation(values)


@functools.cache
def _dropout_add_layer_norm_programs(rate: float, epsilon: float) -> tuple[Callable, Callable]:
    def forward(product, bias, residual, gamma, beta, draw):
        summed = stored(_dropped(float32(product) + float32(bias), draw, rate) + float32(residual), gamma)
        normalized, inverse_deviation = _normalized(summed, epsilon)
        output = stored(tf.reshape(normalized * gamma + beta, tf.shape(product)), gamma)
        return tf.cast(output, product.dtype), tf.cast(normalized, product.dtype), inverse_deviation

    def gradient(normalized, inverse_deviation, gamma, draw, upstream):
        found, gamma_gradient, beta_gradient = _layer_norm_gradient(
            float32(normalized), inverse_deviation, gamma, _rows(upstream)
        )
        residual = stored(tf.reshape(found, tf.shape(upstream)), gamma)
        product = tf.cast(_dropped(residual, draw, rate), upstream.dtype)
        return product, tf.cast(residual, upstream.dtype), gamma_gradient, beta_gradient

    return compiled(forward), compiled(gradient)


def dropout_add_layer_norm(
    product: tf.Tensor,
    bias: tf.Tensor,
    residual: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    *,
    epsilon: float,
    rate: float,
    draw: Draw | None,
    training: bool,
) -> tf.Tensor:
    """LayerNorm(dropout(product + bias) + residual).

    For the way back it keeps the normalised sum and one number a row; the dropout mask is drawn again.

    Args:
        product, residual: [B, S, H].        bias, gamma, beta: [H].
        draw: the random numbers of the dropout; None for no dropout.
    Returns: [B, S, H] in the dtype of `product`.
    """
    if not training:
        summed = float32(product) + float32(bias) + float32(residual)
        return tf.cast(layer_norm(summed, gamma, beta, epsilon=epsilon), product.dtype)
    forward, gradient = _dropout_add_layer_norm_programs(rate if draw is not None else 0.0, epsilon)

    @tf.custom_gradient
    def operation(product, bias, residual, gamma, beta):
        output, normalized, inverse_deviation = forward(product, bias, residual, gamma, beta, draw)

        def backward(upstream):
            product_gradient, *others = gradient(normalized, inverse_deviation, gamma, draw, upstream)
            return product_gradient, _bias_gradient(product_gradient, bias), *others

        return output, backward

    return operation(product, bias, residual, gamma, beta)


def _masked_scores(scores: tf.Tensor, key_mask: tf.Tensor) -> tf.Tensor:
    return float32(scores) + (1.0 - float32(key_mask))[:, tf.newaxis, tf.newaxis, :] * _MASKED_SCORE


_masked_scores_program = compiled(_masked_scores)


@functools.cache
def _directed_scores(direction: str) -> tuple[Callable, Callable]:
    """The same for queries that see keys on one side only, and at their own place: formula and program."""

    def scores_of_visible(scores, key_mask):
        places = tf.range(scores.shape[-1] or tf.shape(scores)[-1])
        query, key = places[:, tf.newaxis], places[tf.newaxis, :]
        visible = key <= query if direction == "left_to_right" else key >= query
        # Not merely less likely, as padding is: where all that is visible is padding, it would be seen all the same.
        return tf.where(visible, _masked_scores(scores, key_mask), -math.inf)

    return scores_of_visible, compiled(scores_of_visible)


@functools.cache
def _attention_programs(rate: float, dtype: tf.DType) -> tuple[Callable, Callable]:
    def drop(probs, draw):
        return tf.cast(probs, dtype), tf.cast(_dropped(probs, draw, rate), dtype)

    def gradient(probs, dropped, upstream):
        # upstream * dropped is the gradient of the undropped probabilities times themselves: no mask is needed.
        weighted = _rows(upstream) * _rows(dropped)
        gradient = weighted - _rows(probs) * row_sums(weighted)
        return tf.cast(tf.reshape(gradient, tf.shape(upstream)), dtype)

    return compiled(drop), compiled(gradient)


def attention_probs(
    scores: tf.Tensor,
    key_mask: tf.Tensor,
    *,
    rate: float,
    draw: Draw | None,
    training: bool,
    direction: str = "both",
) -> tuple[tf.Tensor, tf.Tensor]:
    """The softmax over keys, and the same after dropout.

    Args:
        scores: [B, A, S, S], scaled.        key_mask: [B, S] int32, 1 for keys that may be attended to.
        draw: the random numbers of the dropout; None for no dropout.
        direction: `both`; `left_to_right`: a query sees its own place and those before it; `right_to_left`: after it.
    Returns: probabilities before dropout, for inspection only: no gradient flows through them ([B, A, S, S], float32
        in inference), and those to be used, in the dtype of `scores`.
    """
    masked_scores, masked_scores_program = _masked_scores, _masked_scores_program
    if direction != "both":
        masked_scores, masked_scores_program = _directed_scores(direction)
    if not training:
        probs = tf.nn.softmax(masked_scores(scores, key_mask))
        return probs, tf.cast(probs, scores.dtype)
    drop, gradient = _attention_programs(rate if draw is not None else 0.0, scores.dtype)

    @tf.custom_gradient
    def operation(scores):
        # TensorFlow's own softmax is twice as fast on a CPU as the one that XLA makes. The shape, which it has already,
        # is stated for Grappler, which does not see through a program and would print a line about each softmax.
        masked = tf.reshape(masked_scores_program(scores, key_mask), tf.shape(scores))
        probs, dropped = drop(tf.nn.softmax(masked), draw)
        return (probs, dropped), lambda _, upstream: gradient(probs, dropped, upstream)

    probs, dropped = operation(scores)
    return tf.stop_gradient(probs), dropped
