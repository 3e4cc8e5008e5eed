"""ELECTRA and BERT as masked language models (paper, appendix G)."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.models.context import INFERENCE
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.as_masked_lm import as_masked_lm, data_probabilities, one_masked_token_each
from electra_tf.tasks.pretrain.objective import Objective

LENGTHS = [10, 7, 5, 8]
MASK = 4


@pytest.fixture(scope="module")
def build(tiny_config):
    """`build(name, num_candidates)`: a tiny objective with weights large enough to matter."""

    def objective(name: str = "electra", num_candidates: int = 47, **settings):
        tf_keras.utils.set_random_seed(2)
        return build_objective(
            tiny_config(
                encoder={"initializer_range": 0.3},
                objective={"name": name, **settings},
                evaluation={"as_masked_lm": {"num_candidates": num_candidates, "tokens_per_example": 2}},
            )
        )

    return objective


@pytest.fixture(scope="module")
def batch(tiny_config, tiny_batch):
    return tiny_batch(tiny_config(masking={"mask_token_fraction": 1.0}), LENGTHS)


def values(model, batch) -> dict[str, float]:
    return {name: term.value() for name, term in model.evaluation_terms(batch, INFERENCE).items()}


def test_the_formula_by_hand():
    # D 1/2, 1/4 and 9/10; a = 0.85 / 0.15 = 17 / 3:
    # 0.5 * 0.2 / (17/6 + 0.2), 0.25 * 0.6 / (17/4 + 0.6), 0.9 * 0.05 / (17/30 + 0.05)
    logits = -np.log([[1.0, 1.0 / 3.0, 9.0]]).astype(np.float32)
    found = data_probabilities(tf.constant(logits), tf.constant([[0.2, 0.6, 0.05]]), 17.0 / 3.0)
    np.testing.assert_allclose(found, [[0.03296703, 0.03092784, 0.07297297]], rtol=1e-6)


def test_the_discriminator_that_the_loss_is_best_for_gives_back_the_data():
    mask, data, generator = 0.15, np.array([0.7, 0.2, 0.06, 0.04]), np.array([0.5, 0.05, 0.15, 0.3])
    # The loss is original * log D + replaced * log (1 - D) for each x: best at D = original / (original + replaced).
    original = (1 - mask) * data + mask * data * generator
    replaced = mask * (1 - data) * generator
    logits = tf.constant(np.log(replaced / original), tf.float32)
    found = data_probabilities(logits, tf.constant(generator, tf.float32), (1 - mask) / mask)
    np.testing.assert_allclose(found, data, rtol=1e-5)


def test_a_sure_discriminator_has_finite_values():
    found = data_probabilities(tf.constant([200.0, -200.0, -200.0]), tf.constant([0.5, 0.25, 0.0]), 3.0)
    np.testing.assert_array_equal(found, [0.0, 1.0, 0.0])


def test_one_token_is_masked_in_each_sequence():
    batch = {
        "input_ids": tf.constant([[2, 11, 12, 13, 3], [2, 21, 3, 0, 0]]),
        "input_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
        "segment_ids": tf.zeros([2, 5], tf.int32),
        "masked_input_ids": tf.constant([[2, MASK, MASK, MASK, 3], [2, MASK, 3, 0, 0]]),
        "masked_lm_positions": tf.constant([[3, 1, 2], [1, 0, 0]]),
        "masked_lm_ids": tf.constant([[13, 11, 12], [21, 0, 0]]),
        "masked_lm_weights": tf.constant([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
    }
    asked = one_masked_token_each(batch, 2)
    assert asked["masked_input_ids"].numpy().tolist() == [
        [2, 11, 12, MASK, 3],
        [2, MASK, 12, 13, 3],
        [2, MASK, 3, 0, 0],
        [2, 21, 3, 0, 0],
    ]
    assert asked["masked_lm_ids"].numpy().tolist() == [[13], [11], [21], [0]]
    assert asked["masked_lm_weights"].numpy().tolist() == [[1], [1], [1], [0]]
    assert asked["input_ids"].numpy().tolist() == [[2, 11, 12, 13, 3]] * 2 + [[2, 21, 3, 0, 0]] * 2
    assert {tuple(values.shape) for values in asked.values()} == {(4, 5), (4, 1)}


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("num_candidates", [5, 47])
def test_electra_answers_the_candidate_that_the_formula_prefers(build, batch, num_candidates, temperature):
    objective = build(num_candidates=num_candidates, temperature=temperature)
    asked = one_masked_token_each(batch, 2)
    logits = objective.generate(asked, INFERENCE).logits.numpy()[:, 0] / temperature
    ratio, hits, tokens = 0.7 / 0.3, 0, 0
    for row in np.flatnonzero(asked["masked_lm_weights"].numpy()):
        probs = np.exp(logits[row]) / np.exp(logits[row]).sum()
        place, best, answer = int(asked["masked_lm_positions"][row, 0]), -1.0, None
        for token in np.argsort(-probs)[:num_candidates]:
            ids = asked["input_ids"].numpy()[row : row + 1].copy()
            ids[0, place] = token
            inputs = {name: asked[name][row : row + 1] for name in ("input_mask", "segment_ids")}
            is_original = 1.0 - objective.detect({"input_ids": tf.constant(ids), **inputs}).numpy()[0, place]
            score = is_original * probs[token] / (ratio * (1.0 - is_original) + probs[token])
            if score > best:
                best, answer = score, token
        hits += answer == int(asked["masked_lm_ids"][row, 0])
        tokens += 1
    found = values(as_masked_lm(objective), batch)
    assert found["masked_tokens"] == tokens == 8
    assert found["masked_lm_accuracy"] == hits / tokens


def test_a_single_candidate_is_the_generators_answer(build, batch):
    found = values(as_masked_lm(build(num_candidates=1)), batch)
    assert found["masked_lm_accuracy"] == found["generator_accuracy"] == found["candidates_accuracy"]


def test_the_whole_vocabulary_holds_every_original(build, batch):
    assert values(as_masked_lm(build(num_candidates=100)), batch)["candidates_accuracy"] == 1.0


def test_a_perfect_discriminator_finds_every_original(build, batch):
    class Perfect(type(as_masked_lm(build()))):
        def discriminate(self, batch, candidates):
            return tf.where(candidates == batch["masked_lm_ids"], -50.0, 50.0)

    found = values(Perfect(build()), batch)
    assert found["masked_lm_accuracy"] == 1.0 > found["generator_accuracy"]


def test_electric_answers_the_candidate_of_the_lowest_energy(build, batch):
    objective = build("electric", num_candidates=3)
    asked = one_masked_token_each(batch, 2)
    probs = tf.nn.softmax(objective.generate(asked, INFERENCE).logits[:, 0])
    candidates = tf.math.top_k(probs, 3).indices.numpy()
    rows, places = np.arange(8), asked["masked_lm_positions"].numpy()[:, 0]
    energies = []
    for candidate in candidates.T:
        ids = asked["input_ids"].numpy().copy()
        ids[rows, places] = candidate
        energies.append(objective.energies({**asked, "input_ids": tf.constant(ids)}).numpy()[rows, places])
    answers = candidates[rows, np.argmin(energies, axis=0)]
    originals = {**batch, "masked_lm_ids": tf.constant(np.pad(answers.reshape(4, 2), [[0, 0], [0, 1]]))}
    assert values(as_masked_lm(objective), originals)["masked_lm_accuracy"] == 1.0


def test_bert_answers_its_most_likely_token(build, batch):
    objective = build("bert_mlm")
    asked = one_masked_token_each(batch, 2)
    guessed = np.argmax(objective.forward(asked, INFERENCE).logits.numpy()[:, 0], axis=-1)
    # Its own answers as the originals of the first four rows, others elsewhere.
    originals = np.where(np.arange(8) < 4, guessed, (guessed + 1) % 47).reshape(4, 2)
    changed = {**batch, "masked_lm_ids": tf.constant(np.pad(originals, [[0, 0], [0, 1]]).astype(np.int32))}
    found = values(as_masked_lm(objective), changed)
    assert found == {"masked_tokens": 8.0, "masked_lm_accuracy": 0.5}


def test_rows_of_padding_count_for_nothing(build, batch):
    model = as_masked_lm(build(num_candidates=5))
    filled = {name: tf.pad(rows, [[0, 2], [0, 0]]) for name, rows in batch.items()}
    assert values(model, filled) == values(model, batch)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        # 0.3 of the tokens are masked; of the inputs of `contrastive` 0.5 are not.
        ("electra", {}, 0.7 / 0.3),
        ("electra_15", {"loss_positions": "masked"}, 0.0),
        ("electra_15", {"loss_positions": "random"}, 0.7 / 0.3),
        ("electra_15", {"loss_positions": "random_unmasked"}, math.inf),
        ("contrastive", {"clean_fraction": 0.5}, 0.85 / 0.15),
        ("contrastive", {"clean_fraction": 1.0}, math.inf),
    ],
)
def test_the_originals_that_a_discriminator_has_seen_for_every_sample(build, name, settings, expected):
    objective = build(name, **settings)
    assert objective.config.masking.masked_fraction == 0.3
    assert objective.originals_per_sample == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"objective": {"disallow_correct": True}}, "objective.disallow_correct is true, and the formula holds for a"),
        ({"objective": {"sampling": "greedy"}}, "objective.sampling is greedy, and the formula holds for a generator"),
        ({"masking": {"scheme": "rare_tokens"}}, "masking.scheme is rare_tokens, and the formula holds for a"),
    ],
)
def test_a_discriminator_of_other_samples_than_the_formulas_is_refused(tiny_config, settings, said):
    with pytest.raises(UserError, match=said):
        as_masked_lm(build_objective(tiny_config(**settings)))


def test_a_discriminator_that_has_learnt_nothing_yet_is_refused_and_then_judges(tiny_config, batch):
    sizes = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}
    questions = {"as_masked_lm": {"num_candidates": 5, "tokens_per_example": 2}}
    config = tiny_config(objective={"name": "two_stage", "generator": sizes}, evaluation=questions)
    objective = build_objective(config)
    first, second = objective.phases
    with pytest.raises(UserError, match="first stage of objective.name 'two_stage'"):
        as_masked_lm(first)
    assert values(as_masked_lm(second), batch) == values(as_masked_lm(objective), batch)


def test_a_discriminator_that_learnt_from_originals_alone_is_refused(build):
    with pytest.raises(UserError, match="learnt from originals alone"):
        as_masked_lm(build("electra_15", loss_positions="random_unmasked"))


def test_an_objective_that_makes_no_masked_lm_is_refused(tiny_config):
    with pytest.raises(UserError, match="neither a masked language model nor"):
        as_masked_lm(Objective(tiny_config()))
