"""The masked language models: BERT, Replace MLM and All-Tokens MLM against numpy."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.pretrain.all_tokens_mlm import with_copying
from tests.toy import evaluation_values, log_softmax, training_values

MASKED = np.array([[0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0]])


def hidden_of(objective, batch, ids: np.ndarray) -> tf.Tensor:
    return objective({**batch, "input_ids": tf.constant(ids)}).sequence_output


def softmax_of_head(objective, batch, ids: np.ndarray) -> np.ndarray:
    """[B, S, V] float64: the predictions of the encoder's masked-LM head for `ids`."""
    return np.exp(log_softmax(objective.prediction_head(hidden_of(objective, batch, ids)).logits))


def copy_probabilities(objective, batch, ids: np.ndarray) -> np.ndarray:
    """[B, S] float64."""
    score, hidden = objective.copy_head.score, hidden_of(objective, batch, ids).numpy().astype(np.float64)
    return 1 / (1 + np.exp(-(hidden @ score.kernel.numpy() + score.bias.numpy())[..., 0]))


def of_originals(probs: np.ndarray, batch) -> tuple[np.ndarray, np.ndarray]:
    """-log p of the original tokens, and 1 where they are the most likely; [B, S] each."""
    original = batch["input_ids"].numpy()
    losses = -np.log(np.take_along_axis(probs, original[..., None], -1)[..., 0])
    return losses, (probs.argmax(-1) == original).astype(float)


def mean(values: np.ndarray, weights: np.ndarray) -> float:
    return float((values * weights).sum() / weights.sum())


@pytest.fixture
def corrupted_ids(batch, sampling):
    def sample(objective) -> np.ndarray:
        ids, original = objective.forward(batch, sampling).corrupted.input_ids.numpy(), batch["input_ids"].numpy()
        assert (ids == original)[MASKED == 0].all() and (ids != original).any() and not (ids == 4).any()
        return ids

    return sample


def test_bert_predicts_the_masked_tokens_from_the_masked_input(build, batch, sampling):
    objective = build("bert_mlm")
    log_probs = log_softmax(objective.forward(batch, sampling).logits)
    expected = -(log_probs[0, 0, 13] + log_probs[0, 1, 11] + log_probs[1, 0, 22]) / 3
    top = log_probs.argmax(-1)
    right = np.mean([top[0, 0] == 13, top[0, 1] == 11, top[1, 0] == 22])
    # All three are shown as [MASK].
    of_masks = {"mask_token_loss": expected, "mask_token_accuracy": right, "unigram_loss": (2.5 + 1.5 + 4.25) / 3}
    assert training_values(objective, batch, sampling) == pytest.approx({"masked_lm": expected, **of_masks}, rel=1e-5)
    terms = evaluation_values(objective, batch, sampling)
    assert terms["masked_lm_accuracy"] == pytest.approx(right)


def test_replace_mlm_predicts_the_masked_tokens_from_the_samples(build, batch, sampling, corrupted_ids):
    objective = build("replace_mlm")
    ids = corrupted_ids(objective)
    losses, correct = of_originals(softmax_of_head(objective, batch, ids), batch)
    trained = training_values(objective, batch, sampling)
    assert trained["encoder_masked_lm"] == pytest.approx(mean(losses, MASKED), rel=1e-5)
    assert trained["encoder_masked_lm_accuracy"] == pytest.approx(mean(correct, MASKED))
    replaced = ids != batch["input_ids"].numpy()
    assert trained["replaced_fraction"] == pytest.approx(mean(replaced, batch["input_mask"].numpy()))


def test_all_tokens_mlm_predicts_every_real_token_by_copy_or_softmax(build, batch, sampling, corrupted_ids):
    objective, real = build("all_tokens_mlm"), batch["input_mask"].numpy()
    ids = corrupted_ids(objective)
    copy, softmax = copy_probabilities(objective, batch, ids), softmax_of_head(objective, batch, ids)
    losses, correct = of_originals(copy[..., None] * np.eye(47)[ids] + (1 - copy)[..., None] * softmax, batch)
    replaced = (ids != batch["input_ids"].numpy()).astype(int)
    assert 0 < mean(correct, real) < 1 and copy.std() > 0.1
    expected = {
        "all_tokens_lm_loss": mean(losses, real),
        "all_tokens_lm_accuracy": mean(correct, real),
        "encoder_masked_lm_loss": mean(losses, MASKED),
        "encoder_masked_lm_accuracy": mean(correct, MASKED),
        "copy_probability_replaced": mean(copy, replaced),
        "copy_probability_kept": mean(copy, real - replaced),
        "copy_probability_masked": mean(copy, MASKED),
        "copy_probability_unmasked": mean(copy, real - MASKED),
    }
    terms = evaluation_values(objective, batch, sampling)
    assert {name: terms[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_without_the_copy_mechanism_every_token_is_predicted_by_the_softmax(build, batch, sampling, corrupted_ids):
    objective, real = build("all_tokens_mlm", copy_mechanism=False), batch["input_mask"].numpy()
    losses, _ = of_originals(softmax_of_head(objective, batch, corrupted_ids(objective)), batch)
    terms = evaluation_values(objective, batch, sampling)
    assert terms["all_tokens_lm_loss"] == pytest.approx(mean(losses, real), rel=1e-5)
    assert not any("copy" in name for name in terms)


def test_a_copy_probability_of_one_is_correct_except_for_replaced_tokens(build, batch, sampling, corrupted_ids):
    objective, real = build("all_tokens_mlm"), batch["input_mask"].numpy()
    objective.copy_head.score.kernel.assign(tf.zeros([16, 1]))
    objective.copy_head.score.bias.assign([30.0])
    ids = corrupted_ids(objective)
    replaced = ids != batch["input_ids"].numpy()
    losses, _ = of_originals(softmax_of_head(objective, batch, ids), batch)
    terms = evaluation_values(objective, batch, sampling)
    assert terms["all_tokens_lm_accuracy"] == pytest.approx(1 - mean(replaced, real))
    assert terms["all_tokens_lm_loss"] == pytest.approx(mean(replaced * (30 + losses), real), rel=1e-5)
    assert terms["copy_probability_replaced"] == terms["copy_probability_kept"] == 1.0


def test_the_mixture_and_its_gradients_are_exact_at_all_probabilities():
    copy_logits = np.array([-200.0, -20.0, -1.0, 0.0, 3.0, 20.0, 200.0])[:, np.newaxis, np.newaxis]
    losses = np.array([0.0, 1e-6, 2.0, 10.3, 150.0])[:, np.newaxis]
    copy_logits, losses, _ = np.broadcast_arrays(copy_logits, losses, np.zeros(2))  # [7, 5, 2]
    inputs = [tf.constant(losses, tf.float32), tf.constant(copy_logits, tf.float32)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        mixture = with_copying(*inputs, tf.constant([True, False]))
    of_losses, of_logits = tape.gradient(mixture, inputs)
    # In float64 and by logaddexp: the smallest probability here, exp(-350), is 0 in float32.
    log_copy, log_draw = -np.logaddexp(0, -copy_logits), -np.logaddexp(0, copy_logits) - losses
    log_input = np.logaddexp(log_copy, log_draw)
    is_input = np.array([True, False])
    np.testing.assert_allclose(mixture, np.where(is_input, -log_input, -log_draw), rtol=1e-6, atol=2e-7)
    drawn, copied, copy = np.exp(log_draw - log_input), np.exp(log_copy - log_input), np.exp(log_copy)
    np.testing.assert_allclose(of_losses, np.where(is_input, drawn, 1.0), atol=1e-6)
    np.testing.assert_allclose(of_logits, np.where(is_input, copy * drawn - copied * (1 - copy), copy), atol=1e-6)


@pytest.mark.parametrize("name", ["replace_mlm", "all_tokens_mlm"])
def test_both_masked_lm_heads_use_the_word_table_and_a_bias_of_their_own(build, name):
    objective = build(name)
    heads = objective.prediction_head, objective.generator.head
    table = objective.encoder.embeddings.word_embeddings
    assert all(head.embeddings.word_embeddings is table for head in heads)
    assert heads[0].output_bias is not heads[1].output_bias
