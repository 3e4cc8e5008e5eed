"""The formulas of scores over the vocabulary, each as it stands and as a compiled program.

Products are [N, V'] float32: of N vectors with a word table of V' rows, V rounded up to whole rows of 128 columns.
"""

import functools
import math
from collections.abc import Callable

import tensorflow as tf

from electra_tf.models.context import ForwardContext
from electra_tf.ops.compilation import column_sums, compiled

# The vocabulary is read as a table of so many columns, the vector width of a TPU; token t stands in column t % 128.
# Sums down a column are vectorised, and a token is drawn by drawing its column first.
COLUMNS = 128
# The score of what cannot be drawn: entries that fill the last row of that table, and tokens that are ruled out. The
# authors subtract 1000 (pretrain_helpers.py), which a low temperature outweighs.
NEVER = -math.inf
_AS_GOOD_AS_NEVER = -1000.0  # below the largest score: its exponential is 0 in float32


def _scores(products, bias, forbidden_ids, temperature: float) -> tf.Tensor:
    """[N, V'] -> [N, V' / 128, 128]: the scores over the temperature, those ruled out never drawn."""
    scores = (products + bias) * (1.0 / temperature)
    if forbidden_ids is not None:
        scores = tf.where(tf.range(products.shape[1]) == forbidden_ids[:, tf.newaxis], NEVER, scores)
    return tf.reshape(scores, [-1, products.shape[1] // COLUMNS, COLUMNS])


@functools.cache
def sums_program(temperature: float) -> tuple[Callable, Callable]:
    def sums(products, bias, forbidden_ids):
        """-> the largest score of each row [N, 1], and the sums of exp(score - largest) down each column [N, 128]."""
        scores = _scores(products, bias, forbidden_ids, temperature)
        largest = tf.reduce_max(tf.reduce_max(scores, axis=1), axis=1, keepdims=True)
        return largest, tf.reduce_sum(tf.exp(scores - largest[:, tf.newaxis]), axis=1)

    return sums, compiled(sums)


@functools.cache
def column_program(temperature: float) -> tuple[Callable, Callable]:
    def masses(products, bias, forbidden_ids, largest, column):
        """-> [N, V' / 128]: exp(score - largest) down one column of each row."""
        scores = _scores(products, bias, forbidden_ids, temperature)
        return tf.exp(tf.gather(scores, column, axis=2, batch_dims=1) - largest)

    return masses, compiled(masses)


def places_to_draw(context: ForwardContext, num_examples: tf.Tensor, num_slots: int) -> tf.Tensor:
    """[N, 2] float32 in [0, 1), N = B * M: where among the columns each draw falls, and where in its column."""
    assert context.random is not None, "sampling needs a random stream"
    uniform = context.random.scope("categorical").uniform(num_examples, (num_slots, 2))
    return tf.reshape(uniform, [-1, 2])


def place(masses: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """[N, K] masses, [N, 1] in [0, 1) -> [N] int32: the first whose running sum exceeds that share of the total."""
    running = tf.cumsum(masses, axis=1)
    total = running[:, -1:]
    below = tf.reduce_sum(tf.cast(running <= uniform * total, tf.int32), axis=1)
    # A share that rounds to the whole must not lead past the last entry that has any mass.
    return tf.minimum(below, tf.reduce_sum(tf.cast(running < total, tf.int32), axis=1))


def kept_scores_losses(
    products: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor, sums: tuple[tf.Tensor, tf.Tensor]
) -> tf.Tensor:
    """[N, V'], [V'], [N] int32 -> [N] float32; keeps only log-sum-exp for the way back."""

    @tf.custom_gradient
    def operation(products, bias):
        losses, log_totals = _loss_program(products, bias, token_ids, *sums)
        return losses, lambda upstream: loss_gradient_program(products, bias, token_ids, log_totals, upstream)

    return operation(products, bias)


def loss(products, bias, token_ids, largest, column_totals) -> tuple[tf.Tensor, tf.Tensor]:
    """-> -log p(token) [N], and the logarithms of the totals [N, 1]."""
    log_totals = largest + tf.math.log(tf.reduce_sum(column_totals, axis=1, keepdims=True))  # [N, 1]
    return log_totals[:, 0] - chosen_scores(products, bias, token_ids), log_totals


def chosen_scores(products: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor) -> tf.Tensor:
    """[N, V'], [V'], [N] int32 -> [N]: the score of one token a row."""
    return tf.gather(products, token_ids, axis=1, batch_dims=1) + tf.gather(bias, token_ids)


def entropies(products, bias, largest, column_totals) -> tf.Tensor:
    """-> [N]: with s the scores below the largest, log sum exp(s) - sum s exp(s) / sum exp(s)."""
    # Of what cannot be drawn the score is infinite, and times a probability of 0 it would have no value.
    below = tf.maximum(products + bias - largest, _AS_GOOD_AS_NEVER)
    rows = tf.reshape(below * tf.exp(below), [-1, products.shape[1] // COLUMNS, COLUMNS])
    totals = tf.reduce_sum(column_totals, axis=1)
    return tf.math.log(totals) - tf.reduce_sum(tf.reduce_sum(rows, axis=1), axis=1) / totals


def _loss_gradient(products, bias, token_ids, log_totals, upstream) -> tuple[tf.Tensor, tf.Tensor]:
    probs = tf.exp(products + bias - log_totals)
    chosen = tf.cast(tf.range(products.shape[1]) == token_ids[:, tf.newaxis], tf.float32)
    gradient = (probs - chosen) * upstream[:, tf.newaxis]
    return gradient, column_sums(gradient)


_loss_program, loss_gradient_program = compiled(loss), compiled(_loss_gradient)
entropy_program = compiled(entropies)
