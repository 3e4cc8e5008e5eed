import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.schema import MaskingConfig
from electra_tf.data.masking import MaskingVocabulary, mask_batch, put_at_positions, put_by_scatter
from electra_tf.ops.random import RandomStream

PAD, CLS, SEP, MASK, V = 0, 2, 3, 4, 30
SPECIAL = MaskingVocabulary(cls_id=CLS, sep_id=SEP, mask_id=MASK, vocab_size=V)


def rows(*ids: list[int], length: int) -> dict[str, tf.Tensor]:
    padded = np.array([row + [PAD] * (length - len(row)) for row in ids], np.int32)
    mask = np.array([[1] * len(row) + [0] * (length - len(row)) for row in ids], np.int32)
    return {"input_ids": padded, "input_mask": mask, "segment_ids": np.zeros_like(padded)}


def sentence(num_tokens: int, token: int = 7) -> list[int]:
    return [CLS, *[token] * (num_tokens - 2), SEP]


def masked(batch, step: int = 0, first_example: int = 0, seed: int = 1, **settings) -> dict[str, np.ndarray]:
    config = MaskingConfig(**settings)
    found = mask_batch(
        {name: tf.constant(values) for name, values in batch.items()},
        config,
        SPECIAL,
        RandomStream(seed, step, first_example),
    )
    return {name: values.numpy() for name, values in found.items()}


def put(ids, values, positions, weights) -> list:
    given = (tf.constant(ids), tf.constant(values), tf.constant(positions), tf.constant(weights, tf.float32))
    written = put_at_positions(*given).numpy().tolist()
    assert put_by_scatter(*given).numpy().tolist() == written
    return written


def test_values_are_written_at_their_positions():
    written = put(ids=[[5, 6, 7, 8], [9, 10, 11, 12]], values=[[21], [22]], positions=[[2], [0]], weights=[[1], [1]])
    assert written == [[5, 6, 21, 8], [22, 10, 11, 12]]


def test_both_ways_of_writing_agree_where_positions_repeat_and_slots_are_unused():
    random = np.random.default_rng(4)
    shape = (60, 7)  # seven slots for eleven positions: most rows repeat one
    ids, values = random.integers(5, 30, (60, 11)), random.integers(30, 60, shape)
    written = put(
        ids.astype(np.int32),
        values.astype(np.int32),
        positions=random.integers(0, 11, shape).astype(np.int32),
        weights=random.integers(0, 2, shape),
    )
    assert 0 < (np.array(written) != ids).sum() < 60 * 7


def test_a_weight_of_zero_writes_nothing_also_at_position_zero():
    assert put(ids=[[5, 6, 7, 8]], values=[[21, 22]], positions=[[0, 3]], weights=[[0, 1]]) == [[5, 6, 7, 22]]


def test_a_real_entry_at_position_zero_is_written():
    assert put(ids=[[5, 6, 7, 8]], values=[[21, 22]], positions=[[0, 0]], weights=[[1, 0]]) == [[21, 6, 7, 8]]


def test_a_position_that_occurs_twice_takes_its_first_value():
    assert put([[5, 6, 7, 8]], [[21, 22, 23]], [[1, 1, 3]], [[1, 1, 1]]) == [[5, 21, 7, 23]]


def test_a_position_whose_first_entry_does_not_count_takes_the_next():
    assert put([[5, 6, 7, 8]], [[21, 22, 23]], [[1, 1, 3]], [[0, 1, 1]]) == [[5, 22, 7, 23]]


# Of n tokens, [CLS] and [SEP] included, round-half-to-even(0.15 n) are selected, at least one; 40 have 6 slots.
@pytest.mark.parametrize(
    ("num_tokens", "count"), [(3, 1), (4, 1), (9, 1), (10, 2), (13, 2), (16, 2), (17, 3), (30, 4), (31, 5), (40, 6)]
)
@pytest.mark.parametrize("selection", ["distinct", "with_replacement"])
def test_the_number_of_selected_tokens(num_tokens, count, selection):
    found = masked(rows(sentence(num_tokens), length=40), selection=selection)
    assert found["masked_lm_weights"].tolist() == [[1.0] * count + [0.0] * (6 - count)]


def test_no_more_tokens_are_selected_than_there_are_slots():
    # int((0.195 + 0.005) * 13) = 2 slots, round(0.195 * 13) would be 3.
    found = masked(rows(sentence(13), length=13), masked_fraction=0.195)
    assert found["masked_lm_weights"].tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("selection", ["distinct", "with_replacement"])
def test_special_tokens_and_padding_are_never_selected(selection):
    row = [CLS, 7, MASK, 8, SEP, 9, SEP]
    batch = rows(*[row] * 300, length=11)
    found = masked(batch, masked_fraction=0.4, selection=selection)
    chosen = found["masked_lm_positions"][found["masked_lm_weights"] > 0]
    assert set(chosen.tolist()) == {1, 3, 5}
    off_mask = ~np.isin(np.arange(11), [1, 3, 5])
    assert np.array_equal(found["masked_input_ids"][:, off_mask], batch["input_ids"][:, off_mask])


def test_unknown_tokens_may_be_selected():
    found = masked(rows([CLS, 1, SEP], length=7), masked_fraction=0.3)
    assert (found["masked_lm_positions"][0, 0], found["masked_lm_ids"][0, 0]) == (1, 1)


@pytest.mark.parametrize("selection", ["distinct", "with_replacement"])
def test_a_row_with_nothing_to_select_has_no_weight(selection):
    found = masked(rows([CLS, SEP], [], [MASK, MASK, MASK], length=20), selection=selection)
    assert found["masked_lm_weights"].tolist() == [[0.0] * 3] * 3
    assert found["masked_lm_positions"].tolist() == found["masked_lm_ids"].tolist() == [[0] * 3] * 3
    assert np.array_equal(found["masked_input_ids"], rows([CLS, SEP], [], [MASK, MASK, MASK], length=20)["input_ids"])


def test_distinct_selection_takes_every_candidate_where_there_are_few():
    # round(0.5 * 6) = 3 are wanted, two can be had.
    found = masked(rows([CLS, 7, SEP, 8, SEP, SEP], length=9), masked_fraction=0.5)
    assert sorted(found["masked_lm_positions"][0].tolist()) == [0, 0, 1, 3]
    assert found["masked_lm_weights"].sum() == 2


def test_positions_are_distinct_and_hold_the_original_tokens():
    batch = rows(*[[CLS, *range(5, 28), SEP]] * 200, length=25)
    found = masked(batch, masked_fraction=0.4)
    positions, used = found["masked_lm_positions"], found["masked_lm_weights"] > 0
    assert used.all() and positions.shape == (200, 10)
    assert all(len(set(row)) == 10 for row in positions.tolist())
    assert np.array_equal(found["masked_lm_ids"], np.take_along_axis(batch["input_ids"], positions, axis=1))


@pytest.mark.parametrize("selection", ["distinct", "with_replacement"])
def test_every_candidate_is_selected_equally_often(selection):
    n = 6000
    found = masked(rows(*[sentence(18)] * n, length=18), masked_fraction=0.2, selection=selection)
    chosen = found["masked_lm_positions"][found["masked_lm_weights"] > 0]
    counts = np.bincount(chosen, minlength=18)[1:17]
    expected = n * 3 / 16  # min(int(0.205 * 18), round(0.2 * 18)) = 3 of 16 candidates
    assert counts.sum() == 3 * n
    # The count of one position has at most the variance of a binomial one.
    assert np.abs(counts - expected).max() < 5 * math.sqrt(expected)


def test_rate_one_masks_every_selected_token_and_nothing_else():
    batch = rows(*[[CLS, *range(5, 28), SEP]] * 50, length=25)
    found = masked(batch, mask_token_fraction=1.0)
    shown = np.take_along_axis(found["masked_input_ids"], found["masked_lm_positions"], axis=1)
    assert (shown == MASK).all()
    assert ((found["masked_input_ids"] != batch["input_ids"]).sum(axis=1) == 3).all()


def test_rate_zero_shows_the_original_everywhere():
    batch = rows(*[[CLS, *range(5, 28), SEP]] * 50, length=25)
    found = masked(batch, mask_token_fraction=0.0)
    assert np.array_equal(found["masked_input_ids"], batch["input_ids"])
    assert (found["masked_lm_weights"] == 1).all()


def shares_shown(token: int, **settings) -> tuple[int, np.ndarray]:
    """How many tokens were selected, and how often each id is shown there; all originals are `token`."""
    found = masked(rows(*[sentence(100, token)] * 1000, length=100), **settings)
    shown = np.take_along_axis(found["masked_input_ids"], found["masked_lm_positions"], axis=1)
    return shown.size, np.bincount(shown.ravel(), minlength=V)


def within(count: int, n: int, share: float) -> bool:
    return abs(count - n * share) < 4 * math.sqrt(n * share * (1 - share))


def test_by_default_85_of_100_selected_tokens_show_the_mask_and_the_rest_themselves():
    n, counts = shares_shown(token=7)
    assert n == 15_000
    assert within(counts[MASK], n, 0.85)
    assert counts[MASK] + counts[7] == n


def test_the_rule_of_bert_80_10_10():
    n, counts = shares_shown(token=7, mask_token_fraction=0.8, random_token_fraction=0.1)
    # A random token is [MASK] or the original in one of V cases each.
    assert within(counts[MASK], n, 0.8 + 0.1 / V)
    assert within(counts[7], n, 0.1 + 0.1 / V)
    others = np.delete(counts, [MASK, 7])
    assert within(others.sum(), n, 0.1 * (V - 2) / V)
    assert others.min() > 0  # the whole vocabulary, first and last entry included


def test_distinct_selects_fifteen_of_a_hundred_tokens():
    found = masked(rows(*[sentence(128)] * 3, length=128))
    assert found["masked_lm_weights"].sum() == 3 * 19


def test_with_replacement_really_selects_13_8_percent_at_length_128():
    # 19 draws from 126 candidates hit 126 (1 - (125/126)^19) = 17.69 of them: 13.82 % of 128 tokens.
    n = 4000
    found = masked(rows(*[sentence(128)] * n, length=128), selection="with_replacement")
    different = np.array([len(set(row)) for row in found["masked_lm_positions"].tolist()])
    expected = 126 * (1 - (125 / 126) ** 19)
    # Variance of the number of occupied cells.
    variance = 126 * (1 - 1 / 126) ** 19 + 126 * 125 * (1 - 2 / 126) ** 19 - 126**2 * (1 - 1 / 126) ** 38
    assert abs(different.mean() - expected) < 4 * math.sqrt(variance / n)
    assert different.mean() / 128 == pytest.approx(0.1382, abs=0.0005)


def test_two_steps_mask_differently_and_one_step_always_the_same():
    batch = rows(*[sentence(40)] * 5, length=40)
    first, again, other = masked(batch, step=3), masked(batch, step=3), masked(batch, step=4)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    different = (first["masked_lm_positions"] != other["masked_lm_positions"]).any(axis=1)
    assert different.all()


def test_another_seed_masks_differently():
    batch = rows(*[sentence(40)] * 5, length=40)
    assert not np.array_equal(masked(batch)["masked_lm_positions"], masked(batch, seed=2)["masked_lm_positions"])


def test_equal_rows_of_a_batch_are_masked_differently():
    positions = masked(rows(*[sentence(40)] * 5, length=40))["masked_lm_positions"]
    assert len({tuple(row) for row in positions.tolist()}) == 5


@pytest.mark.parametrize("selection", ["distinct", "with_replacement"])
def test_the_share_of_a_replica_is_a_slice_of_the_whole(selection):
    batch = rows(*[[CLS, *range(5, 5 + count), SEP] for count in (3, 21, 9, 14, 6)], length=23)
    settings = {"selection": selection, "mask_token_fraction": 0.5, "random_token_fraction": 0.3}
    whole = masked(batch, **settings)
    part = masked({name: values[2:] for name, values in batch.items()}, first_example=2, **settings)
    assert all(np.array_equal(part[name], whole[name][2:]) for name in whole)


def test_types_and_shapes():
    found = mask_batch(rows(sentence(9), sentence(5), length=20), MaskingConfig(), SPECIAL, RandomStream(0, 0, 0))
    described = {
        name: (values.dtype.name, values.shape.as_list()) for name, values in found.items() if "masked" in name
    }
    assert described == {
        "masked_input_ids": ("int32", [2, 20]),
        "masked_lm_positions": ("int32", [2, 3]),
        "masked_lm_ids": ("int32", [2, 3]),
        "masked_lm_weights": ("float32", [2, 3]),
    }
