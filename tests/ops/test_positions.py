"""Drawing positions, and writing values at positions."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.ops.positions import put_at_positions, put_by_scatter, select_distinct, select_with_replacement
from electra_tf.ops.random import RandomStream


@pytest.mark.parametrize("put", [put_at_positions, put_by_scatter])
@pytest.mark.parametrize(
    ("values", "positions", "weights", "written"),
    [
        pytest.param([21, 22, 23], [2, 0, 3], [1, 1, 1], [22, 6, 21, 23], id="each_at_its_position"),
        pytest.param([21, 22, 23], [0, 3, 0], [0, 1, 0], [5, 6, 7, 22], id="weight_zero_writes_nothing_at_position_0"),
        pytest.param([21, 22, 23], [0, 0, 0], [1, 0, 0], [21, 6, 7, 8], id="a_real_entry_at_position_0_is_written"),
        pytest.param([21, 22, 23], [1, 1, 3], [1, 1, 1], [5, 21, 7, 23], id="the_first_of_two_values_is_taken"),
        pytest.param([21, 22, 23], [1, 1, 3], [0, 1, 1], [5, 22, 7, 23], id="the_first_that_counts_is_taken"),
    ],
)
def test_values_are_written_at_their_positions(put, values, positions, weights, written):
    ids, weights = [[9, 10, 11, 12], [5, 6, 7, 8]], tf.constant([[0, 0, 0], weights], tf.float32)
    actual = put(tf.constant(ids), tf.constant([values] * 2), tf.constant([positions] * 2), weights)
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
