"""Clean inputs among the corrupted ones, and the head that detects corrupted inputs."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from tests.toy import certain, training_values


@pytest.mark.parametrize(
    ("clean_fraction", "input_ids", "is_replaced"),
    [
        (0.0, [[2, 33, 12, 3, 13, 3], [2, 21, 34, 3, 0, 0]], [[0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]),
        (1.0, [[2, 11, 12, 3, 13, 3], [2, 21, 22, 3, 0, 0]], [[0] * 6, [0] * 6]),
    ],
)
def test_a_clean_input_is_the_original(build, batch, sampling, clean_fraction, input_ids, is_replaced):
    objective = build("contrastive", clean_fraction=clean_fraction)
    corrupted = objective.corrupt(batch, certain([[13, 33], [34, 0]]), sampling)
    assert corrupted.input_ids.numpy().tolist() == input_ids
    assert corrupted.is_replaced.numpy().tolist() == is_replaced


def test_a_fifth_of_the_inputs_is_clean_and_another_fifth_at_the_next_step(build, batch):
    objective, n = build("contrastive"), 1000
    many = {name: tf.repeat(rows[1:], n, axis=0) for name, rows in batch.items()}

    def clean(step: int) -> np.ndarray:
        context = ForwardContext(random=RandomStream(0, step, 0))
        return objective.corrupt(many, certain(tf.fill([n, 2], 33)), context).is_replaced.numpy().sum(axis=1) == 0

    assert abs(clean(0).sum() - 0.2 * n) < 4 * math.sqrt(n * 0.2 * 0.8)
    assert (clean(0) != clean(1)).any()


def test_the_loss_over_inputs_equals_its_formula(build, batch, sampling):
    objective = build("contrastive", clean_fraction=0.0, sampling="greedy")
    forward = objective.forward(batch, sampling)
    kernel, bias = (value.numpy() for value in objective.corrupted_input_head.weights)
    logits = forward.discriminator_output.sequence_output.numpy()[:, 0] @ kernel[:, 0] + bias[0]
    labels = (forward.corrupted.input_ids.numpy() != batch["input_ids"].numpy()).any(axis=1)
    terms = training_values(objective, batch, sampling)
    assert terms["corrupted_input"] == pytest.approx(np.log1p(np.exp(np.where(labels, -logits, logits))).mean(), 1e-5)
    assert terms["corrupted_input_accuracy"] == ((logits > 0) == labels).mean()
    assert terms["corrupted_input_fraction"] == labels.mean()


def test_an_input_whose_samples_all_equal_the_originals_counts_as_clean(build, batch, sampling):
    objective = build("contrastive", clean_fraction=0.0)
    generated = objective.generate(batch, sampling)._replace(distribution=certain([[13, 11], [34, 0]]))
    terms = objective.extra_metrics(batch, objective.discriminate(batch, generated, sampling))
    assert float(terms["corrupted_input_fraction"].value) == 1.0


def test_the_other_losses_are_those_of_electra(build, batch, sampling):
    clean = build("contrastive", clean_fraction=1.0)
    logits = clean.forward(batch, sampling).replaced_token_logits.numpy()[batch["input_mask"].numpy() > 0]
    terms = training_values(clean, batch, sampling)
    # All ten real tokens count, as originals.
    assert terms["replaced_token"] == pytest.approx(np.log1p(np.exp(logits)).mean(), rel=1e-5)
    corrupted = training_values(build("contrastive", clean_fraction=0.0), batch, sampling)
    assert terms["masked_lm"] == corrupted["masked_lm"]
