"""Draws positions of a sequence, and writes values at positions.

Masking uses these functions in the input pipeline, and some objectives use them on the device.
"""

import math

import tensorflow as tf

from electra_tf.ops.random import RandomStream

# A finite substitute for log(0), still the lowest after noise is added.
LEAST_LOG_WEIGHT = -1e30


def select_distinct(candidates: tf.Tensor, num_slots: int, random: RandomStream) -> tf.Tensor:
    """Draws `num_slots` different positions in random order: candidates, then others if these are too few.

    Args: candidates: [B, S] bool.        random: one stream per use. Returns: [B, M] int32.
    """
    scores = random.uniform(tf.shape(candidates)[0], (candidates.shape[1],))
    return tf.math.top_k(tf.where(candidates, scores, -1.0), k=num_slots).indices


def select_with_replacement(candidates: tf.Tensor, num_slots: int, random: RandomStream) -> tf.Tensor:
    """`num_slots` independent uniform draws from the candidates, as in the authors' code: some positions occur twice.

    Args and returns: as `select_distinct`. A row without candidates gives position 0.
    """
    uniform = random.uniform(tf.shape(candidates)[0], (num_slots,))  # [B, M]
    count = tf.reduce_sum(tf.cast(candidates, tf.int32), axis=1, keepdims=True)
    rank = tf.minimum(tf.cast(uniform * tf.cast(count, tf.float32), tf.int32), tf.maximum(count - 1, 0))
    candidates_first = tf.argsort(tf.cast(~candidates, tf.int32), axis=1, stable=True)
    return tf.gather(candidates_first, rank, batch_dims=1)


def select_weighted(candidates: tf.Tensor, log_weights: tf.Tensor, num_slots: int, random: RandomStream) -> tf.Tensor:
    """Draws different candidate positions one after the other, each with probability proportional to its weight.

    Args and returns: as `select_distinct`; `log_weights` [B, S] float32, the logarithms of the weights.
    Source: sorting by log(weight) plus Gumbel noise gives such draws (Yellott 1977; Kool et al. 2019).
    """
    uniform = random.uniform(tf.shape(candidates)[0], (candidates.shape[1],))
    # Half a step of the 24-bit numbers away from 0, where the logarithm is infinite.
    noise = -tf.math.log(-tf.math.log(uniform + 2.0**-25))
    scores = tf.where(candidates, tf.maximum(log_weights, LEAST_LOG_WEIGHT) + noise, -math.inf)
    return tf.math.top_k(scores, k=num_slots).indices


def put_at_positions(ids: tf.Tensor, values: tf.Tensor, positions: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Writes `values` into `ids` at `positions`; where `weights` is 0 nothing is written.

    Where an example has a position twice, the first value is written. (The authors' code writes the mean of the ids, an
    arbitrary token.)

    Args: ids: [B, S] int32.        values, positions: [B, M] int32.        weights: [B, M] float32, 0 or 1.
    Returns: [B, S] int32. Source: Clark et al. 2020, section 2 (REPLACE).
    """
    num_slots = positions.shape[1]
    # In float32, exact up to 2^24: outside a compiled step TensorFlow compares integers of a GPU on the CPU.
    places, slots = tf.range(float(ids.shape[1])), tf.range(float(num_slots))
    is_match = places[tf.newaxis, :, tf.newaxis] == tf.cast(positions, tf.float32)[:, tf.newaxis, :]  # [B, S, M]
    is_match &= (weights > 0)[:, tf.newaxis, :]
    first_slot = tf.reduce_min(tf.where(is_match, slots, float(num_slots)), axis=-1)  # [B, S], M where none
    return _put_first(ids, values, first_slot)


def put_by_scatter(ids: tf.Tensor, values: tf.Tensor, positions: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """As `put_at_positions`, by a scatter.

    On a CPU this takes a fifth of the time, which halves the time of the whole input pipeline. An accelerator compares
    faster than it scatters.
    """
    (batch_size, length), num_slots = (tf.shape(ids)[0], ids.shape[1]), positions.shape[1]
    index = tf.where(weights > 0, tf.range(batch_size)[:, tf.newaxis] * length + positions, -1)  # -1: nowhere
    slot = tf.broadcast_to(tf.range(num_slots), tf.shape(index))
    first_slot = tf.math.unsorted_segment_min(slot, index, batch_size * length)  # above M where none
    return _put_first(ids, values, tf.reshape(first_slot, [batch_size, length]))


def _put_first(ids: tf.Tensor, values: tf.Tensor, first_slot: tf.Tensor) -> tf.Tensor:
    """[B, S] int32: the value in `first_slot` [B, S], or the id itself where that is M or more."""
    num_slots = tf.cast(values.shape[1], first_slot.dtype)
    value = tf.gather(values, tf.cast(tf.minimum(first_slot, num_slots - 1), tf.int32), batch_dims=1)
    return tf.where(first_slot < num_slots, value, ids)
