"""Losses and samples from logits over the vocabulary, with either implementation of the operations.

The logits of all positions of 128 sequences of 128 tokens, with 30,522 entries, take 2 GiB, and their gradient 2 GiB
more. So `token_losses` processes the vectors in parts of at most 256 MiB of logits. It keeps only their log-sum-exp and
computes the logits again for the gradient, a third more work in products. If there is only one part, its logits are
kept.
"""

import math
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf.ops.gradients import WithGradient, custom_gradient
from electra_tf.ops.reference import ReferenceOps

_LOGITS_AT_ONCE = 2**26


def inverse_cdf_sample(masses: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """[N, K] masses, [N, 1] in [0, 1) -> [N] int32: the first index whose cumulative sum exceeds uniform * total.

    No gradient flows through it.
    """
    running = tf.cumsum(masses, axis=1)
    total = running[:, -1:]
    below = tf.reduce_sum(tf.cast(running <= uniform * total, tf.int32), axis=1)
    # If uniform * total rounds to the total, the result must not be beyond the last entry with any mass.
    return tf.minimum(below, tf.reduce_sum(tf.cast(running < total, tf.int32), axis=1))


class TokenLosses(NamedTuple):
    """-log p of two given tokens and of a most likely one for each vector, in nats: [B, S] float32 each."""

    token: tf.Tensor  # the only one with a gradient
    other: tf.Tensor
    most_likely: tf.Tensor


def token_losses(
    ops: ReferenceOps, vectors: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor, other_ids: tf.Tensor
) -> TokenLosses:
    """-log p of `token_ids`, `other_ids` ([B, S] int32) and the most likely token for each vector.

    Args: vectors: [B, S, E] float32, B and S static.        table: [V', E] float32.        bias: [V'] float32.
    """
    assert token_ids.shape.is_fully_defined(), "the number of parts must be static"
    num_vectors = math.prod(token_ids.shape)
    num_parts = min(num_vectors, -(-num_vectors * table.shape[0] // _LOGITS_AT_ONCE))
    part_size = -(-num_vectors // num_parts)
    num_parts = -(-num_vectors // part_size)

    def in_parts(values: tf.Tensor, *shape: int) -> tf.Tensor:
        flat = tf.reshape(values, [num_vectors, *shape])
        flat = tf.pad(flat, [[0, num_parts * part_size - num_vectors]] + [[0, 0]] * len(shape))
        return tf.reshape(flat, [num_parts, part_size, *shape])

    parts = in_parts(vectors, vectors.shape[-1]), in_parts(token_ids), in_parts(other_ids)
    losses = _losses_in_parts(ops, *parts, table, bias)
    token, other, most_likely = (tf.reshape(tf.reshape(part, [-1])[:num_vectors], token_ids.shape) for part in losses)
    return TokenLosses(token, tf.stop_gradient(other), tf.stop_gradient(most_likely))


def _losses_in_parts(
    ops: ReferenceOps, vectors: tf.Tensor, token_ids: tf.Tensor, other_ids: tf.Tensor, table: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """`token_losses` of K parts with N vectors each: three tensors [K, N]; vectors [K, N, E], both ids [K, N]."""

    @custom_gradient
    def operation(vectors: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> WithGradient:
        kept = tf.matmul(vectors[0], table, transpose_b=True) if vectors.shape[0] == 1 else None

        def products_of(rows: tf.Tensor) -> tf.Tensor:
            return tf.matmul(rows, table, transpose_b=True) if kept is None else kept

        def losses_of_part(part: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, ...]:
            rows, ids, others = part
            return ops.token_losses(products_of(rows), bias, ids, others)

        outputs = (tf.TensorSpec(token_ids.shape[1:], tf.float32),) * 4
        parts = (vectors, token_ids, other_ids)
        *losses, log_totals = tf.map_fn(losses_of_part, parts, fn_output_signature=outputs, parallel_iterations=1)

        def backward(upstream: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            def add_part(
                index: tf.Tensor, d_vectors: tf.TensorArray, d_table: tf.Tensor, d_bias: tf.Tensor
            ) -> tuple[Any, ...]:
                rows = vectors[index]
                given = token_ids[index], log_totals[index][:, tf.newaxis], upstream[index]
                d_products, d_part_bias = ops.cross_entropy_gradient(products_of(rows), bias, *given)
                d_vectors = d_vectors.write(index, tf.matmul(d_products, table))
                d_table += tf.matmul(d_products, rows, transpose_a=True)
                return index + 1, d_vectors, d_table, d_bias + d_part_bias

            num_parts = vectors.shape[0]
            d_vectors = tf.TensorArray(tf.float32, num_parts, element_shape=vectors.shape[1:])
            start = tf.constant(0), d_vectors, tf.zeros_like(table), tf.zeros_like(bias)
            _, d_vectors, d_table, d_bias = tf.while_loop(
                lambda index, *_: index < num_parts,
                add_part,
                start,
                parallel_iterations=1,  # one after the other: that is what saves the memory
                maximum_iterations=num_parts,
            )
            return d_vectors.stack(), d_table, d_bias

        return tuple(losses), backward

    return operation(vectors, table, bias)
