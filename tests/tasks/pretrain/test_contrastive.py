"""Clean inputs among the corrupted ones, and the head that tells them apart."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.models.context import ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective

CONTEXT = ForwardContext(random=RandomStream(4, 0, 0))
# [CLS] a b c [SEP] with b masked, and [CLS] a [SEP] with a masked.
BATCH = {
    "input_ids": tf.constant([[2, 11, 12, 13, 3, 0], [2, 21, 3, 0, 0, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]),
    "segment_ids": tf.zeros([2, 6], tf.int32),
    "masked_input_ids": tf.constant([[2, 11, 4, 13, 3, 0], [2, 4, 3, 0, 0, 0]]),
    "masked_lm_positions": tf.constant([[2], [1]]),
    "masked_lm_ids": tf.constant([[12], [21]]),
    "masked_lm_weights": tf.constant([[1.0], [1.0]]),
}


@pytest.fixture(scope="module")
def build(tiny_config):
    """`build(clean_fraction, **settings)`: without dropout and with weights large enough to matter."""

    def objective(clean_fraction: float, **settings):
        tf_keras.utils.set_random_seed(2)
        quiet = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3}
        changes = {"name": "contrastive", "clean_fraction": clean_fraction, **settings}
        return build_objective(tiny_config(encoder=quiet, objective=changes))

    return objective


def sure_of(token_ids) -> VocabularyLogits:
    return VocabularyLogits(100.0 * tf.one_hot(token_ids, 47), tf.eye(47), tf.zeros([47]))


def test_a_clean_input_is_the_original_and_none_of_its_tokens_counts_as_replaced(build):
    corrupted = build(1.0).corrupt(BATCH, sure_of([[33], [34]]), CONTEXT)
    assert np.array_equal(corrupted.input_ids, BATCH["input_ids"])
    assert not corrupted.is_replaced.numpy().any()


def test_without_clean_inputs_it_corrupts_as_electra_does(build):
    corrupted = build(0.0).corrupt(BATCH, sure_of([[33], [34]]), CONTEXT)
    assert corrupted.input_ids.numpy().tolist() == [[2, 11, 33, 13, 3, 0], [2, 34, 3, 0, 0, 0]]
    assert corrupted.is_replaced.numpy().tolist() == [[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0]]


def test_a_fifth_of_the_inputs_is_left_clean_and_others_at_another_step(build):
    objective, n = build(0.2), 1000
    many = {name: tf.repeat(values[:1], n, axis=0) for name, values in BATCH.items()}

    def clean(step: int) -> np.ndarray:
        context = ForwardContext(random=RandomStream(0, step, 0))
        return objective.corrupt(many, sure_of(tf.fill([n, 1], 33)), context).is_replaced.numpy().sum(axis=1) == 0

    assert abs(clean(0).sum() - 0.2 * n) < 4 * math.sqrt(n * 0.2 * 0.8)
    assert (clean(0) != clean(1)).any()


def test_the_loss_of_an_input_by_hand(build):
    objective = build(0.0, sampling="greedy")
    forward = objective.forward(BATCH, CONTEXT)
    kernel, bias = (value.numpy() for value in objective.corrupted_input_head.weights)
    logits = forward.discriminator_output.sequence_output.numpy()[:, 0] @ kernel[:, 0] + bias[0]
    labels = (forward.corrupted.input_ids.numpy() != BATCH["input_ids"].numpy()).any(axis=1)
    chances = 1.0 / (1.0 + np.exp(-logits))
    expected = -np.where(labels, np.log(chances), np.log(1.0 - chances))
    terms = objective.loss_terms(BATCH, CONTEXT)
    assert terms["corrupted_input"].value() == pytest.approx(expected.mean(), rel=1e-5)
    assert terms["corrupted_input_accuracy"].value() == ((logits > 0) == labels).mean()
    assert terms["corrupted_input_fraction"].value() == labels.mean()


def test_an_input_all_of_whose_draws_hit_the_original_counts_as_clean(build):
    objective = build(0.0)
    proposal = objective.generate(BATCH, CONTEXT)._replace(scores=sure_of([[12], [34]]))
    ratios = objective.extra_metrics(BATCH, objective.discriminate(BATCH, proposal, CONTEXT))
    assert ratios["corrupted_input_fraction"].value() == 0.5


def test_the_losses_of_electra_are_as_they_are(build):
    clean = build(1.0)
    forward, terms = clean.forward(BATCH, CONTEXT), clean.loss_terms(BATCH, CONTEXT)
    logits, real = forward.replaced_token_logits.numpy(), BATCH["input_mask"].numpy() > 0
    # All eight tokens count, as original.
    assert terms["replaced_token"].value() == pytest.approx(np.log1p(np.exp(logits[real])).mean(), rel=1e-5)
    assert float(terms["replaced_token"].weight) == 8
    noised = build(0.0).loss_terms(BATCH, CONTEXT)
    assert terms["masked_lm"].value() == noised["masked_lm"].value()
    assert float(terms["masked_lm"].weight) == 2


def test_a_row_of_padding_counts_for_nothing(build):
    objective = build(0.5)
    filled = {name: tf.pad(values, [[0, 2], [0, 0]]) for name, values in BATCH.items()}
    found, expected = (
        {name: term.value() for name, term in objective.loss_terms(batch, CONTEXT).items()} for batch in (filled, BATCH)
    )
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_inputs_trains_the_discriminator_and_its_head_alone(build):
    objective = build(0.0, tying="none", sampling="greedy")
    with tf.GradientTape() as tape:
        loss = objective.loss_terms(BATCH, CONTEXT)["corrupted_input"].total
    watched = {
        "generator": objective.generator.trainable_variables,
        "tokens' head": objective.replaced_token_head.trainable_variables,
        "discriminator": [objective.discriminator.embeddings.word_embeddings],
        "head": objective.corrupted_input_head.trainable_variables,
    }
    gradients = tape.gradient(loss, watched)
    assert all(gradient is None for gradient in gradients["generator"] + gradients["tokens' head"])
    assert all(tf.convert_to_tensor(gradient).numpy().any() for gradient in gradients["discriminator"])
    assert all(gradient.numpy().any() for gradient in gradients["head"])


def test_as_a_masked_lm_it_has_seen_fewer_samples(build):
    # 0.3 of the tokens of half of the inputs.
    assert build(0.5).originals_per_sample == pytest.approx(0.85 / 0.15)
