"""Masks that a network draws by the losses that it guesses."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.models.context import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective

INFERENCE = ForwardContext(random=RandomStream(4, 0, 0))
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
}


@pytest.fixture(scope="module")
def build(tiny_config):
    """`build(**settings)`: without dropout and with weights large enough to matter."""

    def objective(**settings):
        tf_keras.utils.set_random_seed(2)
        quiet = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3}
        return build_objective(tiny_config(encoder=quiet, objective={"name": "hard_mlm", **settings}))

    return objective


@pytest.fixture(scope="module")
def hard(build):
    return build()


def values(terms) -> dict[str, float]:
    return {name: term.value() for name, term in terms.items()}


# The hardest words by far: c, a, b of the first text, b of the second. [CLS] and padding must not be drawn at all.
SURE = tf.constant([[900.0, 300.0, 200.0, 400.0, 1.0, 900.0, 900.0], [900.0, 1.0, 900.0, 200.0, 900.0, 900.0, 900.0]])


def test_the_hardest_words_are_masked_and_each_slot_shows_what_it_showed(hard):
    found = hard.with_hard_masks(BATCH, SURE, INFERENCE)
    assert found["masked_lm_positions"].numpy().tolist() == [[3, 1, 2], [3, 0, 0]]
    assert found["masked_lm_ids"].numpy().tolist() == [[13, 11, 12], [22, 0, 0]]
    # [MASK] for c, a as it is, token 40 for b.
    assert found["masked_input_ids"].numpy().tolist() == [[2, 11, 40, 4, 14, 3, 0], [2, 21, 3, 4, 3, 0, 0]]
    for name in ("input_ids", "input_mask", "segment_ids", "masked_lm_weights"):
        assert np.array_equal(found[name], BATCH[name])


def test_a_token_is_drawn_in_proportion_to_the_exponential_of_its_guessed_loss(build):
    objective, n = build(mask_temperature=2.0), 2000
    one = {name: rows[1:] for name, rows in BATCH.items()}
    many = {name: tf.repeat(rows, n, axis=0) for name, rows in one.items()}
    guessed = tf.repeat(tf.constant([[9.0, 1.0, 9.0, 1.0 + 2.0 * math.log(4.0), 9.0, 9.0, 9.0]]), n, axis=0)
    positions = objective.with_hard_masks(many, guessed, INFERENCE)["masked_lm_positions"].numpy()[:, 0]
    assert set(positions) == {1, 3}
    assert abs((positions == 3).sum() - 0.8 * n) < 4 * math.sqrt(n * 0.8 * 0.2)


def test_other_steps_draw_other_masks(hard):
    even = tf.zeros([2, 7])
    drawn = {
        tuple(
            hard.with_hard_masks(BATCH, even, ForwardContext(random=RandomStream(0, step, 0)))[
                "masked_lm_positions"
            ].numpy()[0]
        )
        for step in range(20)
    }
    assert len(drawn) > 5
    assert all(len(set(places)) == 3 and set(places) <= {1, 2, 3, 4} for places in drawn)


def test_a_row_of_padding_stays_one(hard):
    filled = {name: tf.pad(rows, [[0, 1], [0, 0]]) for name, rows in BATCH.items()}
    found = hard.with_hard_masks(filled, tf.pad(SURE, [[0, 1], [0, 0]]), INFERENCE)
    assert not any(found[name].numpy()[2].any() for name in found)
    assert values(hard.loss_terms(filled, INFERENCE)) == pytest.approx(values(hard.loss_terms(BATCH, INFERENCE)))


def test_training_masks_anew_and_evaluation_does_not(build):
    objective = build()
    # The network is made to guess that d of the first text and b of the second are hard.
    objective.guess = lambda batch, context: tf.constant(
        [[0.0] * 4 + [500.0] + [0.0] * 2, [0.0] * 3 + [500.0] + [0.0] * 3]
    )
    trained, evaluated = (objective.loss_terms(BATCH, context) for context in (TRAINING, INFERENCE))
    # d and two of three others, b; against b, d, a; a.
    assert trained["difficulty_of_masked"].value() == pytest.approx(1000 / 4)
    assert evaluated["difficulty_of_masked"].value() == pytest.approx(500 / 4)
    assert trained["difficulty_of_all"].value() == pytest.approx(1000 / 6)
    held_out = objective.evaluation_terms(BATCH, INFERENCE)
    assert held_out["masked_lm_loss"].value() == pytest.approx(evaluated["masked_lm"].value(), rel=1e-6)
    assert held_out["hard_masked_lm_loss"].value() != held_out["masked_lm_loss"].value()


@pytest.mark.parametrize("context", [INFERENCE, TRAINING], ids=["inference", "training"])
def test_the_losses_by_hand(hard, context):
    guessed = hard.guess(BATCH, context).numpy()
    batch = hard.with_hard_masks(BATCH, tf.constant(guessed), context) if context.training else BATCH
    logits = hard.forward(batch, INFERENCE).logits.numpy().astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    ids, used = batch["masked_lm_ids"].numpy(), batch["masked_lm_weights"].numpy() > 0
    losses = -np.take_along_axis(log_probs, ids[..., np.newaxis], axis=-1)[..., 0]
    at_masks = np.take_along_axis(guessed, batch["masked_lm_positions"].numpy(), axis=1)
    found = values(hard.loss_terms(BATCH, context))
    assert found["masked_lm"] == pytest.approx(losses[used].mean(), rel=1e-5)
    assert found["difficulty"] == pytest.approx(((at_masks - losses) ** 2)[used].mean(), rel=1e-4)
    assert found["difficulty_of_masked"] == pytest.approx(at_masks[used].mean(), rel=1e-5)
    words = np.array([[0, 1, 1, 1, 1, 0, 0], [0, 1, 0, 1, 0, 0, 0]]) > 0
    assert found["difficulty_of_all"] == pytest.approx(guessed[words].mean(), rel=1e-5)


def test_untrained_it_guesses_about_what_an_untrained_masked_lm_loses(tiny_config):
    objective = build_objective(tiny_config(objective={"name": "hard_mlm"}))
    assert np.abs(objective.guess(BATCH, INFERENCE).numpy() - math.log(47)).max() < 3.0
    objective.difficulty.head.kernel.assign(tf.zeros_like(objective.difficulty.head.kernel))
    assert objective.guess(BATCH, INFERENCE).numpy() == pytest.approx(math.log(47), rel=1e-6)


def test_the_guess_reads_the_unmasked_text(hard):
    junk = {**BATCH, "masked_input_ids": tf.fill([2, 7], 40)}
    assert np.array_equal(hard.guess(junk, INFERENCE), hard.guess(BATCH, INFERENCE))


def test_each_loss_trains_its_own_network(hard):
    variables = {
        "masked_lm": hard.masked_lm.trainable_variables,
        "difficulty": hard.difficulty.trainable_variables,
    }
    assert len(variables["masked_lm"]) + len(variables["difficulty"]) == len(hard.trainable_variables)
    for name in variables:
        with tf.GradientTape() as tape:
            loss = hard.loss_terms(BATCH, TRAINING)[name].total
        gradients = tape.gradient(loss, variables)
        other = ({"masked_lm", "difficulty"} - {name}).pop()
        assert all(gradient is None for gradient in gradients[other])
        assert all(gradient is not None for gradient in gradients[name])
        assert any(tf.convert_to_tensor(gradient).numpy().any() for gradient in gradients[name])


def test_the_description_of_a_step_has_the_network_that_guesses(tiny_config):
    config = tiny_config(objective={"name": "hard_mlm"})
    ((difficulty, masked_lm),) = [phase.passes for phase in config.objective.phases(config)]
    assert (difficulty.name, difficulty.encoder.hidden_size) == ("difficulty", 4)
    assert [(head.kind, head.positions) for head in difficulty.heads] == [("unit", "all")]
    assert (masked_lm.name, masked_lm.encoder.hidden_size) == ("masked_lm_network", 16)
