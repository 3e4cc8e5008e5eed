"""Losses, samples and reports from a network's logits over the vocabulary."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.layers import ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits, sample_categorical, sample_greedy, sample_gumbel
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective

LOGITS = np.array([2.0, -1.0, 0.0, 0.5, -4.0, 1.5, 0.0], np.float32)
SAMPLES = (2000, 100)  # 200,000 draws: B and M


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()


def context(step: int = 0) -> ForwardContext:
    return ForwardContext(random=RandomStream(1, step, 0))


def logits_of(logits: tf.Tensor) -> VocabularyLogits:
    """The `VocabularyLogits` whose logits [B, M, V] these are."""
    size = logits.shape[-1]
    return VocabularyLogits(tf.convert_to_tensor(logits), tf.eye(size), tf.zeros([size]))


def repeated(logits: np.ndarray) -> VocabularyLogits:
    return logits_of(tf.tile(tf.constant(logits)[tf.newaxis, tf.newaxis], [*SAMPLES, 1]))


SAMPLERS = pytest.mark.parametrize("sample", [sample_categorical, sample_gumbel])


@SAMPLERS
def test_draws_follow_the_softmax_and_not_that_of_a_temperature_of_1_02(follows, sample):
    drawn = sample(repeated(LOGITS), context()).numpy()
    assert drawn.dtype == np.int32 and drawn.shape == SAMPLES
    assert follows(drawn, softmax(LOGITS)) and not follows(drawn, softmax(LOGITS / 1.02))


@SAMPLERS
def test_steps_draw_differently_and_a_step_repeats(sample):
    scores = logits_of(tf.tile(tf.constant(LOGITS)[tf.newaxis, tf.newaxis], [5, 100, 1]))
    first = sample(scores, context()).numpy()
    assert np.array_equal(first, sample(scores, context()))
    assert not np.array_equal(first, sample(scores, context(step=1)))


def test_a_vocabulary_of_several_rows_of_columns_is_drawn_from_in_its_proportions(follows):
    """261 entries are three rows of 128 columns, the last all but empty; one token stands in each corner."""
    logits = np.full(261, -30.0, np.float32)
    likely = {0: 1.0, 127: 0.0, 128: 2.0, 255: -1.0, 256: 1.5, 260: 0.5}
    logits[list(likely)] = list(likely.values())
    drawn = logits_of(tf.tile(tf.constant(logits)[tf.newaxis, tf.newaxis], [500, 40, 1])).sample(context()).numpy()
    assert set(np.unique(drawn)) == set(likely)
    numbered = np.searchsorted(list(likely), drawn)
    assert follows(numbered, softmax(np.array(list(likely.values()))))


def test_a_token_of_all_the_mass_is_always_drawn_wherever_it_stands():
    ids = [0, 1, 127, 128, 200, 259, 260]
    logits = tf.one_hot([ids], 261, on_value=300.0, off_value=-300.0)
    for step in range(20):
        assert logits_of(logits).sample(context(step)).numpy().tolist() == [ids]


@pytest.mark.parametrize("value", [-np.inf, -3e38, -2e9, np.inf, np.nan])
def test_a_draw_lies_in_the_vocabulary_whatever_the_logits_are(value):
    """The rest of the 128 columns cannot be drawn."""
    bias = tf.constant([value] * 4)
    scores = VocabularyLogits(tf.zeros([20, 30, 3]), tf.zeros([4, 3]), bias)
    assert set(np.unique(scores.sample(context()))) <= {0, 1, 2, 3}
    losses = scores.losses(tf.ones([20, 30], tf.int32)).numpy()
    assert np.isfinite(losses).all() == np.isfinite(value)


def test_losses_and_their_gradients_are_those_of_the_softmax():
    logits = tf.constant([[[1.0, 2.0, 0.0, -1.0], [0.5, 0.5, 3.0, 0.0], [40.0, -40.0, 0.0, 9.0]]])
    ids, upstream = [1, 3, 1], np.array([1.0, 0.5, 0.0])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses = logits_of(logits).losses(tf.constant([ids]))
    gradient = tape.gradient(losses, logits, tf.constant([upstream], tf.float32)).numpy()[0]
    probs = np.stack([softmax(row) for row in logits.numpy()[0]])
    expected = -np.log(probs[[0, 1, 2], ids])
    assert losses.numpy()[0] == pytest.approx(expected, rel=1e-6)
    assert gradient == pytest.approx((probs - np.eye(4)[ids]) * upstream[:, None], abs=2e-7)


def test_greedy_takes_the_most_likely_token():
    logits = tf.constant([[[0.0, 3.0, 2.0], [-1.0, -3.0, -2.0]]])
    assert sample_greedy(logits_of(logits), ForwardContext()).numpy().tolist() == [[1, 0]]


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


@pytest.mark.parametrize("settings", [{"temperature": 1e-3}, {"sampling": "greedy"}])
def test_a_temperature_near_zero_and_greedy_sampling_take_the_most_likely(corrupt, settings):
    assert (corrupt(LOGITS, **settings) == 0).all()


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_the_temperature_divides_the_logits(follows, corrupt, temperature):
    drawn = corrupt(LOGITS, temperature=temperature)
    assert follows(drawn, softmax(LOGITS / temperature))


def test_the_original_can_be_forbidden_and_the_rest_keeps_its_proportions(follows, corrupt):
    drawn = corrupt(LOGITS, disallow_correct=True)
    assert (drawn != 5).all()
    others = np.delete(LOGITS, 5)
    renumbered = np.where(drawn > 5, drawn - 1, drawn)
    assert follows(renumbered, softmax(others))


@pytest.mark.parametrize("sampling", ["categorical", "gumbel", "greedy"])
def test_the_original_is_forbidden_at_any_temperature_however_likely_it_is(corrupt, sampling):
    logits = np.where(np.arange(7) == 5, 2000.0, LOGITS).astype(np.float32)
    assert (corrupt(logits, sampling=sampling, disallow_correct=True, temperature=1e-3) == 0).all()


REPORTED = np.array(
    [
        [[0.0, math.log(3.0), -2.0], [2.0, 2.0, 2.0], [30.0, 0.0, -30.0]],
        [[1.0, 0.0, -1.0], [0.0, 0.0, 0.0], [-5.0, 700.0, 700.0]],
    ],
    np.float32,
)


def test_the_entropy_is_that_of_the_softmax():
    probs = np.apply_along_axis(softmax, -1, REPORTED)
    entropies = logits_of(REPORTED).entropies().numpy()
    expected = -np.sum(probs * np.log(np.maximum(probs, 1e-300)), axis=-1)
    assert entropies == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert entropies[0, 1] == pytest.approx(math.log(3), rel=1e-6)
    assert entropies[1, 2] == pytest.approx(math.log(2), rel=1e-6)


def test_a_token_that_never_occurs_adds_nothing_to_the_entropy():
    bias = tf.constant([0.0, math.log(3.0), -math.inf])
    logits = VocabularyLogits(tf.zeros([1, 1, 3]), tf.eye(3), bias)
    expected = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    assert float(logits.entropies()[0, 0]) == pytest.approx(expected, rel=1e-6)


def test_the_most_likely_tokens_are_told_from_the_others():
    logits = logits_of(REPORTED)
    assert logits.is_top1(tf.constant([[1, 2, 0], [1, 0, 2]])).numpy().tolist() == [[1, 1, 1], [0, 1, 1]]
    assert logits.is_top1(tf.constant([[0, 0, 1], [0, 1, 0]])).numpy().tolist() == [[0, 1, 0], [1, 1, 0]]


def test_reports_send_no_gradient():
    vectors = tf.Variable(REPORTED)
    with tf.GradientTape() as tape:
        logits = VocabularyLogits(vectors + 0.0, tf.eye(3), tf.zeros([3]))
        total = tf.reduce_sum(logits.entropies()) + tf.reduce_sum(logits.is_top1(tf.zeros([2, 3], tf.int32)))
    assert tape.gradient(total, vectors) is None
