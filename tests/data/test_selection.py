"""The strategies beside the uniform one, whose rules test_masking.py has."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.schema import MaskingConfig
from electra_tf.data.masking import MaskingVocabulary, mask_batch
from electra_tf.data.selection import select_words
from electra_tf.ops.random import RandomStream

PAD, CLS, SEP, MASK, V = 0, 2, 3, 4, 30
FIRST_PIECE = 20  # ids from here on continue a word
COMMON, RARE, UNSEEN = 7, 8, 9
COUNTS = np.zeros(V, np.int64)
COUNTS[[COMMON, RARE]] = 1600, 100
SPECIAL = MaskingVocabulary(
    cls_id=CLS,
    sep_id=SEP,
    mask_id=MASK,
    vocab_size=V,
    is_continuation=np.arange(V) >= FIRST_PIECE,
    token_counts=COUNTS,
)
STRATEGIES = ("rare_tokens", "span", "whole_word")


def rows(*ids: list[int], length: int) -> dict[str, tf.Tensor]:
    padded = np.array([row + [PAD] * (length - len(row)) for row in ids], np.int32)
    mask = np.array([[1] * len(row) + [0] * (length - len(row)) for row in ids], np.int32)
    return {"input_ids": padded, "input_mask": mask, "segment_ids": np.zeros_like(padded)}


def words(*sizes: int) -> list[int]:
    """A word of so many pieces each."""
    return [piece for size in sizes for piece in [10, *[FIRST_PIECE] * (size - 1)]]


def masked(batch, step: int = 0, first_example: int = 0, **settings) -> dict[str, np.ndarray]:
    tensors = {name: tf.constant(values) for name, values in batch.items()}
    found = mask_batch(tensors, MaskingConfig(**settings), SPECIAL, RandomStream(1, step, first_example))
    return {name: values.numpy() for name, values in found.items()}


def chosen(batch, **settings) -> list[list[int]]:
    """The selected positions of each row, from left to right."""
    found = masked(batch, **settings)
    pairs = zip(found["masked_lm_positions"].tolist(), found["masked_lm_weights"].tolist(), strict=True)
    return [sorted(position for position, weight in zip(*pair, strict=True) if weight) for pair in pairs]


def runs_of(positions: list[int]) -> list[int]:
    """The lengths of the runs of neighbours."""
    breaks = np.flatnonzero(np.diff(positions) > 1) + 1
    return [len(run) for run in np.split(np.array(positions), breaks)]


def within(count: float, n: int, share: float) -> bool:
    return abs(count - n * share) < 5 * math.sqrt(n * share * (1 - share))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_special_tokens_and_padding_are_never_selected(strategy):
    row = [CLS, 7, MASK, 8, 21, SEP, 9, SEP]
    found = chosen(rows(*[row] * 100, length=13), strategy=strategy, masked_fraction=0.4)
    assert {position for positions in found for position in positions} == {1, 3, 4, 6}


# Of n tokens round-half-to-even(0.3 n), at least one; 20 have 6 slots.
@pytest.mark.parametrize(("num_tokens", "count"), [(3, 1), (5, 2), (9, 3), (15, 4), (20, 6)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_so_many_distinct_tokens_are_selected_as_uniformly(strategy, num_tokens, count):
    batch = rows(*[[CLS, *[7] * (num_tokens - 2), SEP]] * 40, length=20)
    found = chosen(batch, strategy=strategy, masked_fraction=0.3)
    assert {len(set(positions)) for positions in found} == {len(positions) for positions in found} == {count}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_row_with_nothing_to_select_has_no_weight(strategy):
    batch = rows([CLS, SEP], [], [MASK, MASK, MASK], [CLS, 7, SEP], length=20)
    assert chosen(batch, strategy=strategy) == [[], [], [], [1]]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_slots_hold_the_original_tokens_and_unused_ones_nothing(strategy):
    batch = rows([CLS, *range(5, 22), SEP], [CLS, 11, 12, 13, SEP], length=19)
    found = masked(batch, strategy=strategy, masked_fraction=0.4, mask_token_fraction=1.0)
    used = found["masked_lm_weights"] > 0
    positions = found["masked_lm_positions"]
    originals = np.take_along_axis(batch["input_ids"], positions, axis=1)
    assert used.sum(axis=1).tolist() == [7, 2] or strategy == "whole_word"
    assert np.array_equal(found["masked_lm_ids"], np.where(used, originals, 0))
    assert not positions[~used].any()
    hidden = np.zeros(batch["input_ids"].shape, bool)
    hidden[np.nonzero(used)[0], positions[used]] = True
    assert np.array_equal(found["masked_input_ids"], np.where(hidden, MASK, batch["input_ids"]))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_share_of_a_replica_is_a_slice_of_the_whole_and_a_step_repeats(strategy):
    batch = rows(*[[CLS, *range(5, 5 + count), SEP] for count in (3, 21, 9, 14, 6)], length=23)
    settings = {"strategy": strategy, "mask_token_fraction": 0.5, "random_token_fraction": 0.3}
    whole, again, other = masked(batch, **settings), masked(batch, **settings), masked(batch, step=1, **settings)
    part = masked({name: values[2:] for name, values in batch.items()}, first_example=2, **settings)
    assert all(np.array_equal(part[name], whole[name][2:]) for name in whole)
    assert all(np.array_equal(again[name], whole[name]) for name in whole)
    assert not np.array_equal(other["masked_lm_positions"], whole["masked_lm_positions"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_types_and_shapes_are_static_in_the_input_pipeline(strategy):
    batches = tf.data.Dataset.from_tensors(rows([CLS, 7, 8, 9, SEP], [CLS, 7, SEP], length=20)).map(
        lambda batch: mask_batch(batch, MaskingConfig(strategy=strategy), SPECIAL, RandomStream(0, 0, 0))
    )
    described = {name: (spec.dtype.name, spec.shape.as_list()) for name, spec in batches.element_spec.items()}
    assert described == {
        **{name: ("int32", [2, 20]) for name in ("input_ids", "input_mask", "segment_ids", "masked_input_ids")},
        **{name: ("int32", [2, 3]) for name in ("masked_lm_positions", "masked_lm_ids")},
        "masked_lm_weights": ("float32", [2, 3]),
    }


@pytest.mark.parametrize(("exponent", "ratio"), [(0.0, 1.0), (0.5, 4.0), (1.0, 16.0)])
def test_a_token_a_sixteenth_as_frequent_is_selected_by_the_power_of_that_as_often(exponent, ratio):
    n = 4000
    batch = rows(*[[CLS, COMMON, RARE, SEP]] * n, length=7)
    found = chosen(batch, strategy="rare_tokens", rarity_exponent=exponent, masked_fraction=0.2)
    assert within(sum(positions == [2] for positions in found), n, ratio / (1 + ratio))


def test_tokens_that_were_never_seen_count_as_seen_once():
    n = 4000
    batch = rows(*[[CLS, RARE, UNSEEN, SEP]] * n, length=7)
    found = chosen(batch, strategy="rare_tokens", rarity_exponent=0.5, masked_fraction=0.2)
    assert within(sum(positions == [2] for positions in found), n, 10 / 11)


@pytest.mark.parametrize("exponent", [40.0, 1e38])
def test_however_frequent_a_token_is_it_comes_before_what_may_not_be_selected(exponent):
    batch = rows(*[[CLS, COMMON, RARE, COMMON, SEP]] * 50, length=7)
    found = chosen(batch, strategy="rare_tokens", rarity_exponent=exponent, masked_fraction=0.6)
    assert found == [[1, 2, 3]] * 50


def test_the_second_of_two_draws_is_by_the_weights_of_what_is_left():
    """Three tokens of weights 4, 4 and 1 (100, 100 and 1600 in the text): the last is left over 4/5 + 4/5 of 4/9 ..."""
    n = 6000
    batch = rows(*[[CLS, RARE, RARE, COMMON, SEP]] * n, length=8)
    found = chosen(batch, strategy="rare_tokens", rarity_exponent=0.5, masked_fraction=0.4)
    # Both rare ones: either first (4/9 each), then the other against the common one (4/5).
    assert within(sum(positions == [1, 2] for positions in found), n, 8 / 9 * 4 / 5)


def test_spans_are_runs_of_neighbours_within_a_segment():
    """Six of 27 tokens in one run of six: it fits before the separator, or behind it, but not across."""
    row = [CLS, *[7] * 14, SEP, *[7] * 10, SEP]
    settings = {"span_end_probability": 1e-6, "max_span_length": 1000, "masked_fraction": 0.22}
    found = chosen(rows(*[row] * 400, length=27), strategy="span", **settings)
    lengths = [runs_of(positions) for positions in found]
    assert all(sum(runs) == 6 for runs in lengths)
    # Lengths up to 1000 are nearly equally likely, so that almost all runs are cut off at what there is to select.
    assert sum(runs == [6] for runs in lengths) > 380


def test_a_span_begins_at_every_place_where_it_fits_equally_often():
    n = 4500
    row = [CLS, *[7] * 5, SEP, *[7] * 6, SEP]
    settings = {"span_end_probability": 1e-6, "max_span_length": 10**6, "masked_fraction": 0.3}
    found = chosen(rows(*[row] * n, length=14), strategy="span", **settings)
    assert {len(positions) for positions in found} == {4}
    begins = np.bincount([positions[0] for positions in found], minlength=14)
    places = [1, 2, 7, 8, 9]  # of four in a row
    assert begins[places].sum() > n - 5
    assert all(within(begins[place], n, 1 / 5) for place in places)


def test_a_span_that_fits_nowhere_is_as_long_as_can_be():
    row = [CLS, 7, 7, SEP, 7, 7, 7, SEP]
    settings = {"span_end_probability": 1e-6, "max_span_length": 10**6, "masked_fraction": 0.5}
    found = chosen(rows(*[row] * 200, length=8), strategy="span", **settings)
    # Four are wanted. Three behind the separator come first, then one of the two before it.
    assert {tuple(positions) for positions in found if len(positions) == 4} == {(1, 4, 5, 6), (2, 4, 5, 6)}
    assert len(found) == 200


def test_spans_do_not_overlap_and_fill_everything_where_all_is_selected():
    row = [CLS, *[7] * 9, SEP, *[7] * 4, SEP]
    found = chosen(rows(*[row] * 50, length=16), strategy="span", masked_fraction=0.95)
    assert all(positions == [*range(1, 10), *range(11, 15)] for positions in found)


def test_lengths_of_spans_are_geometric_up_to_the_longest():
    """One span each: of 1, 2 or 3 tokens, in the proportions 1 : 0.6 : 0.36."""
    from electra_tf.data.selection import _span_lengths

    uniform = RandomStream(3, 0, 0).uniform(9000, (1,))
    drawn = _span_lengths(uniform, MaskingConfig(span_end_probability=0.4, max_span_length=3)).numpy().ravel()
    for length, mass in ((1, 1.0), (2, 0.6), (3, 0.36)):
        assert within(np.count_nonzero(drawn == length), 9000, mass / 1.96)
    assert (_span_lengths(uniform, MaskingConfig(span_end_probability=1.0)).numpy() == 1).all()


def test_the_mean_length_of_a_span_is_that_of_spanbert():
    from electra_tf.data.selection import _span_lengths

    drawn = _span_lengths(RandomStream(3, 0, 0).uniform(20_000, (1,)), MaskingConfig()).numpy()
    assert (drawn.min(), drawn.max()) == (1, 10)
    assert drawn.mean() == pytest.approx(3.8, abs=0.1)  # section 3.1 of its paper


def test_the_tokens_of_a_span_are_shown_in_one_way():
    row = [CLS, *[7] * 40, SEP]
    settings = {"span_end_probability": 1e-6, "max_span_length": 10**6, "mask_token_fraction": 0.5}
    found = masked(rows(*[row] * 300, length=42), strategy="span", **settings)
    num_masked = (found["masked_input_ids"] == MASK).sum(axis=1)
    assert found["masked_lm_weights"].sum(axis=1).tolist() == [6.0] * 300
    whole = np.isin(num_masked, [0, 6])
    assert whole.sum() >= 297  # all that have but one span
    assert within((num_masked == 6).sum(), 300, 0.5)


def test_all_pieces_of_a_word_are_selected_together():
    """Ten of 24 tokens. Words of 1, 2 and 3 pieces stand at 1, 2 to 3, 4 to 6, and so on."""
    row = [CLS, *words(1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 3), SEP]
    sizes, groups, begin = (1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 3), [], 1
    for size in sizes:
        groups.append(set(range(begin, begin + size)))
        begin += size
    for positions in chosen(rows(*[row] * 200, length=24), strategy="whole_word", masked_fraction=0.4):
        assert all(group <= set(positions) or not group & set(positions) for group in groups)
        assert 8 <= len(positions) <= 10  # two pieces less where only words of three are left


def test_a_word_that_does_not_fit_any_more_is_passed_over_for_the_next():
    """Three tokens are wanted of a word of four pieces, one of two and two of one each: never the first of them.

    Where the last two come before the second, that does not fit either.
    """
    row = [CLS, *words(4, 2, 1, 1), SEP]
    found = chosen(rows(*[row] * 300, length=10), strategy="whole_word", masked_fraction=0.3)
    assert {tuple(positions) for positions in found} == {(5, 6, 7), (5, 6, 8), (7, 8)}


def test_where_no_word_fits_nothing_is_selected():
    assert chosen(rows([CLS, *words(3, 4), SEP], length=9), strategy="whole_word", masked_fraction=0.2) == [[]]


def test_fewer_are_selected_where_words_do_not_add_up():
    """Three are wanted, and there are words of two pieces only."""
    row = [CLS, *words(2, 2, 2, 2), SEP]
    found = chosen(rows(*[row] * 50, length=10), strategy="whole_word", masked_fraction=0.3)
    assert {tuple(positions) for positions in found} == {(1, 2), (3, 4), (5, 6), (7, 8)}


def test_a_continuation_behind_a_special_token_begins_a_word():
    row = [CLS, 21, SEP, 22, 10, SEP]
    found = chosen(rows(*[row] * 100, length=6), strategy="whole_word", masked_fraction=0.2)
    assert {tuple(positions) for positions in found} == {(1,), (3,), (4,)}


def test_words_are_selected_equally_often_where_they_all_have_one_size():
    n = 3000
    row = [CLS, *words(2, 2, 2, 2, 2), SEP]
    found = chosen(rows(*[row] * n, length=12), strategy="whole_word", masked_fraction=0.33)
    counts = np.bincount([positions[begin] for positions in found for begin in (0, 2)], minlength=12)
    assert all(within(counts[place], n, 2 / 5) for place in (1, 3, 5, 7, 9))


def test_words_come_in_random_order_and_are_taken_while_they_fit():
    """The rule of BERT's own loop, word by word, on random rows."""
    random = np.random.default_rng(0)
    begins = random.random((200, 40)) < 0.6
    candidates = random.random((200, 40)) < 0.9
    count = random.integers(0, 14, 200).astype(np.int32)
    stream = RandomStream(5, 0, 0)
    tensors = tf.constant(candidates), tf.constant(~begins), tf.constant(count)
    found = select_words(*tensors, num_slots=14, random=stream)
    order = np.argsort(stream.uniform(200, (40,)).numpy(), axis=1, kind="stable")
    for row in range(200):
        expected = take_words(candidates[row], begins[row], order[row].tolist(), count[row])
        slots = int(found.count[row])
        assert found.positions[row, :slots].numpy().tolist() == expected


def take_words(candidates, begins, order, count) -> list[int]:
    listed: list[list[int]] = []
    for place in np.flatnonzero(candidates).tolist():
        if begins[place] or not place or not candidates[place - 1]:
            listed.append([])
        listed[-1].append(place)
    taken: list[int] = []
    for index in order:
        if index < len(listed) and len(taken) + len(listed[index]) <= count:
            taken += listed[index]
    return sorted(taken)


def test_rare_tokens_need_counts():
    special = MaskingVocabulary(CLS, SEP, MASK, V)
    with pytest.raises(AssertionError, match="asked for them"):
        mask_batch(rows([CLS, 7, SEP], length=7), MaskingConfig(strategy="rare_tokens"), special, RandomStream(0, 0, 0))
