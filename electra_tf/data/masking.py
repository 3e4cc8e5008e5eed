"""Dynamic masking: which tokens are predicted, and what the generator sees in their place.

Runs in tf.data, over a whole batch at once, from random numbers that belong to each example: a pure function.
Source: paper section 2; pretrain_helpers.py of the authors' code, whose differences are options by name.
"""

import tensorflow as tf

from electra_tf.config.schema import MaskingConfig
from electra_tf.data.selection import MaskingVocabulary, maskable, select, select_distinct, select_with_replacement
from electra_tf.ops.random import RandomStream

__all__ = [
    "MaskingVocabulary",
    "mask_batch",
    "maskable",
    "put_at_positions",
    "put_by_scatter",
    "select_distinct",
    "select_with_replacement",
]


def put_at_positions(ids: tf.Tensor, values: tf.Tensor, positions: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Writes `values` into `ids` at `positions`; where `weights` is 0 nothing is written.

    A position that occurs twice in a row takes its first value. (The authors' code takes the mean of the ids there, an
    arbitrary token.)

    Args:
        ids: [B, S] int32.        values, positions: [B, M] int32, positions in [0, S).
        weights: [B, M] float32, 0 or 1.
    Returns: [B, S] int32.
    Source: Clark et al. 2020, section 2 (REPLACE).
    """
    num_slots = positions.shape[1]
    here = tf.range(ids.shape[1])[tf.newaxis, :, tf.newaxis] == positions[:, tf.newaxis, :]  # [B, S, M]
    here &= (weights > 0)[:, tf.newaxis, :]
    first_slot = tf.reduce_min(tf.where(here, tf.range(num_slots), num_slots), axis=-1)  # [B, S], M where none
    value = tf.gather(values, tf.minimum(first_slot, num_slots - 1), batch_dims=1)
    return tf.where(first_slot < num_slots, value, ids)


def put_by_scatter(ids: tf.Tensor, values: tf.Tensor, positions: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """What `put_at_positions` returns, by way of a scatter.

    In the input pipeline this is a CPU's work, which takes a fifth of the time for it: half of the whole pipeline's
    time less. An accelerator compares faster than it scatters.
    """
    (batch_size, length), num_slots = (tf.shape(ids)[0], ids.shape[1]), positions.shape[1]
    place = tf.where(weights > 0, tf.range(batch_size)[:, tf.newaxis] * length + positions, -1)  # -1: nowhere
    slot = tf.broadcast_to(tf.range(num_slots), tf.shape(place))
    first_slot = tf.math.unsorted_segment_min(slot, place, batch_size * length)  # beyond M where none
    first_slot = tf.reshape(first_slot, [batch_size, length])
    value = tf.gather(values, tf.minimum(first_slot, num_slots - 1), batch_dims=1)
    return tf.where(first_slot < num_slots, value, ids)


def mask_batch(
    batch: dict[str, tf.Tensor], config: MaskingConfig, special: MaskingVocabulary, random: RandomStream
) -> dict[str, tf.Tensor]:
    """Selects tokens for prediction and hides them.

    Per example k = max(1, round(masked_fraction * real tokens)) slots are used, at most M and at most the candidates;
    with whole words k is an upper bound. See `electra_tf.data.selection`.

    Args:
        batch: `input_ids`, `input_mask`, `segment_ids`, each [B, S] int32; S static.
        random: the stream of these examples; other reads of an example come with another stream.
    Returns: the batch with, added:
        masked_input_ids [B, S] int32: what the generator (or BERT) reads;
        masked_lm_positions [B, M] int32, masked_lm_ids [B, M] int32: where, and the original tokens there;
        masked_lm_weights [B, M] float32: 1 for a slot in use; unused slots hold position 0, id 0, weight 0.
    """
    num_slots = config.max_predictions(batch["input_ids"].shape[1])
    selection = select(batch, config, special, num_slots, random.scope("positions"))
    weights = tf.cast(tf.range(num_slots) < selection.count[:, tf.newaxis], tf.float32)
    used = tf.cast(weights, tf.int32)
    positions = selection.positions * used
    original = tf.gather(batch["input_ids"], positions, batch_dims=1) * used
    shown = _shown_tokens(original, selection.unit, config, special, random)
    return {
        **batch,
        "masked_input_ids": put_by_scatter(batch["input_ids"], shown, positions, weights),
        "masked_lm_positions": positions,
        "masked_lm_ids": original,
        "masked_lm_weights": weights,
    }


def _shown_tokens(
    original: tf.Tensor, unit: tf.Tensor | None, config: MaskingConfig, special: MaskingVocabulary, random: RandomStream
) -> tf.Tensor:
    """[B, M] int32: [MASK], a random entry or the token itself, in the configured shares; by units as `Selection`'s."""
    num_examples, num_slots = tf.shape(original)[0], original.shape[1]
    choice = random.scope("shown").uniform(num_examples, (num_slots,))
    if unit is not None:
        choice = tf.gather(choice, unit, batch_dims=1)
    uniform = random.scope("random_tokens").uniform(num_examples, (num_slots,))
    random_ids = tf.minimum(tf.cast(uniform * special.vocab_size, tf.int32), special.vocab_size - 1)
    shown_random = choice < config.mask_token_fraction + config.random_token_fraction
    shown = tf.where(shown_random, random_ids, original)
    return tf.where(choice < config.mask_token_fraction, special.mask_id, shown)
