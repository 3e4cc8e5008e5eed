"""Random numbers depend on seed, name, step and example alone; positions drawn, and values put at positions."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.ops.fused import FusedOps
from electra_tf.ops.positions import put_at_positions, put_by_scatter, select_distinct, select_with_replacement
from electra_tf.ops.random import RandomStream, hashed, threefry
from tests.toy import follows


def uniform(rows: int = 6, shape: tuple[int, ...] = (7, 3), *, seed=5, step=2, first_example=0, name="a") -> np.ndarray:
    return RandomStream(seed, step, first_example, name).uniform(rows, shape).numpy()


def bits(rows: int = 6, shape: tuple[int, ...] = (7, 3), *, seed=5, step=2, first_example=0, name="a") -> np.ndarray:
    return RandomStream(seed, step, first_example, name).dropout_key(0.1).bits(rows, shape).numpy()


GENERATORS = pytest.mark.parametrize("draw", [uniform, bits], ids=["philox", "hash"])


# One number of Philox's counter gives four draws, so sizes on both sides of a multiple of four matter.
@GENERATORS
@pytest.mark.parametrize("shape", [(4,), (5,), (2, 3, 4)])
def test_the_numbers_of_an_example_do_not_depend_on_how_the_batch_is_divided(draw, shape):
    parts = [draw(5, shape), draw(1, shape, first_example=5)]
    assert np.array_equal(np.concatenate(parts), draw(6, shape))


@GENERATORS
@pytest.mark.parametrize(
    "change", [{"seed": 6}, {"step": 3}, {"step": 2 + 2**32}, {"name": "b"}, {"first_example": 6}], ids=str
)
def test_numbers_differ_between_seeds_steps_names_and_examples(draw, change):
    # By chance 126^2 / 2^24 = 1e-3 pairs of 24-bit numbers would be expected to agree.
    assert not np.isin(draw(**change), draw()).any()


def test_the_rows_of_an_example_draw_what_they_would_as_examples_of_their_own():
    rows = RandomStream(3, 5, 0, "a").uniform(8, (11,)).numpy()
    of_example = RandomStream(3, 5, 1).fold_in("a").of_rows(tf.constant(4))
    assert not np.array_equal(rows, of_example.uniform(8, (11,)).numpy())
    of_example = RandomStream(3, 5, 1, "a").of_rows(4)
    np.testing.assert_array_equal(of_example.uniform(4, (11,)), rows[4:])


def test_numbers_are_uniform_on_the_unit_interval():
    values = uniform(500, (401,)).ravel()
    assert values.dtype == np.float32
    assert values.min() >= 0.0 and values.max() < 1.0
    assert abs(values.mean() - 0.5) < 4 * math.sqrt(1 / 12 / values.size)
    assert follows((16 * values).astype(int), [1.0] * 16)


# The known answers that the authors of the algorithm publish with it (Random123, kat_vectors): key, counter, output.
@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_answers(key, counter, expected):
    words = [tuple(tf.constant([word], tf.uint32) for word in pair) for pair in (key, counter)]
    assert tuple(int(word[0]) for word in threefry(*words, rounds=20)) == expected


# With keys of zero it is triple32; the values are by Python's integers.
@pytest.mark.parametrize(("index", "expected"), [(0, 0), (1, 0x042741D6), (2, 0xF1DFE8E9), (0xDEADBEEF, 0x0921725E)])
def test_the_hash_without_a_key_is_triple32(index, expected):
    assert int(hashed(*(tf.constant(word, tf.uint32) for word in (index, 0, 0)))) == expected


def test_each_word_of_a_key_changes_half_of_the_bits():
    words = [hashed(*(tf.constant(word, tf.uint32) for word in given)) for given in ((5, 7, 9), (5, 8, 9), (5, 7, 8))]
    first, *others = (int(word) for word in words)
    assert [8 < bin(first ^ other).count("1") < 24 for other in others] == [True, True]


def test_a_mask_keeps_equally_many_elements_of_each_row_and_column():
    keep = RandomStream(5, 2, 0, "a").dropout_key(0.1).keep_mask(40, (4, 96, 128)).numpy()
    for axis, size in enumerate(keep.shape):
        counts = keep.sum(tuple(other for other in range(keep.ndim) if other != axis))
        expected = 0.9 * keep.size / size
        chi_squared = ((counts - expected) ** 2 / (0.1 * expected)).sum()
        assert abs(chi_squared - size) < 4.5 * math.sqrt(2 * size), axis


def test_masks_of_neighbouring_examples_steps_and_layers_are_independent():
    def kept(example: int, step: int, name: str) -> np.ndarray:
        draw = RandomStream(5, step, example, name).dropout_key(0.1)
        return draw.keep_mask(1, (12, 64, 64)).numpy().ravel() - 0.9

    of_draws = [kept(*draw) for draw in ((3, 7, "0"), (4, 7, "0"), (3, 8, "0"), (3, 7, "1"), (3, 7 + 2**32, "0"))]
    correlations = np.corrcoef(of_draws)[np.triu_indices(5, 1)]
    assert np.abs(correlations).max() < 4 / math.sqrt(of_draws[0].size)


def test_keys_drawn_for_a_layer_give_the_masks_of_each_key_alone():
    keys = {name: RandomStream(5, 2, 7, name).dropout_key(0.1) for name in ("attention", "output")}
    drawn = FusedOps("cpu", whole_step=False).drawn_keys({**keys, "mlp": None}, tf.zeros([3, 5, 4]))
    assert drawn["mlp"] is None
    for name, key in keys.items():
        assert drawn[name].words.shape == [3, 2]
        assert np.array_equal(drawn[name].bits(3, (4, 6)), key.bits(3, (4, 6)))


def test_all_elements_of_a_draw_differ():
    assert len(np.unique(bits(3, (4, 5, 6)))) == 360


def test_xla_draws_the_same_numbers():
    @tf.function(jit_compile=True)
    def compiled(step: tf.Tensor, first_example: tf.Tensor):
        stream = RandomStream(5, step, first_example, "a")
        return stream.uniform(3, (7, 3)), stream.dropout_key(0.1).bits(3, (7, 3))

    numbers, words = compiled(tf.constant(2, tf.int64), tf.constant(4, tf.int64))
    assert np.array_equal(numbers, uniform(3, first_example=4))
    assert np.array_equal(words, bits(3, first_example=4))


@pytest.mark.parametrize("put", [put_at_positions, put_by_scatter])
@pytest.mark.parametrize(
    ("positions", "weights", "written"),
    [
        ([2, 0, 3], [1, 1, 1], [22, 6, 21, 23]),
        ([0, 3, 0], [0, 1, 0], [5, 6, 7, 22]),  # weight 0 writes nothing at position 0
        ([0, 0, 0], [1, 0, 0], [21, 6, 7, 8]),  # a real entry at position 0
        ([1, 1, 3], [1, 1, 1], [5, 21, 7, 23]),  # the first of two values
        ([1, 1, 3], [0, 1, 1], [5, 22, 7, 23]),  # the first that counts
    ],
)
def test_values_are_written_at_their_positions(put, positions, weights, written):
    ids, weights = [[9, 10, 11, 12], [5, 6, 7, 8]], tf.constant([[0, 0, 0], weights], tf.float32)
    actual = put(tf.constant(ids), tf.constant([[21, 22, 23]] * 2), tf.constant([positions] * 2), weights)
    assert actual.numpy().tolist() == [ids[0], written]


@pytest.mark.parametrize("draw", [select_distinct, select_with_replacement])
def test_every_candidate_is_drawn_equally_often(draw):
    n = 6000
    candidates = tf.constant([[False, *[True] * 16, False]] * n)
    counts = np.bincount(draw(candidates, 3, RandomStream(1, 0, 0)).numpy().ravel(), minlength=18)
    assert counts[[0, 17]].sum() == 0
    # Three of sixteen. The count of one position has at most the variance of a binomial one.
    assert np.abs(counts[1:17] - n * 3 / 16).max() < 5 * math.sqrt(n * 3 / 16)


def test_distinct_draws_include_other_positions_only_if_there_are_too_few_candidates():
    candidates = tf.constant([[True] * 9, [False, True, True, *[False] * 6]])
    enough, few = select_distinct(candidates, 4, RandomStream(1, 0, 0)).numpy().tolist()
    assert len(set(enough)) == len(set(few)) == 4
    assert set(few[:2]) == {1, 2}


def test_19_draws_with_replacement_select_13_8_percent_of_128_tokens():
    # 19 draws from 126 candidates hit 126 (1 - (125/126)^19) = 17.69 of them: 13.82 % of 128 tokens.
    n = 4000
    candidates = tf.constant([[False, *[True] * 126, False]] * n)
    drawn = select_with_replacement(candidates, 19, RandomStream(1, 0, 0)).numpy()
    num_different = np.array([len(set(row)) for row in drawn.tolist()])
    # The variance of the number of occupied cells.
    variance = 126 * (1 - 1 / 126) ** 19 + 126 * 125 * (1 - 2 / 126) ** 19 - 126**2 * (1 - 1 / 126) ** 38
    assert abs(num_different.mean() - 126 * (1 - (125 / 126) ** 19)) < 4 * math.sqrt(variance / n)
    assert num_different.mean() / 128 == pytest.approx(0.1382, abs=0.0005)
