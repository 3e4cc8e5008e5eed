import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.ops.random import RandomStream
from electra_tf.ops.threefry import threefry


def words(*values: int) -> list[tf.Tensor]:
    return [tf.constant([value], tf.uint32) for value in values]


# The known answers that the authors of the algorithm publish with it (Random123, kat_vectors): key, counter, output.
@pytest.mark.parametrize(
    ("rounds", "key", "counter", "expected"),
    [
        (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        (20, (2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        (20, (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_known_answers_come_out(rounds, key, counter, expected):
    found = threefry(tuple(words(*key)), tuple(words(*counter)), rounds)
    assert tuple(int(word[0]) for word in found) == expected


def bits(rows: int = 6, shape: tuple[int, ...] = (7, 3), *, seed=5, step=2, first_example=0, name="a") -> np.ndarray:
    return RandomStream(seed, step, first_example, name).draw().bits(rows, shape).numpy()


@pytest.mark.parametrize("shape", [(1,), (5,), (7, 3), (2, 3, 4)])
@pytest.mark.parametrize("cut", [1, 2, 5])
def test_a_row_does_not_depend_on_how_the_batch_is_cut(shape, cut):
    parts = [bits(cut, shape), bits(6 - cut, shape, first_example=cut)]
    assert np.array_equal(np.concatenate(parts), bits(6, shape))


@pytest.mark.parametrize("change", [{"seed": 6}, {"step": 3}, {"step": 2 + 2**32}, {"name": "b"}, {"first_example": 6}])
def test_another_seed_step_name_or_example_gives_other_bits(change):
    # 126^2 / 2^32: four in a million pairs of 32-bit numbers would be expected to agree by chance.
    assert not np.isin(bits(**change), bits()).any()


def test_no_two_elements_of_a_draw_are_alike():
    assert len(np.unique(bits(3, (4, 5, 6)))) == 360


def test_the_share_that_reaches_the_rate_is_as_large_as_it_should_be():
    kept = RandomStream(5, 2, 0).draw().keep_mask(0.1, 40, (25, 401)).numpy()
    assert abs(kept.mean() - 0.9) < 4 * math.sqrt(0.1 * 0.9 / kept.size)


def test_each_bit_is_set_half_the_time_and_neighbours_are_independent():
    drawn = bits(40, (25, 401))
    for place in range(32):
        ones = (drawn >> place) & 1
        assert abs(ones.mean() - 0.5) < 5 * 0.5 / math.sqrt(ones.size), place
        agreements = (ones[..., 1:] == ones[..., :-1]).mean()
        assert abs(agreements - 0.5) < 5 * 0.5 / math.sqrt(ones.size - ones.shape[0] * ones.shape[1]), place


def test_a_compiled_program_draws_the_same_bits():
    draw = RandomStream(5, 2, 3, "a").draw()
    compiled = tf.function(lambda draw: draw.bits(6, (7, 3)), jit_compile=True)(draw)
    assert np.array_equal(compiled, bits(first_example=3))
