import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.ops.random import RandomStream


def draw(rows: int = 6, shape: tuple[int, ...] = (7, 3), *, seed=5, step=2, first_example=0, name="a") -> np.ndarray:
    return RandomStream(seed, step, first_example, name).uniform(rows, shape).numpy()


# One number of Philox's counter gives four draws, so sizes on both sides of a multiple of four matter.
@pytest.mark.parametrize("shape", [(1,), (3,), (4,), (5,), (7, 3), (2, 3, 4), ()])
@pytest.mark.parametrize("cut", [1, 2, 5])
def test_a_row_does_not_depend_on_how_the_batch_is_cut(shape, cut):
    parts = [draw(cut, shape), draw(6 - cut, shape, first_example=cut)]
    assert np.array_equal(np.concatenate(parts), draw(6, shape))


@pytest.mark.parametrize("change", [{"seed": 6}, {"step": 3}, {"name": "b"}, {"first_example": 6}])
def test_another_seed_step_name_or_example_gives_other_numbers(change):
    # 24-bit numbers: by chance 126^2 / 2^24 = 1e-3 pairs would be expected to agree.
    assert not np.isin(draw(**change), draw()).any()


def test_a_large_step_is_told_from_its_neighbour():
    assert not np.array_equal(draw(step=2**40), draw(step=2**40 + 1))


def test_scopes_are_independent_of_parent_and_siblings():
    stream = RandomStream(5, 2, 0)
    draws = [part.uniform(6, (11,)).numpy() for part in (stream, stream.scope("a"), stream.scope("b"))]
    draws.append(stream.scope("a").scope("b").uniform(6, (11,)).numpy())
    assert len({array.tobytes() for array in draws}) == 4


def test_the_same_scope_gives_the_same_numbers():
    first, second = (RandomStream(5, 2, 0).scope("a").uniform(6, (7, 3)) for _ in range(2))
    assert np.array_equal(first, second)


def test_numbers_are_uniform_on_the_unit_interval():
    values = draw(500, (401,)).ravel()
    n = values.size
    assert values.dtype == np.float32
    assert values.min() >= 0.0 and values.max() < 1.0
    assert abs(values.mean() - 0.5) < 4 * math.sqrt(1 / 12 / n)
    # The variance of a uniform's square deviation is 1/80 - 1/144.
    assert abs(((values - 0.5) ** 2).mean() - 1 / 12) < 4 * math.sqrt((1 / 80 - 1 / 144) / n)
    counts, _ = np.histogram(values, bins=16, range=(0, 1))
    # Chi-squared with 15 degrees of freedom: mean 15, standard deviation sqrt(30).
    assert ((counts - n / 16) ** 2 / (n / 16)).sum() < 15 + 5 * math.sqrt(30)


def test_neighbouring_examples_and_steps_are_uncorrelated():
    first, second = draw(1, (20_000,), step=1)[0], draw(1, (20_000,), step=1, first_example=1)[0]
    third = draw(1, (20_000,), step=2)[0]
    for other in (second, third):
        assert abs(np.corrcoef(first, other)[0, 1]) < 4 / math.sqrt(20_000)


def test_xla_gives_the_same_bits():
    @tf.function(jit_compile=True)
    def compiled(step: tf.Tensor, first_example: tf.Tensor) -> tf.Tensor:
        return RandomStream(5, step, first_example, "a").uniform(3, (7, 3))

    found = compiled(tf.constant(2, tf.int64), tf.constant(4, tf.int64)).numpy()
    assert np.array_equal(found, draw(3, first_example=4))
