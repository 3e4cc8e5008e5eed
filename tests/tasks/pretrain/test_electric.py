"""Electric: the noise-contrastive loss and its cloze generator."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.tasks.pretrain.conftest import MASKED, WORDS
from tests.toy import certain, evaluation_values, log_softmax, training_values


@pytest.fixture(scope="module")
def electric(build):
    return build("electric")


@pytest.fixture(scope="module")
def log_q(electric, batch) -> np.ndarray:
    """[B, S, V]: the generator's log q of every token at every position."""
    everywhere = tf.tile(tf.range(6)[tf.newaxis], [2, 1])
    inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
    return log_softmax(electric.generator(**inputs, positions=everywhere).logits)


def of_tokens(log_q: np.ndarray, ids) -> np.ndarray:
    return np.take_along_axis(log_q, np.array(ids)[..., np.newaxis], axis=-1)[..., 0]


def test_every_sample_counts_as_noise_also_one_equal_to_the_original(electric, batch, sampling):
    corrupted = electric.corrupt(batch, certain([[13, 33], [22, 0]]), sampling)
    assert corrupted.input_ids.numpy().tolist() == [[2, 33, 12, 3, 13, 3], [2, 21, 22, 3, 0, 0]]
    assert np.array_equal(corrupted.is_replaced, MASKED)


def test_the_losses_equal_their_formulas(electric, batch, sampling, log_q):
    forward, terms = electric.forward(batch, sampling), training_values(electric, batch, sampling)
    ids = batch["input_ids"].numpy()
    assert terms["masked_lm"] == pytest.approx(-(of_tokens(log_q, ids) * WORDS).sum() / 5, rel=1e-5)

    corrupted_ids = forward.corrupted.input_ids.numpy()
    assert (corrupted_ids != ids).any() and not (corrupted_ids != ids)[MASKED == 0].any()
    energies = electric.energies({**batch, "input_ids": tf.constant(corrupted_ids)}).numpy()
    # The generator's probabilities of the corrupted tokens, each given the original tokens around it.
    logits = energies + of_tokens(log_q, corrupted_ids) + math.log(0.3 / 0.7)
    losses = np.log1p(np.exp(np.where(MASKED > 0, -logits, logits)))
    assert terms["replaced_token"] == pytest.approx(losses[batch["input_mask"].numpy() > 0].mean(), rel=1e-5)
    assert terms["replaced_fraction"] == pytest.approx(3 / 10)


def test_the_generator_never_reads_the_masked_input(electric, batch, sampling):
    other = {**batch, "masked_input_ids": tf.fill([2, 6], 40)}
    first, second = (electric.generate(inputs, sampling).everywhere.logits for inputs in (other, batch))
    assert np.array_equal(first, second)


def test_detect_gives_the_probability_of_noise(electric, batch, log_q):
    logits = electric.energies(batch).numpy() + of_tokens(log_q, batch["input_ids"]) + math.log(0.3 / 0.7)
    np.testing.assert_allclose(electric.detect(batch), 1 / (1 + np.exp(-logits)), rtol=1e-5)


def test_the_three_encoders_share_their_embeddings_unless_tying_is_none(electric, build):
    def num_tables(objective) -> int:
        return len({id(v) for v in objective.trainable_variables if "word_embeddings" in v.name})

    assert num_tables(electric) == 1
    assert num_tables(build("electric", tying="none")) == 2


def test_the_verdict_can_compare_the_generator_with_token_frequencies(electric, batch, sampling, log_q):
    values = evaluation_values(electric, batch, sampling)
    originals = log_q[[0, 0, 1], [4, 1, 2], [13, 11, 22]]
    assert values["mask_token_loss"] == pytest.approx(-originals.mean(), rel=1e-5)
    assert values["unigram_loss"] == pytest.approx((2.5 + 1.5 + 4.25) / 3)
