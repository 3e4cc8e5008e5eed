"""ELECTRA 15 %: which tokens the discriminator's loss counts."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.generators import GeneratorOutput
from electra_tf.tasks.pretrain.electra import ElectraForward
from electra_tf.tasks.pretrain.generator_objective import CorruptedInput
from tests.toy import evaluation_values, logits_of, softplus, training_values

MASKED = [[0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0]]
WORDS = [[0, 1, 1, 0, 1, 0], [0, 1, 1, 0, 0, 0]]
# The generator samples 13 correctly, and no other token.
REPLACED = [[0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
LOGITS = [[9.0, 1.0, 2.0, 9.0, -0.5, 9.0], [9.0, -1.0, -2.0, 9.0, 9.0, 9.0]]


@pytest.fixture
def with_logits(batch, monkeypatch):
    """`with_logits(objective, logits)`: its forward pass then gives these logits and `REPLACED`."""

    def patch(objective, logits):
        corrupted_ids = tf.where(tf.constant(REPLACED) > 0, 40, batch["input_ids"])
        corrupted = CorruptedInput(tf.constant([[13, 40], [40, 0]]), corrupted_ids, tf.constant(REPLACED))
        generated = GeneratorOutput(logits_of(tf.zeros([2, 2, 47])), None, None)

        def forward(batch, context):
            counted = objective.loss_mask(batch, context)
            return ElectraForward(generated, corrupted, counted, None, tf.convert_to_tensor(logits))

        monkeypatch.setattr(objective, "forward", forward)
        return objective

    return patch


def test_the_discriminators_loss_and_metrics_are_over_the_masked_tokens_alone(build, batch, sampling, with_logits):
    objective = with_logits(build("electra_15"), LOGITS)
    terms = evaluation_values(objective, batch, sampling)
    # Replaced with logit 1, original with -0.5, replaced with -2.
    assert terms["replaced_token_loss"] == pytest.approx((softplus(-1.0) + softplus(-0.5) + softplus(2.0)) / 3)
    assert terms["masked_lm_loss"] == pytest.approx(math.log(47), rel=1e-6)
    expected = {"accuracy": 2 / 3, "precision": 1.0, "recall": 0.5, "auc": 0.5}
    assert {name: terms[f"replaced_token_{name}"] for name in expected} == pytest.approx(expected, rel=1e-6)
    assert terms["replaced_fraction"] == pytest.approx(2 / 3, rel=1e-6)
    assert terms["constant_predictor_loss"] == pytest.approx(0.6365142, rel=1e-6)  # the entropy of 2/3


def counted(objective, batch, context, count: int = 1) -> np.ndarray:
    """[count, B, S]: the counted tokens of `count` copies of the batch, each with its own random numbers."""
    copies = {name: tf.concat([rows] * count, axis=0) for name, rows in batch.items()}
    return objective.loss_mask(copies, context).numpy().reshape([count, 2, 6])


def test_random_loss_positions_are_equally_likely_words_as_many_as_are_masked(build, batch, sampling):
    tokens = counted(build("electra_15", loss_positions="random"), batch, sampling, 300)
    assert tokens.sum(axis=2).tolist() == [[2, 1]] * 300
    assert not tokens[:, np.array(WORDS) == 0].any()
    # Each of three words in two of three draws, each of two in one of two: within five standard deviations.
    shares = tokens.mean(axis=0)
    assert shares[0, [1, 2, 4]] == pytest.approx(2 / 3, abs=5 * math.sqrt(2 / 9 / 300))
    assert shares[1, [1, 2]] == pytest.approx(1 / 2, abs=5 * math.sqrt(1 / 4 / 300))


def test_random_unmasked_loss_positions_are_never_replaced(build, batch, sampling, with_logits):
    objective = build("electra_15", loss_positions="random_unmasked")
    # One unmasked word is left in each row; in the first row that is one fewer than are masked.
    assert counted(objective, batch, sampling, 20).tolist() == [[[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0]]] * 20
    terms = training_values(with_logits(objective, LOGITS), batch, sampling)
    assert terms["replaced_fraction"] == 0.0
    assert terms["replaced_token"] == pytest.approx((softplus(2.0) + softplus(-1.0)) / 2, rel=1e-6)


@pytest.mark.parametrize(("loss_positions", "num_counted"), [("masked", 3), ("random", 3), ("random_unmasked", 2)])
def test_the_denominator_is_the_number_of_counted_tokens(build, batch, sampling, loss_positions, num_counted):
    objective = build("electra_15", loss_positions=loss_positions)
    assert float(objective.denominators(batch)["counted_tokens"]) == num_counted
    assert counted(objective, batch, sampling).sum() == num_counted


@pytest.mark.parametrize("loss_positions", ["masked", "random"])
def test_a_token_that_is_selected_twice_counts_once(build, batch, sampling, loss_positions):
    positions, ids = tf.constant([[4, 4], [2, 0]]), tf.constant([[13, 13], [22, 0]])
    twice = {**batch, "masked_lm_positions": positions, "masked_lm_ids": ids}
    assert counted(build("electra_15", loss_positions=loss_positions), twice, sampling).sum(axis=2).tolist() == [[1, 1]]
