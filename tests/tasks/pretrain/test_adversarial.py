"""Adversarial training: its terms by hand, the direction in which they push, and where their gradients go."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.generators import GeneratorOutput
from electra_tf.tasks.pretrain.electra import ElectraForward
from electra_tf.tasks.pretrain.generator_objective import CorruptedInput
from tests.toy import log_softmax, logits_of

# Two examples of six tokens over a vocabulary of four; three slots, the last one of the second example not in use.
# At [0, 1] the sample is the original 2, at [0, 4] and [1, 2] another token, at [1, 5] the original.
INPUT_IDS = np.array([[0, 2, 1, 1, 3, 0], [0, 1, 1, 3, 2, 2]])
CORRUPTED_IDS = np.array([[0, 2, 1, 1, 1, 0], [0, 1, 3, 3, 2, 2]])
POSITIONS = np.array([[1, 4, 2], [2, 5, 0]])
WEIGHTS = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], np.float32)
# Positive: predicted to be replaced.
DETECTION_LOGITS = np.array([[0.3, -1.2, 2.0, -0.5, -2.5, 0.1], [-0.7, 0.8, 1.5, -3.0, 0.2, -0.4]], np.float32)
GENERATOR_LOGITS = np.array(
    [
        [[0.0, 1.0, 2.0, -1.0], [0.5, 0.5, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]],
        [[0.0, 0.0, 0.0, 0.0], [-1.0, 2.0, 1.0, 0.0], [9.0, 0.0, 0.0, 0.0]],
    ],
    np.float32,
)
# w . h_G with w = [2, -1].
HIDDEN = np.array([[[0.5, 1.0], [1.0, 0.0], [0.0, 3.0]], [[-1.0, 0.0], [0.0, 0.0], [7.0, 7.0]]], np.float32)
BASELINE_LOGITS = np.array([[0.0, 2.0, -3.0], [-2.0, 0.0, 7.0]])


def at_positions(rows: np.ndarray) -> np.ndarray:
    return np.take_along_axis(rows, POSITIONS, axis=1)


@pytest.fixture
def terms(build):
    """`terms(generator_logits, weights)`: of the case above, the baseline's weights being `weights`."""

    def compute(generator_logits=GENERATOR_LOGITS, weights=(2.0, -1.0)):
        objective = build("adversarial")
        objective.baseline = keras.layers.Dense(1, use_bias=False)
        objective.baseline.build([None, 2])
        objective.baseline.kernel.assign([[weight] for weight in weights])
        is_replaced = tf.cast(CORRUPTED_IDS != INPUT_IDS, tf.int32)
        sampled_ids = tf.constant(at_positions(CORRUPTED_IDS), tf.int32)
        corrupted = CorruptedInput(sampled_ids, tf.constant(CORRUPTED_IDS, tf.int32), is_replaced)
        generated = GeneratorOutput(logits_of(generator_logits), tf.constant(HIDDEN), None)
        logits = tf.constant(DETECTION_LOGITS), objective.baseline_logits(generated)
        forward = ElectraForward(generated, corrupted, is_replaced, None, *logits)
        batch = {
            "input_mask": tf.ones_like(is_replaced),
            "masked_lm_positions": tf.constant(POSITIONS, tf.int32),
            "masked_lm_weights": tf.constant(WEIGHTS),
            "masked_lm_ids": tf.constant(at_positions(INPUT_IDS), tf.int32),
            "mask_token_weights": tf.constant(WEIGHTS),
            "unigram_losses": tf.zeros_like(WEIGHTS),
        }
        return objective.loss_totals(batch, forward) | objective.extra_metrics(batch, forward)

    return compute


def test_every_term_equals_its_formula_in_appendix_f(terms):
    is_replaced = at_positions(CORRUPTED_IDS) != at_positions(INPUT_IDS)
    assert is_replaced.tolist() == [[False, True, False], [True, False, False]]
    # D of the paper is the probability of an original.
    original = 1.0 / (1.0 + np.exp(at_positions(DETECTION_LOGITS)))
    paper_reward = np.where(is_replaced, np.log(1.0 - original), np.log(original))
    baseline = 1.0 / (1.0 + np.exp(-BASELINE_LOGITS))
    advantage = np.log(baseline) - paper_reward
    log_probs = log_softmax(GENERATOR_LOGITS)
    of_samples = np.take_along_axis(log_probs, at_positions(CORRUPTED_IDS)[..., np.newaxis], axis=-1)[..., 0]
    right = np.exp(paper_reward)
    expected = {
        "policy": -of_samples * advantage,
        "baseline": -(right * np.log(baseline) + (1.0 - right) * np.log(1.0 - baseline)),
        "reward": -paper_reward,
        "advantage": advantage,
        "generator_entropy": -(np.exp(log_probs) * log_probs).sum(-1),
        "masked_lm_accuracy": np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
    }
    computed = {name: terms()[name] for name in expected}
    assert {name: float(total.value) for name, total in computed.items()} == pytest.approx(
        {name: (values * WEIGHTS).sum() for name, values in expected.items()}, rel=1e-5
    )
    assert {total.denominator for total in computed.values()} == {"masked_tokens"}


def test_samples_that_fool_the_discriminator_become_more_likely_and_detected_ones_less(terms):
    """At [0, 4] a replaced token passes for an original; at [1, 2] one is detected. The baseline predicts 1/2."""
    logits = tf.Variable(GENERATOR_LOGITS)
    with tf.GradientTape() as tape:
        policy = terms(logits + 0.0, weights=(0.0, 0.0))["policy"].value
    gradient = tape.gradient(policy, logits).numpy()
    fooled, detected, unused = gradient[0, 1], gradient[1, 0], gradient[1, 2]
    assert fooled[1] < 0.0 < detected[3]
    # The gradient of -log softmax times the advantage -R - ln 2.
    probs = np.exp([0.5, 0.5, 0.0, 0.0]) / np.exp([0.5, 0.5, 0.0, 0.0]).sum()
    advantage = math.log1p(math.exp(2.5)) - math.log(2.0)
    assert fooled == pytest.approx((probs - [0, 1, 0, 0]) * advantage, rel=1e-5)
    assert not unused.any()
