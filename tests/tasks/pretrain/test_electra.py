"""ELECTRA: what its networks read, what counts as replaced, and its loss."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.layers import INFERENCE
from tests.toy import certain, log_softmax, logits_of, training_values

MASK = 4
MASKED = [[0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0]]


@pytest.fixture(scope="module")
def electra(build):
    return build("electra")


@pytest.fixture(scope="module")
def greedy(build):
    return build("electra", sampling="greedy")


@pytest.mark.parametrize(
    ("sampled", "input_ids", "is_replaced"),
    [
        # Samples equal to the original count as original; the unused slot writes nothing.
        ([[13, 11], [22, 40]], [[2, 11, 12, 3, 13, 3], [2, 21, 22, 3, 0, 0]], [[0] * 6, [0] * 6]),
        ([[40, 41], [42, 40]], [[2, 41, 12, 3, 40, 3], [2, 21, 42, 3, 0, 0]], MASKED),
        # The generator may propose [MASK] itself.
        ([[MASK, MASK], [MASK, 0]], [[2, MASK, 12, 3, MASK, 3], [2, 21, MASK, 3, 0, 0]], MASKED),
    ],
)
def test_samples_are_written_into_the_original_input(greedy, batch, sampling, sampled, input_ids, is_replaced):
    corrupted = greedy.corrupt(batch, certain(sampled), sampling)
    assert corrupted.input_ids.numpy().tolist() == input_ids
    assert corrupted.is_replaced.numpy().tolist() == is_replaced


def test_masked_tokens_that_are_shown_unchanged_are_sampled_too(electra, batch, sampling):
    many = {name: tf.repeat(rows, 100, axis=0) for name, rows in batch.items()}
    unmasked = {**many, "masked_input_ids": many["input_ids"]}
    replaced = electra.corrupt(unmasked, logits_of(tf.zeros([200, 2, 47])), sampling).is_replaced.numpy().sum()
    # Of 300 uniform samples one in 47 is the original.
    assert abs(replaced - 300 * 46 / 47) < 4 * math.sqrt(300 * (46 / 47) * (1 / 47))


def test_the_generator_reads_the_masked_input_and_the_discriminator_the_corrupted_one(greedy, batch, sampling):
    def vectors(encoder, ids):
        output = encoder(ids, input_mask=batch["input_mask"], segment_ids=batch["segment_ids"])
        return output.sequence_output.numpy()

    forward = greedy.forward(batch, sampling)
    generated = forward.generated.encoder_output.sequence_output.numpy()
    assert np.array_equal(generated, vectors(greedy.generator.encoder, batch["masked_input_ids"]))
    assert (forward.corrupted.input_ids != batch["input_ids"]).numpy().any()
    expected = vectors(greedy.discriminator, forward.corrupted.input_ids)
    assert np.array_equal(forward.discriminator_output.sequence_output, expected)


def test_the_losses_are_means_over_masked_and_over_real_tokens(greedy, batch, sampling):
    forward = greedy.forward(batch, sampling)
    log_probs = log_softmax(forward.generated.logits)
    masked_lm = -(log_probs[0, 0, 13] + log_probs[0, 1, 11] + log_probs[1, 0, 22]) / 3
    logits, labels = forward.replaced_token_logits.numpy(), forward.corrupted.is_replaced.numpy()
    real = batch["input_mask"].numpy() > 0
    replaced_token = np.log1p(np.exp(np.where(labels > 0, -logits, logits)))[real].mean()
    terms = training_values(greedy, batch, sampling)
    assert terms["masked_lm"] == pytest.approx(masked_lm, rel=1e-5)
    assert terms["replaced_token"] == pytest.approx(replaced_token, rel=1e-5)
    assert terms["replaced_fraction"] == pytest.approx(labels.sum() / 10)
    assert greedy.loss_weights == {"masked_lm": 1.0, "replaced_token": 50.0}


def test_more_padding_does_not_change_the_losses(greedy, batch, sampling):
    columns = ("input_ids", "input_mask", "segment_ids", "masked_input_ids")
    wider = {name: tf.pad(rows, [[0, 0], [0, 3 if name in columns else 2]]) for name, rows in batch.items()}
    assert wider["input_ids"].shape == (2, 9) and wider["masked_lm_ids"].shape == (2, 4)
    assert training_values(greedy, wider, sampling) == pytest.approx(training_values(greedy, batch, sampling), rel=1e-5)


def test_detect_reads_its_input_without_corrupting_it(electra, batch):
    inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
    output = electra.discriminator(**inputs, context=INFERENCE)
    expected = tf.sigmoid(electra.replaced_token_head(output.sequence_output)).numpy()
    assert np.array_equal(electra.detect(batch), expected) and expected.std() > 0.01
