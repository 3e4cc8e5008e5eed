"""Which tokens of an example are to be predicted: the strategies of `masking.strategy`.

Each is a pure function of a batch and its random stream, over all rows at once, with static shapes. k below is the
number of tokens that a row is to give: max(1, round(masked_fraction * real tokens)), at most its candidates and M.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf.config.schema import MaskingConfig
from electra_tf.ops.random import RandomStream


@dataclass(frozen=True)
class MaskingVocabulary:
    """What masking must know of the vocabulary: its special entries, and of every entry what some strategies ask for.

    Attributes:
        is_continuation: [V] bool, true for the pieces that do not begin a word; None where no strategy asks for it.
        token_counts: [V] int64, how often each entry stands in the training split; None where that is not known.
    """

    cls_id: int
    sep_id: int
    mask_id: int
    vocab_size: int
    is_continuation: np.ndarray | None = field(default=None, compare=False, repr=False)
    token_counts: np.ndarray | None = field(default=None, compare=False, repr=False)


class Selection(NamedTuple):
    """The tokens that were selected.

    Attributes:
        positions: [B, M] int32. Slots from `count` on hold any position.
        count: [B] int32, the slots in use.
        unit: [B, M] int32 in [0, M), equal for tokens that are shown in the same way; None where each is by itself.
    """

    positions: tf.Tensor
    count: tf.Tensor
    unit: tf.Tensor | None = None


def maskable(batch: dict[str, tf.Tensor], special: MaskingVocabulary) -> tf.Tensor:
    """[B, S] bool: the tokens that may be selected: real ones that are not [CLS], [SEP] or [MASK]."""
    ids = batch["input_ids"]
    return (batch["input_mask"] > 0) & (ids != special.cls_id) & (ids != special.sep_id) & (ids != special.mask_id)


def select(
    batch: dict[str, tf.Tensor], config: MaskingConfig, special: MaskingVocabulary, num_slots: int, random: RandomStream
) -> Selection:
    """Selects tokens by the configured strategy.

    Args:
        batch: `input_ids`, `input_mask`, each [B, S] int32; S static.        num_slots: M.
        random: the stream of these examples.
    """
    candidates = maskable(batch, special)
    count = _budget(batch["input_mask"], candidates, config, num_slots)
    if config.strategy == "uniform":
        return Selection(SELECTIONS[config.selection](candidates, num_slots, random), count)
    if config.strategy == "rare_tokens":
        assert special.token_counts is not None, "the data set has been asked for them"
        log_weights = -config.rarity_exponent * np.log(np.maximum(special.token_counts, 1).astype(np.float64))
        log_weights = np.maximum(log_weights - log_weights.max(), _LEAST_LOG_WEIGHT).astype(np.float32)
        weights = tf.gather(tf.constant(log_weights), batch["input_ids"])
        return Selection(select_weighted(candidates, weights, num_slots, random), count)
    if config.strategy == "span":
        return select_spans(candidates, count, config, num_slots, random)
    assert special.is_continuation is not None, "words need a vocabulary"
    continues = tf.gather(tf.constant(special.is_continuation), batch["input_ids"])
    return select_words(candidates, continues, count, num_slots, random)


def _budget(input_mask: tf.Tensor, candidates: tf.Tensor, config: MaskingConfig, num_slots: int) -> tf.Tensor:
    """[B] int32: k."""
    num_tokens = tf.reduce_sum(input_mask, axis=1)
    num_candidates = tf.reduce_sum(tf.cast(candidates, tf.int32), axis=1)
    wanted = tf.cast(tf.round(tf.cast(num_tokens, tf.float32) * config.masked_fraction), tf.int32)
    return tf.minimum(tf.maximum(wanted, 1), tf.minimum(num_candidates, num_slots))


def select_distinct(candidates: tf.Tensor, num_slots: int, random: RandomStream) -> tf.Tensor:
    """`num_slots` different candidate positions in random order, then non-candidates if there are too few.

    Args:
        candidates: [B, S] bool.        random: one stream per use.
    Returns: [B, M] int32.
    """
    scores = random.uniform(tf.shape(candidates)[0], (candidates.shape[1],))
    return tf.math.top_k(tf.where(candidates, scores, -1.0), k=num_slots).indices


def select_with_replacement(candidates: tf.Tensor, num_slots: int, random: RandomStream) -> tf.Tensor:
    """`num_slots` independent uniform draws from the candidates, as the authors' code: some positions occur twice.

    Args and returns: as `select_distinct`. A row without candidates gives position 0.
    """
    uniform = random.uniform(tf.shape(candidates)[0], (num_slots,))  # [B, M]
    count = tf.reduce_sum(tf.cast(candidates, tf.int32), axis=1, keepdims=True)
    rank = tf.minimum(tf.cast(uniform * tf.cast(count, tf.float32), tf.int32), tf.maximum(count - 1, 0))
    candidates_first = tf.argsort(tf.cast(~candidates, tf.int32), axis=1, stable=True)
    return tf.gather(candidates_first, rank, batch_dims=1)


# Of the strategy `uniform`.
SELECTIONS = {"distinct": select_distinct, "with_replacement": select_with_replacement}


# As a factor no such weight is a number; the order of the tokens needs none.
_LEAST_LOG_WEIGHT = -1e30


def select_weighted(candidates: tf.Tensor, log_weights: tf.Tensor, num_slots: int, random: RandomStream) -> tf.Tensor:
    """`num_slots` different candidate positions, drawn one after the other, each with chances in proportion to weights.

    Args and returns: as `select_distinct`; `log_weights` [B, S] float32, the logarithms of the weights.
    Source: the order of log(weight) plus Gumbel noise is that of such draws (Yellott 1977; Kool et al. 2019).
    """
    uniform = random.uniform(tf.shape(candidates)[0], (candidates.shape[1],))
    # Half a step of the 24-bit numbers off 0, where the logarithm has no value.
    noise = -tf.math.log(-tf.math.log(uniform + 2.0**-25))
    scores = tf.where(candidates, tf.maximum(log_weights, _LEAST_LOG_WEIGHT) + noise, -math.inf)
    return tf.math.top_k(scores, k=num_slots).indices


def select_spans(
    candidates: tf.Tensor, count: tf.Tensor, config: MaskingConfig, num_slots: int, random: RandomStream
) -> Selection:
    """Runs of neighbouring candidates, exactly k tokens in all; no two runs overlap, none goes past a special token.

    One run after the other: its length is drawn (geometric, cut off at the longest allowed and at what is left of k),
    then its beginning among all places where so many neighbours are still free. Where there is no such place it is as
    long as fits somewhere. All tokens of a run are shown in one way: masked, replaced or left, as SpanBERT does.

    Args:
        candidates: [B, S] bool.        count: [B] int32, k.
    Source: Joshi et al. 2019 (SpanBERT), section 3.1; there the runs are of whole words.
    """
    num_rows, length = tf.shape(candidates)[0], candidates.shape[1]
    uniform = random.uniform(num_rows, (num_slots, 2))  # of each run: its length, its beginning
    lengths = _span_lengths(uniform[:, :, 0], config)

    def add_run(index, run_of, remaining):
        free_behind = _free_behind(candidates & (run_of < 0))  # [B, S]
        wanted = tf.minimum(lengths[:, index], remaining)
        size = tf.minimum(wanted, tf.reduce_max(free_behind, axis=1))[:, tf.newaxis]
        fits = tf.cast(free_behind >= size, tf.int32)
        # Of the places where it fits, the one by this number's share.
        num_places = tf.cast(tf.reduce_sum(fits, axis=1, keepdims=True), tf.float32)
        rank = tf.cast(uniform[:, index, 1:] * num_places, tf.int32)
        begin = tf.reduce_sum(tf.cast(tf.cumsum(fits, axis=1) <= rank, tf.int32), axis=1, keepdims=True)
        place = tf.range(length)
        run_of = tf.where((place >= begin) & (place < begin + size), index, run_of)
        return index + 1, run_of, remaining - size[:, 0]

    _, run_of, _ = tf.while_loop(
        lambda index, run_of, remaining: tf.reduce_any(remaining > 0),
        add_run,
        (tf.constant(0), tf.fill([num_rows, length], -1), count),
        maximum_iterations=num_slots,
    )
    positions = _selected_first(run_of >= 0, num_slots)
    return Selection(positions, count, unit=tf.maximum(tf.gather(run_of, positions, batch_dims=1), 0))


def _span_lengths(uniform: tf.Tensor, config: MaskingConfig) -> tf.Tensor:
    """Uniform numbers to lengths, int32: P(l) in proportion to (1 - p) ** (l - 1) for l up to the longest."""
    end, longest = config.span_end_probability, config.max_span_length
    if end == 1.0:
        return tf.ones_like(uniform, tf.int32)
    # The running sum of the chances, solved for l.
    share = 1.0 - uniform * (1.0 - (1.0 - end) ** longest)
    return tf.clip_by_value(1 + tf.cast(tf.math.log(share) / math.log1p(-end), tf.int32), 1, longest)


def _free_behind(free: tf.Tensor) -> tf.Tensor:
    """[B, S] bool -> [B, S] int32: how many free places there are in a row from each one on, itself included."""
    length = free.shape[1]
    place = tf.range(length)
    # The nearest place from here on that is not free.
    end = tf.reverse(tf.minimum(length, _running_minimum(tf.reverse(tf.where(free, length, place), [1]))), [1])
    return end - place


def _running_minimum(rows: tf.Tensor) -> tf.Tensor:
    """[B, S] -> [B, S]: the least of all entries up to each one; log2(S) steps."""
    length, shift = rows.shape[1], 1
    while shift < length:
        rows = tf.minimum(rows, tf.concat([rows[:, :shift], rows[:, :-shift]], axis=1))
        shift *= 2
    return rows


def select_words(
    candidates: tf.Tensor, continues: tf.Tensor, count: tf.Tensor, num_slots: int, random: RandomStream
) -> Selection:
    """Whole words, all pieces of each, at most k tokens in all.

    BERT's rule: the words come in random order, and one whose pieces would go beyond k is passed over for the next. So
    a row gives k tokens wherever its shorter words allow it, fewer else, and none where every word has more than k
    pieces. Each token is shown by itself: one piece of a word may be masked and another left.

    Args:
        candidates: [B, S] bool.        continues: [B, S] bool, for pieces that belong to the word before; behind a
            special token one begins a word.        count: [B] int32, k.
    Source: create_pretraining_data.py of BERT, --do_whole_word_mask.
    """
    num_rows, length = tf.shape(candidates)[0], candidates.shape[1]
    follows_candidate = tf.pad(candidates[:, :-1], [[0, 0], [1, 0]])
    begins = candidates & ~(continues & follows_candidate)
    word = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32), axis=1) - 1, 0)  # [B, S], of a candidate
    place = tf.range(num_rows)[:, tf.newaxis] * length + word
    sizes = tf.math.unsorted_segment_sum(tf.cast(candidates, tf.int32), place, num_rows * length)
    sizes = tf.reshape(sizes, [num_rows, length])  # 0 beyond the last word
    order = tf.argsort(random.uniform(num_rows, (length,)), axis=1)
    taken = _taken_in_order(tf.gather(sizes, order, batch_dims=1), count)
    is_taken = tf.gather(taken, tf.argsort(order, axis=1), batch_dims=1)  # in the order of the words again
    selected = candidates & tf.gather(is_taken, word, batch_dims=1)
    return Selection(_selected_first(selected, num_slots), tf.reduce_sum(tf.cast(selected, tf.int32), axis=1))


def _taken_in_order(sizes: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """[B, W] int32, [B] int32 -> [B, W] bool: what is taken from left to right, passing over what is too big.

    In each round all are taken up to the first that does not fit beside them, which then fits never again.
    """

    def take_prefix(taken, remaining):
        fits = (sizes > 0) & ~taken & (sizes <= remaining[:, tf.newaxis])
        running = tf.cumsum(tf.where(fits, sizes, 0), axis=1)
        new = fits & (running <= remaining[:, tf.newaxis])
        return taken | new, remaining - tf.reduce_sum(tf.where(new, sizes, 0), axis=1)

    def any_fits(taken, remaining):
        return tf.reduce_any((sizes > 0) & ~taken & (sizes <= remaining[:, tf.newaxis]))

    return tf.while_loop(any_fits, take_prefix, (tf.zeros_like(sizes, tf.bool), count))[0]


def _selected_first(selected: tf.Tensor, num_slots: int) -> tf.Tensor:
    """[B, S] bool -> [B, M] int32: the selected positions from left to right, then others."""
    # Of equal ones the leftmost comes first.
    return tf.math.top_k(tf.cast(selected, tf.int32), k=num_slots).indices
