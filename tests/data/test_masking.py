import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.schema import MaskingConfig
from electra_tf.data.batch import PRETRAINING_BATCH
from electra_tf.data.masking import MaskingVocabulary, _span_lengths, mask_batch
from electra_tf.ops.random import RandomStream

PAD, CLS, SEP, MASK, V = 0, 2, 3, 4, 30
FIRST_PIECE = 20  # ids from here on continue a word
COMMON, RARE, UNSEEN = 7, 8, 9
COUNTS = np.zeros(V, np.int64)
COUNTS[[COMMON, RARE]] = 1600, 100
VOCABULARY = MaskingVocabulary(
    *(CLS, SEP, MASK, V),
    is_continuation=np.arange(V) >= FIRST_PIECE,
    token_counts=COUNTS,
    unigram_losses=np.linspace(0.5, 7.75, V, dtype=np.float32),
)

WITH_REPLACEMENT = {"selection": "with_replacement"}
DISTINCT = [{"scheme": scheme} for scheme in ("uniform", "rare_tokens", "span", "whole_word")]
every_scheme = pytest.mark.parametrize("scheme", [*DISTINCT, WITH_REPLACEMENT], ids=lambda given: [*given.values()][0])

LONG_SPANS = {"scheme": "span", "span_end_probability": 1e-6, "max_span_length": 10**6}


def rows(*ids: list[int], length: int) -> dict[str, np.ndarray]:
    padded = np.array([row + [PAD] * (length - len(row)) for row in ids], np.int32)
    mask = np.array([[1] * len(row) + [0] * (length - len(row)) for row in ids], np.int32)
    return {"input_ids": padded, "input_mask": mask, "segment_ids": np.zeros_like(padded)}


def sentence(num_tokens: int) -> list[int]:
    return [CLS, *[7] * (num_tokens - 2), SEP]


def words(*sizes: int) -> list[int]:
    """One word for each size, with this number of pieces."""
    return [piece for size in sizes for piece in [10, *[FIRST_PIECE] * (size - 1)]]


def masked(batch, step: int = 0, first_example: int = 0, seed: int = 1, **settings) -> dict[str, np.ndarray]:
    tensors = {name: tf.constant(values) for name, values in batch.items()}
    result = mask_batch(tensors, MaskingConfig(**settings), VOCABULARY, RandomStream(seed, step, first_example))
    return {name: values.numpy() for name, values in result.items()}


def chosen(batch, **settings) -> list[list[int]]:
    """The selected positions of each row, from left to right."""
    result = masked(batch, **settings)
    pairs = zip(result["masked_lm_positions"].tolist(), result["masked_lm_weights"].tolist(), strict=True)
    return [sorted(position for position, weight in zip(*pair, strict=True) if weight) for pair in pairs]


def within(count: float, n: int, share: float) -> bool:
    return abs(count - n * share) < 5 * math.sqrt(n * share * (1 - share))


def same(first: dict, second: dict) -> bool:
    return all(np.array_equal(first[name], second[name]) for name in first)


@every_scheme
def test_special_tokens_and_padding_are_never_selected(scheme):
    row = [CLS, 1, MASK, 8, 21, SEP, 9, SEP]  # [UNK] may be
    result = chosen(rows(*[row] * 100, length=13), masked_fraction=0.4, **scheme)
    assert {position for positions in result for position in positions} == {1, 3, 4, 6}


# round-half-to-even(0.3 n) of n tokens, [CLS] and [SEP] included, but at least one; 20 tokens have 6 slots.
@pytest.mark.parametrize(("num_tokens", "count"), [(3, 1), (5, 2), (9, 3), (15, 4), (20, 6)])
@every_scheme
def test_the_number_of_selected_tokens_is_a_rounded_fraction(scheme, num_tokens, count):
    result = chosen(rows(*[sentence(num_tokens)] * 40, length=20), masked_fraction=0.3, **scheme)
    assert {len(positions) for positions in result} == {count}
    assert scheme is WITH_REPLACEMENT or all(len(set(positions)) == count for positions in result)


def test_no_more_tokens_are_selected_than_there_are_slots():
    # int((0.195 + 0.005) * 13) = 2 slots, round(0.195 * 13) would be 3.
    assert masked(rows(sentence(13), length=13), masked_fraction=0.195)["masked_lm_weights"].tolist() == [[1.0, 1.0]]


@every_scheme
def test_slots_beyond_the_candidates_have_zero_weights(scheme):
    # Of the last row k is round(0.5 * 6) = 3, with two candidates.
    batch = rows([CLS, SEP], [], [MASK, MASK, MASK], [CLS, 7, SEP, 8, SEP, SEP], length=9)
    result = masked(batch, masked_fraction=0.5, mask_token_fraction=1.0, **scheme)
    assert result["masked_lm_weights"].tolist() == [[0.0] * 4] * 3 + [[1.0, 1.0, 0.0, 0.0]]
    assert np.array_equal(result["masked_input_ids"][:3], batch["input_ids"][:3])


@every_scheme
def test_used_slots_hold_the_original_tokens_and_unused_slots_zeros(scheme):
    batch = rows([CLS, *range(5, 22), SEP], [CLS, 11, 12, 13, SEP], length=19)
    result = masked(batch, masked_fraction=0.4, mask_token_fraction=1.0, **scheme)
    used, positions = result["masked_lm_weights"] > 0, result["masked_lm_positions"]
    originals = np.take_along_axis(batch["input_ids"], positions, axis=1)
    assert np.array_equal(result["masked_lm_ids"], np.where(used, originals, 0))
    assert not positions[~used].any()
    hidden = np.zeros(batch["input_ids"].shape, bool)
    hidden[np.nonzero(used)[0], positions[used]] = True
    assert np.array_equal(result["masked_input_ids"], np.where(hidden, MASK, batch["input_ids"]))


def test_mask_token_weights_and_unigram_losses_of_the_slots():
    result = masked(rows([CLS, *range(5, 22), SEP], length=19), masked_fraction=0.4, mask_token_fraction=0.5)
    shown = np.take_along_axis(result["masked_input_ids"], result["masked_lm_positions"], axis=1)
    used = result["masked_lm_weights"] > 0
    assert 0 < (shown == MASK).sum() < used.sum()
    assert np.array_equal(result["mask_token_weights"], used & (shown == MASK))
    # 0.25 for each id after 0.5.
    assert np.array_equal(result["unigram_losses"], np.where(used, 0.5 + 0.25 * result["masked_lm_ids"], 0.0))


@every_scheme
def test_masks_depend_only_on_seed_step_and_example(scheme):
    batch = rows(*[[CLS, *range(5, 5 + count), SEP] for count in (3, 21, 9, 14, 6)], length=23)
    settings = {"mask_token_fraction": 0.5, "random_token_fraction": 0.3, **scheme}
    whole = masked(batch, **settings)
    assert same(masked(batch, **settings), whole)
    part = masked({name: values[2:] for name, values in batch.items()}, first_example=2, **settings)
    assert same(part, {name: values[2:] for name, values in whole.items()})
    for other in (masked(batch, step=1, **settings), masked(batch, seed=2, **settings)):
        assert not np.array_equal(other["masked_lm_positions"], whole["masked_lm_positions"])


@every_scheme
def test_batches_of_an_input_pipeline_have_the_static_shapes_of_the_schema(scheme):
    batches = tf.data.Dataset.from_tensors(rows([CLS, 7, 8, 9, SEP], [CLS, 7, SEP], length=20)).map(
        lambda batch: mask_batch(batch, MaskingConfig(**scheme), VOCABULARY, RandomStream(0, 0, 0))
    )
    result = {name: (spec.shape, spec.dtype) for name, spec in batches.element_spec.items()}
    assert result == {name: (spec.shape, spec.dtype) for name, spec in PRETRAINING_BATCH.specs(2, S=20, M=3).items()}


def test_berts_80_10_10_rule():
    result = masked(
        rows(*[sentence(100)] * 1000, length=100), mask_token_fraction=0.8, random_token_fraction=0.1
    )  # all originals are 7
    shown = np.take_along_axis(result["masked_input_ids"], result["masked_lm_positions"], axis=1)
    n, counts = shown.size, np.bincount(shown.ravel(), minlength=V)
    assert n == 15_000
    # A random token is [MASK] with probability 1 / V, and the original with the same probability.
    assert within(counts[MASK], n, 0.8 + 0.1 / V)
    assert within(counts[7], n, 0.1 + 0.1 / V)
    others = np.delete(counts, [MASK, 7])
    assert within(others.sum(), n, 0.1 * (V - 2) / V)
    assert others.min() > 0  # random tokens come from the whole vocabulary


# RARE is a sixteenth as frequent as COMMON. UNSEEN counts as seen once.
@pytest.mark.parametrize(
    ("exponent", "tokens", "ratio"),
    [(0.5, [COMMON, RARE], 4.0), (1.0, [COMMON, RARE], 16.0), (0.5, [RARE, UNSEEN], 10.0)],
)
def test_rare_tokens_are_selected_by_a_power_of_the_inverse_frequency(exponent, tokens, ratio):
    batch = rows(*[[CLS, *tokens, SEP]] * 4000, length=7)
    result = chosen(batch, scheme="rare_tokens", rarity_exponent=exponent, masked_fraction=0.2)
    assert within(result.count([2]), 4000, ratio / (1 + ratio))


def test_a_frequent_token_is_selected_before_a_special_token_for_any_exponent():
    batch = rows(*[[CLS, COMMON, RARE, COMMON, SEP]] * 50, length=7)
    result = chosen(batch, scheme="rare_tokens", rarity_exponent=1e38, masked_fraction=0.6)
    assert result == [[1, 2, 3]] * 50


def test_a_second_draw_has_the_weights_of_the_remaining_tokens():
    """With weights 4, 4, 1, a rare token is drawn first with probability 8/9, then the other one with 4/5."""
    n = 6000
    batch = rows(*[[CLS, RARE, RARE, COMMON, SEP]] * n, length=8)
    result = chosen(batch, scheme="rare_tokens", rarity_exponent=0.5, masked_fraction=0.4)
    assert within(result.count([1, 2]), n, 8 / 9 * 4 / 5)


def test_a_long_span_stays_within_a_segment_and_has_a_uniform_position():
    """Spans of four tokens fit at five positions of this row."""
    n = 4500
    row = [CLS, *[7] * 5, SEP, *[7] * 6, SEP]
    result = chosen(rows(*[row] * n, length=14), masked_fraction=0.3, **LONG_SPANS)
    assert {len(positions) for positions in result} == {4}
    counts = [result.count(list(range(begin, begin + 4))) for begin in (1, 2, 8, 9, 7)]
    assert sum(counts) > n - 5  # nearly all lengths up to a million are cut off at four
    assert all(within(count, n, 1 / 5) for count in counts)


def test_a_span_that_fits_nowhere_is_as_long_as_possible():
    """k = 4: a span of the three tokens after the separator, then one of the two tokens before it."""
    row = [CLS, 7, 7, SEP, 7, 7, 7, SEP]
    result = chosen(rows(*[row] * 200, length=8), masked_fraction=0.5, **LONG_SPANS)
    assert {tuple(positions) for positions in result} == {(1, 4, 5, 6), (2, 4, 5, 6)}


def test_span_lengths_are_geometric_with_spanberts_mean_by_default():
    uniform = RandomStream(3, 0, 0).uniform(9000, (1,))

    def drawn(**settings) -> np.ndarray:
        return _span_lengths(uniform, MaskingConfig(scheme="span", **settings)).numpy()

    up_to_three = drawn(span_end_probability=0.4, max_span_length=3)
    for length, mass in ((1, 1.0), (2, 0.6), (3, 0.36)):
        assert within(np.count_nonzero(up_to_three == length), 9000, mass / 1.96)
    assert (drawn(span_end_probability=1.0) == 1).all()
    by_default = drawn()
    assert (by_default.min(), by_default.max()) == (1, 10)
    assert by_default.mean() == pytest.approx(3.8, abs=0.15)  # SpanBERT, section 3.1


def test_the_tokens_of_a_span_are_shown_in_one_way():
    result = masked(rows(*[sentence(42)] * 300, length=42), mask_token_fraction=0.5, **LONG_SPANS)
    num_masked = (result["masked_input_ids"] == MASK).sum(axis=1)
    assert result["masked_lm_weights"].sum(axis=1).tolist() == [6.0] * 300
    assert np.isin(num_masked, [0, 6]).sum() >= 297  # rows with a single span
    assert within((num_masked == 6).sum(), 300, 0.5)


# The words of a row, the masked fraction, and the possible selections.
@pytest.mark.parametrize(
    ("row", "masked_fraction", "expected"),
    [
        (words(2, 2, 2, 2), 0.3, {(1, 2), (3, 4), (5, 6), (7, 8)}),  # fewer than k if words do not add up
        # The word of four pieces never fits; the second word does not fit after the last two.
        (words(4, 2, 1, 1), 0.3, {(5, 6, 7), (5, 6, 8), (7, 8)}),
        (words(3, 4), 0.2, {()}),
        ([21, SEP, 22, 10], 0.2, {(1,), (3,), (4,)}),  # a continuation after a separator begins a word
    ],
)
def test_whole_words_are_selected(row, masked_fraction, expected):
    batch = rows(*[[CLS, *row, SEP]] * 200, length=len(row) + 2)
    result = chosen(batch, scheme="whole_word", masked_fraction=masked_fraction)
    assert {tuple(positions) for positions in result} == expected
