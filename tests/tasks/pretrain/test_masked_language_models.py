"""The masked language models: BERT, Replace MLM and All-Tokens MLM against numpy; masks that are drawn by losses.

Discriminators as masked language models (paper, appendix G).
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain.all_tokens_mlm import with_copying
from electra_tf.tasks.pretrain.as_masked_lm import MaskedLmByDiscriminator, data_probabilities, one_masked_token_each
from electra_tf.tasks.pretrain.objective import OBJECTIVES, Objective
from tests.tasks.pretrain.conftest import MASKED
from tests.toy import evaluation_values, log_softmax, training_values


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


def corrupted_ids(objective, batch, sampling) -> np.ndarray:
    ids, original = objective.forward(batch, sampling).corrupted.input_ids.numpy(), batch["input_ids"].numpy()
    assert (ids == original)[MASKED == 0].all() and (ids != original).any() and not (ids == 4).any()
    return ids


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


def test_replace_mlm_predicts_the_masked_tokens_from_the_samples(build, batch, sampling):
    objective = build("replace_mlm")
    ids = corrupted_ids(objective, batch, sampling)
    losses, correct = of_originals(softmax_of_head(objective, batch, ids), batch)
    trained = training_values(objective, batch, sampling)
    assert trained["encoder_masked_lm"] == pytest.approx(mean(losses, MASKED), rel=1e-5)
    assert trained["encoder_masked_lm_accuracy"] == pytest.approx(mean(correct, MASKED))
    replaced = ids != batch["input_ids"].numpy()
    assert trained["replaced_fraction"] == pytest.approx(mean(replaced, batch["input_mask"].numpy()))


def test_all_tokens_mlm_predicts_every_real_token_by_copy_or_softmax(build, batch, sampling):
    objective, real = build("all_tokens_mlm", fresh=True), batch["input_mask"].numpy()
    objective.copy_head.score.bias.assign([-2.5])  # so that a few tokens are copied, and a few drawn
    ids = corrupted_ids(objective, batch, sampling)
    copy, softmax = copy_probabilities(objective, batch, ids), softmax_of_head(objective, batch, ids)
    losses, correct = of_originals(copy[..., None] * np.eye(47)[ids] + (1 - copy)[..., None] * softmax, batch)
    replaced = (ids != batch["input_ids"].numpy()).astype(int)
    kept = (real - replaced) > 0
    assert 0 < correct[kept].mean() < 1 and copy.std() > 0.05
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


def test_without_the_copy_mechanism_every_token_is_predicted_by_the_softmax(build, batch, sampling):
    objective, real = build("all_tokens_mlm", copy_mechanism=False), batch["input_mask"].numpy()
    losses, _ = of_originals(softmax_of_head(objective, batch, corrupted_ids(objective, batch, sampling)), batch)
    terms = evaluation_values(objective, batch, sampling)
    assert terms["all_tokens_lm_loss"] == pytest.approx(mean(losses, real), rel=1e-5)
    assert not any("copy" in name for name in terms)


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
WORDS_OF_BATCH = np.array([[0, 1, 1, 1, 1, 0, 0], [0, 1, 0, 1, 0, 0, 0]]) > 0


def test_the_hardest_words_are_masked_and_each_slot_keeps_its_kind_of_replacement(build, sampling):
    # By far the hardest: c, a, b of the first text, b of the second. [CLS] and padding must not be drawn at all.
    predicted = tf.constant(
        [[900.0, 300.0, 200.0, 400.0, 1.0, 900.0, 900.0], [900.0, 1.0, 900.0, 200.0, 900.0, 900.0, 900.0]]
    )
    masked = build("hard_mlm").with_hard_masks(BATCH, predicted, sampling)
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
    objective = build("hard_mlm", fresh=True)
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


def test_the_losses_of_hard_mlm_equal_their_formulas(build, sampling):
    hard = build("hard_mlm")
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
        "difficulty_of_all": predicted[WORDS_OF_BATCH].mean(),
    }
    assert training_values(hard, BATCH, TRAINING) == pytest.approx(expected, rel=1e-4)


def test_losses_are_predicted_from_the_unmasked_text_and_begin_at_that_of_an_untrained_masked_lm(build, sampling):
    hard, other = build("hard_mlm"), {**BATCH, "masked_input_ids": tf.fill([2, 7], 40)}
    assert np.array_equal(hard.predict_losses(other, sampling), hard.predict_losses(BATCH, sampling))
    objective = build("hard_mlm", fresh=True)
    objective.difficulty.head.kernel.assign(tf.zeros_like(objective.difficulty.head.kernel))
    assert objective.predict_losses(BATCH, sampling).numpy() == pytest.approx(math.log(47), rel=1e-6)


@pytest.fixture(scope="module")
def model(build):
    """`model("electra", num_candidates)`: a tiny objective that predicts two tokens of each example."""

    def objective(name: str, num_candidates: int = 47, **settings) -> Objective:
        evaluation = {"num_candidates": num_candidates, "tokens_per_example": 2}
        return build(name, {"evaluation": {"as_masked_lm": evaluation}}, **settings)

    return objective


def accuracies(objective, batch) -> dict[str, float]:
    return evaluation_values(objective.as_masked_lm(), batch, INFERENCE)


def with_originals(batch, answers: np.ndarray) -> dict[str, tf.Tensor]:
    """The batch with these original tokens, [B * 2], at the masked positions."""
    return {**batch, "masked_lm_ids": tf.constant(answers.reshape(2, 2), tf.int32)}


def test_the_formula_gives_values_computed_by_hand():
    # D 1/2, 1/4 and 9/10; a = 0.85 / 0.15 = 17 / 3:
    # 0.5 * 0.2 / (17/6 + 0.2), 0.25 * 0.6 / (17/4 + 0.6), 0.9 * 0.05 / (17/30 + 0.05)
    logits = -np.log([[1.0, 1.0 / 3.0, 9.0]]).astype(np.float32)
    probs = data_probabilities(tf.constant(logits), tf.constant([[0.2, 0.6, 0.05]]), 17.0 / 3.0)
    np.testing.assert_allclose(probs, [[0.03296703, 0.03092784, 0.07297297]], rtol=1e-6)
    certain = data_probabilities(tf.constant([200.0, -200.0, -200.0]), tf.constant([0.5, 0.25, 0.0]), 3.0)
    np.testing.assert_array_equal(certain, [0.0, 1.0, 0.0])


def test_one_token_is_masked_in_each_sequence(batch):
    masked = {**batch, "masked_input_ids": tf.constant([[2, 4, 12, 3, 4, 3], [2, 21, 4, 3, 0, 0]])}
    rows = one_masked_token_each(masked, 2)
    assert rows["masked_input_ids"].numpy().tolist() == [
        [2, 11, 12, 3, 4, 3],
        [2, 4, 12, 3, 13, 3],
        [2, 21, 4, 3, 0, 0],
        [2, 21, 22, 3, 0, 0],
    ]
    assert rows["masked_lm_ids"].numpy().tolist() == [[13], [11], [22], [0]]
    assert rows["masked_lm_weights"].numpy().tolist() == [[1], [1], [1], [0]]
    assert {tuple(values.shape) for values in rows.values()} == {(4, 6), (4, 1)}
    assert one_masked_token_each(masked, 1)["masked_lm_ids"].numpy().tolist() == [[13], [22]]


def candidates_of(objective, masked, num_candidates: int, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """[B, K]: the generator's most likely tokens, and their probabilities."""
    probs = tf.nn.softmax(objective.generate(masked, INFERENCE).logits[:, 0] / temperature)
    top = tf.math.top_k(probs, num_candidates)
    return top.indices.numpy(), top.values.numpy()


def with_candidate(masked, candidate: np.ndarray) -> dict[str, tf.Tensor]:
    ids = masked["input_ids"].numpy().copy()
    ids[np.arange(len(ids)), masked["masked_lm_positions"].numpy()[:, 0]] = candidate
    return {**masked, "input_ids": tf.constant(ids)}


def at_masked(rows, masked) -> np.ndarray:
    return np.array(rows)[np.arange(len(rows)), masked["masked_lm_positions"].numpy()[:, 0]]


def test_electra_predicts_the_candidate_with_the_highest_value_of_the_formula(model, batch):
    objective, masked = model("electra", 5, temperature=3.0), one_masked_token_each(batch, 2)
    candidates, probs = candidates_of(objective, masked, 5, temperature=3.0)
    scores = []
    for candidate, prob in zip(candidates.T, probs.T, strict=True):
        original = 1.0 - at_masked(objective.detect(with_candidate(masked, candidate)), masked)
        scores.append(original * prob / (0.7 / 0.3 * (1.0 - original) + prob))
    answers = candidates[np.arange(4), np.argmax(scores, axis=0)]
    assert accuracies(objective, with_originals(batch, answers))["masked_lm_accuracy"] == 1.0
    others = accuracies(objective, with_originals(batch, (answers + 1) % 47))
    assert (others["masked_tokens"], others["masked_lm_accuracy"]) == (3.0, 0.0)


def test_electric_predicts_the_candidate_with_the_lowest_energy(model, batch):
    objective, masked = model("electric", 3), one_masked_token_each(batch, 2)
    candidates, _ = candidates_of(objective, masked, 3)
    energies = [at_masked(objective.energies(with_candidate(masked, candidate)), masked) for candidate in candidates.T]
    answers = candidates[np.arange(4), np.argmin(energies, axis=0)]
    assert accuracies(objective, with_originals(batch, answers))["masked_lm_accuracy"] == 1.0


def test_bert_predicts_its_most_likely_token(model, batch):
    objective = model("bert_mlm")
    logits = objective.forward(one_masked_token_each(batch, 2), INFERENCE).logits.numpy()[:, 0]
    originals = logits.argmax(axis=-1) + np.array([0, 1, 0, 0])  # it predicts another token than the second
    assert accuracies(objective, with_originals(batch, originals)) == pytest.approx(
        {"masked_tokens": 3.0, "masked_lm_accuracy": 2 / 3}
    )


def test_a_perfect_discriminator_chooses_every_original_from_the_whole_vocabulary(model, batch):
    objective, originals = model("electra", 100), one_masked_token_each(batch, 2)["input_ids"]
    perfect = MaskedLmByDiscriminator(
        objective,
        discriminate=lambda inputs: tf.cast(inputs["input_ids"] == originals, tf.float32),
        score=lambda outputs, probs: outputs,
    )
    accuracy = evaluation_values(perfect, batch, INFERENCE)
    assert accuracy["candidates_accuracy"] == accuracy["masked_lm_accuracy"] == 1.0 > accuracy["generator_accuracy"]


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        # At the end of the run 0.3 of the tokens are masked; of the inputs of `contrastive` half are clean, or all.
        ("electra", {}, 0.7 / 0.3),
        ("electra_15", {"loss_positions": "masked"}, 0.0),
        ("electra_15", {"loss_positions": "random"}, 0.7 / 0.3),
        ("electra_15", {"loss_positions": "random_unmasked"}, math.inf),
        ("contrastive", {"clean_fraction": 0.5}, 0.85 / 0.15),
        ("contrastive", {"clean_fraction": 1.0}, math.inf),
    ],
)
def test_originals_per_sample_follow_from_the_settings(tiny_config, name, settings, expected):
    config = tiny_config(objective={"name": name, **settings}, masking={"masked_fraction": [0.4, 0.3]})
    assert OBJECTIVES[name](config).originals_per_sample == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "settings", "masking", "named"),
    [
        ("electra", {"disallow_correct": True}, {}, "objective.disallow_correct"),
        ("electra", {}, {"scheme": "rare_tokens"}, "masking.scheme"),
        ("electra_15", {"loss_positions": "random_unmasked"}, {}, "electra_15"),
        ("replace_mlm", {}, {}, "replace_mlm"),
    ],
)
def test_an_objective_to_which_the_formula_does_not_apply_is_refused(build, name, settings, masking, named):
    with pytest.raises(UserError, match=named):
        build(name, {"masking": masking}, **settings).as_masked_lm()


def test_two_stage_is_refused_in_its_first_phase_and_works_in_its_second(model, batch):
    objective = model("two_stage", 5)
    first, second = objective.phases()
    with pytest.raises(UserError, match="objective.name 'two_stage'"):
        first.as_masked_lm()
    assert accuracies(second, batch) == accuracies(objective, batch)
