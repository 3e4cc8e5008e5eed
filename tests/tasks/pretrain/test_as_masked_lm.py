"""ELECTRA and BERT as masked language models (paper, appendix G)."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.pretrain.as_masked_lm import MaskedLmByDiscriminator, data_probabilities, one_masked_token_each
from electra_tf.tasks.pretrain.objective import OBJECTIVES, Objective
from tests.toy import evaluation_values

MASK = 4


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
    masked = {**batch, "masked_input_ids": tf.constant([[2, MASK, 12, 3, MASK, 3], [2, 21, MASK, 3, 0, 0]])}
    rows = one_masked_token_each(masked, 2)
    assert rows["masked_input_ids"].numpy().tolist() == [
        [2, 11, 12, 3, MASK, 3],
        [2, MASK, 12, 3, 13, 3],
        [2, 21, MASK, 3, 0, 0],
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
