import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.context import ForwardContext
from electra_tf.models.sampling import sample_greedy, sample_gumbel
from electra_tf.objectives import build_objective
from electra_tf.random import RandomStream

LOGITS = np.array([2.0, -1.0, 0.0, 0.5, -4.0, 1.5, 0.0], np.float32)
SAMPLES = (2000, 100)  # 200,000 draws: B and M


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()


def chi_squared(drawn: np.ndarray, probabilities: np.ndarray) -> float:
    counts = np.bincount(drawn.ravel(), minlength=len(probabilities))
    expected = drawn.size * probabilities
    return float(((counts - expected) ** 2 / expected).sum())


def bound(degrees: int) -> float:
    """Five standard deviations above the mean of the distribution."""
    return degrees + 5 * math.sqrt(2 * degrees)


def context(step: int = 0) -> ForwardContext:
    return ForwardContext(random=RandomStream(1, step, 0))


def repeated(logits: np.ndarray) -> tf.Tensor:
    return tf.tile(tf.constant(logits)[tf.newaxis, tf.newaxis], [*SAMPLES, 1])


def test_draws_follow_the_softmax():
    drawn = sample_gumbel(repeated(LOGITS), context()).numpy()
    assert drawn.dtype == np.int32 and drawn.shape == SAMPLES
    assert chi_squared(drawn, softmax(LOGITS)) < bound(6)


def test_the_test_of_the_softmax_tells_a_temperature_of_1_02_from_1():
    drawn = sample_gumbel(repeated(LOGITS), context()).numpy()
    assert chi_squared(drawn, softmax(LOGITS / 1.02)) > bound(6)


def test_steps_draw_differently_and_a_step_repeats():
    logits = repeated(LOGITS)[:5]
    first = sample_gumbel(logits, context()).numpy()
    assert np.array_equal(first, sample_gumbel(logits, context()))
    assert not np.array_equal(first, sample_gumbel(logits, context(step=1)))


def test_greedy_takes_the_most_likely_token():
    logits = tf.constant([[[0.0, 3.0, 2.0], [-1.0, -3.0, -2.0]]])
    assert sample_greedy(logits, ForwardContext()).numpy().tolist() == [[1, 0]]


@pytest.fixture(scope="module")
def corrupt(tiny_config):
    """`corrupt(logits, **settings)`: what an ELECTRA of these settings samples; the original is token 5 everywhere."""

    def run(logits: np.ndarray, **settings) -> np.ndarray:
        objective = build_objective(tiny_config(objective=settings))
        num_examples, num_slots = SAMPLES
        batch = {
            "input_ids": tf.fill([num_examples, num_slots], 5),
            "masked_lm_positions": tf.tile(tf.range(num_slots)[tf.newaxis], [num_examples, 1]),
            "masked_lm_ids": tf.fill([num_examples, num_slots], 5),
            "masked_lm_weights": tf.ones([num_examples, num_slots]),
        }
        return objective.corrupt(batch, repeated(logits), context()).sampled_ids.numpy()

    return run


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_divides_the_logits(corrupt, temperature):
    drawn = corrupt(LOGITS, temperature=temperature)
    assert chi_squared(drawn, softmax(LOGITS / temperature)) < bound(6)


def test_a_temperature_near_zero_is_greedy(corrupt):
    assert (corrupt(LOGITS, temperature=1e-3) == 0).all()


def test_greedy_sampling_is_an_option_of_the_objective(corrupt):
    assert (corrupt(LOGITS, sampling="greedy") == 0).all()


def test_the_original_can_be_ruled_out_and_the_rest_keeps_its_proportions(corrupt):
    drawn = corrupt(LOGITS, disallow_correct=True)
    assert (drawn != 5).all()
    others = np.delete(LOGITS, 5)
    renumbered = np.where(drawn > 5, drawn - 1, drawn)
    assert chi_squared(renumbered, softmax(others)) < bound(5)


def test_the_original_is_drawn_as_often_as_its_probability_says(corrupt):
    share = float((corrupt(LOGITS) == 5).mean())
    probability = softmax(LOGITS)[5]
    assert abs(share - probability) < 3 * math.sqrt(probability * (1 - probability) / math.prod(SAMPLES))
