"""Masks that are drawn by the losses that a small network predicts."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from tests.toy import evaluation_values, log_softmax, training_values

TRAINING = ForwardContext(training=True, random=RandomStream(4, 0, 0))
# [CLS] a b c d [SEP] and [CLS] a [SEP] b [SEP]. Of the first b is shown as [MASK], d as it is, a as token 40.
BATCH = {
    "input_ids": tf.constant([[2, 11, 12, 13, 14, 3, 0], [2, 21, 3, 22, 3, 0, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0]]),
    "segment_ids": tf.constant([[0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0]]),
    "masked_input_ids": tf.constant([[2, 40, 4, 13, 14, 3, 0], [2, 4, 3, 22, 3, 0, 0]]),
    "masked_lm_positions": tf.constant([[2, 4, 1], [1, 0, 0]]),
    "masked_lm_ids": tf.constant([[12, 14, 11], [21, 0, 0]]),
    "masked_lm_weights": tf.constant([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
    "mask_token_weights": tf.constant([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
    "unigram_losses": tf.constant([[2.5, 1.5, 3.5], [4.0, 0.0, 0.0]]),
}
WORDS = np.array([[0, 1, 1, 1, 1, 0, 0], [0, 1, 0, 1, 0, 0, 0]]) > 0


@pytest.fixture(scope="module")
def hard(build):
    return build("hard_mlm")


def test_the_hardest_words_are_masked_and_each_slot_keeps_its_kind_of_replacement(hard, sampling):
    # By far the hardest: c, a, b of the first text, b of the second. [CLS] and padding must not be drawn at all.
    predicted = tf.constant(
        [[900.0, 300.0, 200.0, 400.0, 1.0, 900.0, 900.0], [900.0, 1.0, 900.0, 200.0, 900.0, 900.0, 900.0]]
    )
    masked = hard.with_hard_masks(BATCH, predicted, sampling)
    assert masked["masked_lm_positions"].numpy().tolist() == [[3, 1, 2], [3, 0, 0]]
    assert masked["masked_lm_ids"].numpy().tolist() == [[13, 11, 12], [22, 0, 0]]
    # [MASK] for c, a as it is, token 40 for b.
    assert masked["masked_input_ids"].numpy().tolist() == [[2, 11, 40, 4, 14, 3, 0], [2, 21, 3, 4, 3, 0, 0]]
    for name in ("input_ids", "input_mask", "segment_ids", "masked_lm_weights"):
        assert np.array_equal(masked[name], BATCH[name])


def test_a_token_is_masked_in_proportion_to_the_exponential_of_its_predicted_loss(build, sampling):
    objective, n = build("hard_mlm", mask_temperature=2.0), 2000
    many = {name: tf.repeat(rows[1:], n, axis=0) for name, rows in BATCH.items()}
    predicted = tf.repeat(tf.constant([[9.0, 1.0, 9.0, 1.0 + 2.0 * math.log(4.0), 9.0, 9.0, 9.0]]), n, axis=0)
    positions = objective.with_hard_masks(many, predicted, sampling)["masked_lm_positions"].numpy()[:, 0]
    assert set(positions) == {1, 3}
    assert abs((positions == 3).sum() - 0.8 * n) < 4 * math.sqrt(n * 0.8 * 0.2)


def test_training_draws_the_masks_again_and_evaluation_does_not(build, sampling):
    objective = build("hard_mlm")
    # Predicted to be hard are d of the first text and b of the second.
    predicted = tf.constant([[0.0] * 4 + [500.0] + [0.0] * 2, [0.0] * 3 + [500.0] + [0.0] * 3])
    objective.predict_losses = lambda batch, context: predicted
    trained, evaluated = (training_values(objective, BATCH, context) for context in (TRAINING, sampling))
    # d and two of three others, b; against b, d, a; a.
    assert trained["difficulty_of_masked"] == pytest.approx(1000 / 4)
    assert evaluated["difficulty_of_masked"] == pytest.approx(500 / 4)
    assert trained["difficulty_of_all"] == pytest.approx(1000 / 6)
    held_out = evaluation_values(objective, BATCH, sampling)
    assert held_out["unigram_loss"] == 3.25 and "unigram_loss" not in trained  # of b and a
    assert held_out["masked_lm_loss"] == pytest.approx(evaluated["masked_lm"], rel=1e-6)
    assert held_out["hard_masked_lm_loss"] != held_out["masked_lm_loss"]


def test_the_losses_equal_their_formulas(hard, sampling):
    predicted = hard.predict_losses(BATCH, TRAINING).numpy()
    batch = hard.with_hard_masks(BATCH, tf.constant(predicted), TRAINING)
    log_probs = log_softmax(hard.generate(batch, sampling).logits)
    ids, used = batch["masked_lm_ids"].numpy(), batch["masked_lm_weights"].numpy() > 0
    losses = -np.take_along_axis(log_probs, ids[..., np.newaxis], axis=-1)[..., 0]
    at_masks = np.take_along_axis(predicted, batch["masked_lm_positions"].numpy(), axis=1)
    expected = {
        "masked_lm": losses[used].mean(),
        "difficulty": ((at_masks - losses) ** 2)[used].mean(),
        "difficulty_of_masked": at_masks[used].mean(),
        "difficulty_of_all": predicted[WORDS].mean(),
    }
    assert training_values(hard, BATCH, TRAINING) == pytest.approx(expected, rel=1e-4)


def test_losses_are_predicted_from_the_unmasked_text_and_begin_at_that_of_an_untrained_masked_lm(hard, build, sampling):
    other = {**BATCH, "masked_input_ids": tf.fill([2, 7], 40)}
    assert np.array_equal(hard.predict_losses(other, sampling), hard.predict_losses(BATCH, sampling))
    objective = build("hard_mlm")
    objective.difficulty.head.kernel.assign(tf.zeros_like(objective.difficulty.head.kernel))
    assert objective.predict_losses(BATCH, sampling).numpy() == pytest.approx(math.log(47), rel=1e-6)
