"""Dynamic masking: selects the tokens to predict, and hides them from the generator.

A pure function of a batch and the random numbers of its examples, with static shapes, for tf.data. Below, k is the
number of tokens to select in a row: max(1, round(masked_fraction * real tokens)), but at most M and the number of
candidates.
Source: paper section 2; pretrain_helpers.py of the authors' code. Where our default differs, an option gives theirs.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config.schema import MaskingConfig
from electra_tf.data.batch import Batch
from electra_tf.ops import positions as draws
from electra_tf.ops.positions import put_by_scatter
from electra_tf.ops.random import RandomStream


@dataclass(frozen=True)
class MaskingVocabulary:
    """The properties of the vocabulary that masking uses.

    Attributes:
        is_continuation: [V] bool, true for pieces that continue a word; for the scheme whole_word.
        token_counts: [V] int64, how often each entry occurs in the training split; None if unknown.
        unigram_losses: [V] float32, -log of the frequency of each entry there; None if unknown.
    """

    cls_id: int
    sep_id: int
    mask_id: int
    vocab_size: int
    is_continuation: npt.NDArray[np.bool_] | None = None
    token_counts: npt.NDArray[np.int64] | None = None
    unigram_losses: npt.NDArray[np.float32] | None = None


class Selection(NamedTuple):
    """The selected tokens.

    Attributes:
        positions: [B, M] int32. Slots from `count` on hold arbitrary positions.
        count: [B] int32, the number of slots in use.
        unit: [B, M] int32 in [0, M), equal for tokens that are shown in the same way (all as [MASK], for example); None
            if each token is drawn independently.
    """

    positions: tf.Tensor
    count: tf.Tensor
    unit: tf.Tensor | None = None


def mask_batch(
    batch: Batch,
    config: MaskingConfig,
    vocabulary: MaskingVocabulary,
    random: RandomStream,
    progress: float | tf.Tensor = 0.0,
) -> Batch:
    """Selects tokens for prediction and hides them.

    Args:
        batch: the tensors of `TEXT_TENSORS`; S static.
        random: the random stream of these examples; it differs each time that an example is read.
        progress: the share of the steps that are done, scalar float32, for a `masked_fraction` that changes.
    Returns: a batch of `PRETRAINING_BATCH`. Unused slots hold zeros; if the vocabulary lacks unigram losses, those
        of the other slots are NaN.
    """
    ids = batch["input_ids"]
    num_rows, num_slots = tf.shape(ids)[0], config.max_predictions(ids.shape[1])
    masked_fraction = config.fraction_at(progress)
    selection = select(batch, config, masked_fraction, vocabulary, num_slots, random.fold_in("positions"))
    weights = tf.cast(tf.range(num_slots) < selection.count[:, tf.newaxis], tf.float32)
    used = tf.cast(weights, tf.int32)
    positions = selection.positions * used
    original = tf.gather(ids, positions, batch_dims=1) * used  # [B, M]

    choice = random.fold_in("shown").uniform(num_rows, (num_slots,))
    if selection.unit is not None:
        choice = tf.gather(choice, selection.unit, batch_dims=1)
    uniform = random.fold_in("random_tokens").uniform(num_rows, (num_slots,))
    random_ids = tf.minimum(tf.cast(uniform * vocabulary.vocab_size, tf.int32), vocabulary.vocab_size - 1)
    is_mask = choice < config.mask_token_fraction
    is_random = choice < config.mask_token_fraction + config.random_token_fraction
    shown = tf.where(is_mask, vocabulary.mask_id, tf.where(is_random, random_ids, original))
    unigram_losses = tf.fill(tf.shape(original), math.nan)
    if vocabulary.unigram_losses is not None:
        unigram_losses = tf.gather(tf.constant(vocabulary.unigram_losses), original)
    return {
        **batch,
        "masked_input_ids": put_by_scatter(ids, shown, positions, weights),
        "masked_lm_positions": positions,
        "masked_lm_ids": original,
        "masked_lm_weights": weights,
        "mask_token_weights": weights * tf.cast(is_mask, tf.float32),
        "unigram_losses": tf.where(weights > 0.0, unigram_losses, 0.0),
    }


def select(
    batch: Batch,
    config: MaskingConfig,
    masked_fraction: float | tf.Tensor,
    vocabulary: MaskingVocabulary,
    num_slots: int,
    random: RandomStream,
) -> Selection:
    """Selects tokens by the configured scheme. Candidates are the real tokens except [CLS], [SEP] and [MASK]."""
    ids, input_mask = batch["input_ids"], batch["input_mask"]
    is_special = (ids == vocabulary.cls_id) | (ids == vocabulary.sep_id) | (ids == vocabulary.mask_id)
    candidates = (input_mask > 0) & ~is_special
    num_tokens = tf.cast(tf.reduce_sum(input_mask, axis=1), tf.float32)
    num_candidates = tf.reduce_sum(tf.cast(candidates, tf.int32), axis=1)
    count = tf.maximum(tf.cast(tf.round(num_tokens * masked_fraction), tf.int32), 1)
    count = tf.minimum(count, tf.minimum(num_candidates, num_slots))  # [B], k

    if config.scheme == "uniform":
        draw = {"distinct": draws.select_distinct, "with_replacement": draws.select_with_replacement}[config.selection]
        return Selection(draw(candidates, num_slots, random), count)
    if config.scheme == "rare_tokens":
        assert vocabulary.token_counts is not None, "open_data refuses data without counts"
        log_weights = -config.rarity_exponent * np.log(np.maximum(vocabulary.token_counts, 1).astype(np.float64))
        log_weights = np.maximum(log_weights - log_weights.max(), draws.LEAST_LOG_WEIGHT).astype(np.float32)
        weights = tf.gather(tf.constant(log_weights), ids)
        return Selection(draws.select_weighted(candidates, weights, num_slots, random), count)
    if config.scheme == "span":
        return select_spans(candidates, count, config, num_slots, random)
    assert config.scheme == "whole_word" and vocabulary.is_continuation is not None
    continues = tf.gather(tf.constant(vocabulary.is_continuation), ids)
    return select_words(candidates, continues, count, num_slots, random)


def select_spans(
    candidates: tf.Tensor, count: tf.Tensor, config: MaskingConfig, num_slots: int, random: RandomStream
) -> Selection:
    """Selects spans of neighbouring candidates, k tokens in total; spans do not overlap or cross a special token.

    Spans are drawn one after the other. The length is geometric, at most `max_span_length`, and cut to what is left
    of k. The first position is uniform among those where the span fits; if it fits nowhere, it becomes as long as
    possible. All tokens of a span are shown in one way (masked, replaced or unchanged), as in SpanBERT.

    Args:
        candidates: [B, S] bool.        count: [B] int32, k.
    Source: Joshi et al. 2019 (SpanBERT), section 3.1; their spans are of whole words.
    """
    num_rows, positions = tf.shape(candidates)[0], tf.range(candidates.shape[1])
    uniform = random.uniform(num_rows, (num_slots, 2))  # for the length and the first position of each span
    lengths = _span_lengths(uniform[:, :, 0], config)

    def add_span(index: tf.Tensor, span_of: tf.Tensor, remaining: tf.Tensor) -> tuple[tf.Tensor, ...]:
        num_free = _num_free_from(candidates & (span_of < 0))  # [B, S]
        wanted = tf.minimum(lengths[:, index], remaining)
        size = tf.minimum(wanted, tf.reduce_max(num_free, axis=1))[:, tf.newaxis]
        fits = tf.cast(num_free >= size, tf.int32)
        num_fitting = tf.cast(tf.reduce_sum(fits, axis=1, keepdims=True), tf.float32)
        rank = tf.cast(uniform[:, index, 1:] * num_fitting, tf.int32)
        begin = tf.reduce_sum(tf.cast(tf.cumsum(fits, axis=1) <= rank, tf.int32), axis=1, keepdims=True)
        span_of = tf.where((positions >= begin) & (positions < begin + size), index, span_of)
        return index + 1, span_of, remaining - size[:, 0]

    _, span_of, _ = tf.while_loop(
        lambda index, span_of, remaining: tf.reduce_any(remaining > 0),
        add_span,
        (tf.constant(0), tf.fill(tf.shape(candidates), -1), count),
        maximum_iterations=num_slots,
    )
    selected = _selected_first(span_of >= 0, num_slots)
    return Selection(selected, count, unit=tf.maximum(tf.gather(span_of, selected, batch_dims=1), 0))


def _span_lengths(uniform: tf.Tensor, config: MaskingConfig) -> tf.Tensor:
    """Turns uniform numbers into lengths (int32): P(l) ~ (1 - p) ** (l - 1) for l up to `max_span_length`."""
    end, longest = config.span_end_probability, config.max_span_length
    if end == 1.0:
        return tf.ones_like(uniform, tf.int32)
    # The inverse of the cumulative distribution function.
    remaining = 1.0 - uniform * (1.0 - (1.0 - end) ** longest)
    return tf.clip_by_value(1 + tf.cast(tf.math.log(remaining) / math.log1p(-end), tf.int32), 1, longest)


def _num_free_from(free: tf.Tensor) -> tf.Tensor:
    """[B, S] bool -> [B, S] int32: the length of the run of free positions that begins at each position."""
    length = free.shape[1]
    positions = tf.range(length)
    # The next position that is not free: a running minimum from the right, in log2(S) steps.
    end, shift = tf.where(free, length, positions), 1
    while shift < length:
        end = tf.minimum(end, tf.pad(end[:, shift:], [[0, 0], [0, shift]], constant_values=length))
        shift *= 2
    return end - positions


def select_words(
    candidates: tf.Tensor, continues: tf.Tensor, count: tf.Tensor, num_slots: int, random: RandomStream
) -> Selection:
    """Selects whole words with all their pieces, at most k tokens in total.

    BERT's rule: words are taken in random order, and a word whose pieces would exceed k is skipped. So a row may give
    fewer than k tokens, or none. Each piece of a word is masked, replaced or left unchanged independently.

    Args:
        candidates: [B, S] bool.        count: [B] int32, k.
        continues: [B, S] bool, true for pieces that continue a word; after a special token they begin one.
    Source: create_pretraining_data.py of BERT, --do_whole_word_mask.
    """
    num_rows, length = tf.shape(candidates)[0], candidates.shape[1]
    follows_candidate = tf.pad(candidates[:, :-1], [[0, 0], [1, 0]])
    begins = candidates & ~(continues & follows_candidate)
    word = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32), axis=1) - 1, 0)  # [B, S], of a candidate
    segment = tf.range(num_rows)[:, tf.newaxis] * length + word
    sizes = tf.math.unsorted_segment_sum(tf.cast(candidates, tf.int32), segment, num_rows * length)
    sizes = tf.reshape(sizes, [num_rows, length])  # 0 beyond the last word
    order = tf.argsort(random.uniform(num_rows, (length,)), axis=1)
    taken = _take_in_order(tf.gather(sizes, order, batch_dims=1), count)
    is_taken = tf.gather(taken, tf.argsort(order, axis=1), batch_dims=1)  # in the order of the words again
    selected = candidates & tf.gather(is_taken, word, batch_dims=1)
    return Selection(_selected_first(selected, num_slots), tf.reduce_sum(tf.cast(selected, tf.int32), axis=1))


def _take_in_order(sizes: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Takes entries from left to right while their sum is at most `count`, skipping those that are too big.

    Each round takes the entries before the first one that no longer fits, which is never taken: the room only shrinks.

    Args:
        sizes: [B, W] int32, 0 for no entry.        count: [B] int32.
    Returns: [B, W] bool.
    """

    def fitting(taken: tf.Tensor, remaining: tf.Tensor) -> tf.Tensor:
        return (sizes > 0) & ~taken & (sizes <= remaining[:, tf.newaxis])

    def take_prefix(taken: tf.Tensor, remaining: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        fits = fitting(taken, remaining)
        running = tf.cumsum(tf.where(fits, sizes, 0), axis=1)
        new = fits & (running <= remaining[:, tf.newaxis])
        return taken | new, remaining - tf.reduce_sum(tf.where(new, sizes, 0), axis=1)

    nothing = tf.zeros_like(sizes, tf.bool)
    return tf.while_loop(lambda *state: tf.reduce_any(fitting(*state)), take_prefix, (nothing, count))[0]


def _selected_first(selected: tf.Tensor, num_slots: int) -> tf.Tensor:
    """[B, S] bool -> [B, M] int32: the selected positions from left to right, then other positions."""
    # top_k orders equal entries from left to right.
    return tf.math.top_k(tf.cast(selected, tf.int32), k=num_slots).indices
