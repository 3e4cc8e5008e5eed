"""Losses over the vocabulary for so many vectors that their scores must not be there all at once.

At all positions of 128 sequences of 128, with 30,522 entries, there are 2 GiB of scores and 2 GiB of gradient. Here the
vectors are taken in parts of at most 256 MiB of scores each. Of a part the logarithms of the totals are kept; on the
way back its scores are made once more, a third more work in products. What is no more than one part is kept as it is.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from electra_tf.ops.compilation import compiled
from electra_tf.ops.vocabulary import chosen_scores, loss, loss_gradient_program, sums_program

_SCORES_AT_ONCE = 2**26


class TokenLosses(NamedTuple):
    """-log p of three tokens for each vector, in nats: [B, S] float32 each. Only the first has a gradient.

    Attributes:
        token: the given one.        other: the other given one.        likeliest: one that none is likelier than.
    """

    token: tf.Tensor
    other: tf.Tensor
    likeliest: tf.Tensor


def token_losses(
    vectors: tf.Tensor,
    table: tf.Tensor,
    bias: tf.Tensor,
    token_ids: tf.Tensor,
    other_ids: tf.Tensor,
    run: Callable,
) -> TokenLosses:
    """-log p of two tokens and of the likeliest for each vector.

    Args:
        vectors: [B, S, E] float32, B and S static.        table: [V', E] float32.        bias: [V'] float32.
        token_ids, other_ids: [B, S] int32.
        run: calls either of a formula and its program.
    """
    assert token_ids.shape.is_fully_defined(), "how many parts there are must be known beforehand"
    num_vectors = math.prod(token_ids.shape)
    num_parts = min(num_vectors, -(-num_vectors * table.shape[0] // _SCORES_AT_ONCE))
    part_size = -(-num_vectors // num_parts)
    num_parts = -(-num_vectors // part_size)

    def in_parts(values: tf.Tensor, *shape: int) -> tf.Tensor:
        flat = tf.reshape(values, [num_vectors, *shape])
        flat = tf.pad(flat, [[0, num_parts * part_size - num_vectors]] + [[0, 0]] * len(shape))
        return tf.reshape(flat, [num_parts, part_size, *shape])

    parts = in_parts(vectors, vectors.shape[-1]), in_parts(token_ids), in_parts(other_ids)
    found = _losses_in_parts(*parts, table, bias, run)
    token, other, likeliest = (tf.reshape(tf.reshape(part, [-1])[:num_vectors], token_ids.shape) for part in found)
    return TokenLosses(token, tf.stop_gradient(other), tf.stop_gradient(likeliest))


def _three_losses(products, bias, token_ids, other_ids, largest, column_totals) -> tuple[tf.Tensor, ...]:
    """-> -log p of the tokens, of the others and of the likeliest, and the logarithm of the totals; [N] each."""
    losses, log_totals = loss(products, bias, token_ids, largest, column_totals)
    other = log_totals[:, 0] - chosen_scores(products, bias, other_ids)
    return losses, other, (log_totals - largest)[:, 0], log_totals[:, 0]


def _losses_in_parts(vectors, token_ids, other_ids, table, bias, run: Callable) -> tuple[tf.Tensor, ...]:
    """[K, N, E], [K, N] int32 twice, [V', E], [V'] -> [K, N] float32 three times, as in `TokenLosses`.

    K parts, of whose scores only the logarithms of the totals are kept; a single part keeps its scores.
    """
    programs = _three_losses, _three_losses_program

    @tf.custom_gradient
    def operation(vectors, table, bias):
        kept = tf.matmul(vectors[0], table, transpose_b=True) if vectors.shape[0] == 1 else None

        def products_of(rows: tf.Tensor) -> tf.Tensor:
            return tf.matmul(rows, table, transpose_b=True) if kept is None else kept

        def losses_of_part(part):
            rows, *ids = part
            products = products_of(rows)
            return run(programs, products, bias, *ids, *run(sums_program(1.0), products, bias, None))

        outputs = (tf.TensorSpec(token_ids.shape[1:], tf.float32),) * 4
        parts = (vectors, token_ids, other_ids)
        *losses, log_totals = tf.map_fn(losses_of_part, parts, fn_output_signature=outputs, parallel_iterations=1)

        def backward(upstream, *_):
            def add_part(index, of_vectors, of_table, of_bias):
                rows = vectors[index]
                given = token_ids[index], log_totals[index][:, tf.newaxis], upstream[index]
                of_products, of_part_bias = loss_gradient_program(products_of(rows), bias, *given)
                of_vectors = of_vectors.write(index, tf.matmul(of_products, table))
                of_table += tf.matmul(of_products, rows, transpose_a=True)
                return index + 1, of_vectors, of_table, of_bias + of_part_bias

            num_parts = vectors.shape[0]
            of_vectors = tf.TensorArray(tf.float32, num_parts, element_shape=vectors.shape[1:])
            start = tf.constant(0), of_vectors, tf.zeros_like(table), tf.zeros_like(bias)
            _, of_vectors, of_table, of_bias = tf.while_loop(
                lambda index, *_: index < num_parts,
                add_part,
                start,
                parallel_iterations=1,  # one after the other: that is what saves the memory
                maximum_iterations=num_parts,
            )
            return of_vectors.stack(), of_table, of_bias

        return tuple(losses), backward

    return operation(vectors, table, bias)


_three_losses_program = compiled(_three_losses)
