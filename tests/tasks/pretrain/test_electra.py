"""ELECTRA and its variants: what networks read, what counts as replaced, and the losses by hand."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.electra import ElectraForward
from electra_tf.tasks.pretrain.generator_objective import CorruptedInput
from tests.tasks.pretrain.conftest import MASKED, WORDS, vectors_of
from tests.toy import certain, evaluation_values, log_softmax, logits_of, softplus, training_values


@pytest.mark.parametrize(
    ("sampled", "input_ids", "is_replaced"),
    [
        # Samples equal to the original count as original; the unused slot writes nothing.
        ([[13, 11], [22, 40]], [[2, 11, 12, 3, 13, 3], [2, 21, 22, 3, 0, 0]], [[0] * 6, [0] * 6]),
        ([[40, 41], [42, 40]], [[2, 41, 12, 3, 40, 3], [2, 21, 42, 3, 0, 0]], MASKED),
        # The generator may propose [MASK] itself.
        ([[4, 4], [4, 0]], [[2, 4, 12, 3, 4, 3], [2, 21, 4, 3, 0, 0]], MASKED),
    ],
)
def test_samples_are_written_into_the_original_input(build, batch, sampling, sampled, input_ids, is_replaced):
    shown_unchanged = {**batch, "masked_input_ids": batch["input_ids"]}  # are sampled, too
    corrupted = build("electra", sampling="greedy").corrupt(shown_unchanged, certain(sampled), sampling)
    assert corrupted.input_ids.numpy().tolist() == input_ids
    assert np.array_equal(corrupted.is_replaced, is_replaced)


def test_the_loss_of_the_first_step_is_that_of_predictors_that_know_nothing(tiny_config, tiny_batch, sampling):
    keras.utils.set_random_seed(1)
    objective = build_objective(tiny_config())
    values = training_values(objective, tiny_batch(objective.config, [10] * 64), sampling)
    loss = sum(weight * values[name] for name, weight in objective.loss_weights.items())
    assert loss == pytest.approx(math.log(47) + 50 * math.log(2), abs=3)


def test_detect_reads_its_input_without_corrupting_it(build, batch):
    electra = build("electra")
    expected = tf.sigmoid(electra.replaced_token_head(vectors_of(electra.discriminator, batch))).numpy()
    assert np.array_equal(electra.detect(batch), expected) and expected.std() > 0.01


# The generator samples 13 correctly, and no other token.
REPLACED = [[0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
LOGITS = [[9.0, 1.0, 2.0, 9.0, -0.5, 9.0], [9.0, -1.0, -2.0, 9.0, 9.0, 9.0]]


@pytest.fixture
def with_logits(batch, monkeypatch):
    """`with_logits(objective)`: its forward pass then gives `LOGITS` and `REPLACED`."""

    def patch(objective):
        corrupted_ids = tf.where(tf.constant(REPLACED) > 0, 40, batch["input_ids"])
        corrupted = CorruptedInput(tf.constant([[13, 40], [40, 0]]), corrupted_ids, tf.constant(REPLACED))
        generated = GeneratorOutput(logits_of(tf.zeros([2, 2, 47])), None, None)

        def forward(batch, context):
            counted = objective.loss_mask(batch, context)
            return ElectraForward(generated, corrupted, counted, None, tf.constant(LOGITS))

        monkeypatch.setattr(objective, "forward", forward)
        return objective

    return patch


def test_the_discriminators_loss_and_metrics_are_over_the_masked_tokens_alone(build, batch, sampling, with_logits):
    objective = with_logits(build("electra_15"))
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
    assert not tokens[:, WORDS == 0].any()
    # Each of three words in two of three draws, each of two in one of two: within five standard deviations.
    shares = tokens.mean(axis=0)
    assert shares[0, [1, 2, 4]] == pytest.approx(2 / 3, abs=5 * math.sqrt(2 / 9 / 300))
    assert shares[1, [1, 2]] == pytest.approx(1 / 2, abs=5 * math.sqrt(1 / 4 / 300))


def test_random_unmasked_loss_positions_are_never_replaced(build, batch, sampling, with_logits):
    objective = build("electra_15", loss_positions="random_unmasked")
    # One unmasked word is left in each row; in the first row that is one fewer than are masked.
    assert counted(objective, batch, sampling, 20).tolist() == [[[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0]]] * 20
    terms = training_values(with_logits(objective), batch, sampling)
    assert terms["replaced_fraction"] == 0.0
    assert terms["replaced_token"] == pytest.approx((softplus(2.0) + softplus(-1.0)) / 2, rel=1e-6)


@pytest.mark.parametrize(("loss_positions", "number"), [("masked", 3), ("random", 3), ("random_unmasked", 2)])
def test_the_denominator_is_the_number_of_counted_tokens(build, batch, sampling, loss_positions, number):
    objective = build("electra_15", loss_positions=loss_positions)
    assert float(objective.denominators(batch)["counted_tokens"]) == number
    assert counted(objective, batch, sampling).sum() == number
    # A token that is selected twice counts once.
    positions, ids = tf.constant([[4, 4], [2, 0]]), tf.constant([[13, 13], [22, 0]])
    twice = {**batch, "masked_lm_positions": positions, "masked_lm_ids": ids}
    assert counted(objective, twice, sampling).sum(axis=2).tolist() == [[1, 1]]


def test_a_clean_input_is_the_original(build, batch, sampling):
    corrupted = build("contrastive", clean_fraction=1.0).corrupt(batch, certain([[13, 33], [34, 0]]), sampling)
    assert np.array_equal(corrupted.input_ids, batch["input_ids"]) and not corrupted.is_replaced.numpy().any()


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


# Two examples of six tokens over a vocabulary of four; three slots, the last one of the second example not in use.
# At [0, 1] the sample is the original 2, at [0, 4] and [1, 2] another token, at [1, 5] the original.
INPUT_IDS = np.array([[0, 2, 1, 1, 3, 0], [0, 1, 1, 3, 2, 2]])
CORRUPTED_IDS = np.array([[0, 2, 1, 1, 1, 0], [0, 1, 3, 3, 2, 2]])
PLACES = np.array([[1, 4, 2], [2, 5, 0]])
SLOTS = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], np.float32)
# Positive: predicted to be replaced.
DETECTION_LOGITS = np.array([[0.3, -1.2, 2.0, -0.5, -2.5, 0.1], [-0.7, 0.8, 1.5, -3.0, 0.2, -0.4]], np.float32)
GENERATOR_LOGITS = np.array(
    [
        [[0.0, 1.0, 2.0, -1.0], [0.5, 0.5, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]],
        [[0.0, 0.0, 0.0, 0.0], [-1.0, 2.0, 1.0, 0.0], [9.0, 0.0, 0.0, 0.0]],
    ],
    np.float32,
)
# w . h_G with w = [2, -1].
HIDDEN = np.array([[[0.5, 1.0], [1.0, 0.0], [0.0, 3.0]], [[-1.0, 0.0], [0.0, 0.0], [7.0, 7.0]]], np.float32)
BASELINE_LOGITS = np.array([[0.0, 2.0, -3.0], [-2.0, 0.0, 7.0]])


def at_positions(rows: np.ndarray) -> np.ndarray:
    return np.take_along_axis(rows, PLACES, axis=1)


@pytest.fixture(scope="module")
def terms(build):
    """`terms(generator_logits, weights)`: of the case above, the baseline's weights being `weights`."""
    objective, unused = build("adversarial", fresh=True), tf.zeros_like(SLOTS)
    objective.baseline = keras.layers.Dense(1, use_bias=False)
    objective.baseline.build([None, 2])
    batch = {"input_mask": tf.ones_like(INPUT_IDS), "masked_lm_positions": tf.constant(PLACES, tf.int32)}
    batch |= {"masked_lm_weights": tf.constant(SLOTS), "masked_lm_ids": tf.constant(at_positions(INPUT_IDS), tf.int32)}
    batch |= {"mask_token_weights": unused, "unigram_losses": unused}
    is_replaced = tf.cast(CORRUPTED_IDS != INPUT_IDS, tf.int32)
    sampled_ids = tf.constant(at_positions(CORRUPTED_IDS), tf.int32)
    corrupted = CorruptedInput(sampled_ids, tf.constant(CORRUPTED_IDS, tf.int32), is_replaced)

    def compute(generator_logits=GENERATOR_LOGITS, weights=(2.0, -1.0)):
        objective.baseline.kernel.assign([[weight] for weight in weights])
        generated = GeneratorOutput(logits_of(generator_logits), tf.constant(HIDDEN), None)
        logits = tf.constant(DETECTION_LOGITS), objective.baseline_logits(generated)
        forward = ElectraForward(generated, corrupted, is_replaced, None, *logits)
        return objective.loss_totals(batch, forward) | objective.extra_metrics(batch, forward)

    return compute


def test_every_term_equals_its_formula_in_appendix_f(terms):
    is_replaced = at_positions(CORRUPTED_IDS) != at_positions(INPUT_IDS)
    assert is_replaced.tolist() == [[False, True, False], [True, False, False]]
    # D of the paper is the probability of an original.
    original = 1.0 / (1.0 + np.exp(at_positions(DETECTION_LOGITS)))
    paper_reward = np.where(is_replaced, np.log(1.0 - original), np.log(original))
    baseline = 1.0 / (1.0 + np.exp(-BASELINE_LOGITS))
    advantage = np.log(baseline) - paper_reward
    log_probs = log_softmax(GENERATOR_LOGITS)
    of_samples = np.take_along_axis(log_probs, at_positions(CORRUPTED_IDS)[..., np.newaxis], axis=-1)[..., 0]
    right = np.exp(paper_reward)
    expected = {
        "policy": -of_samples * advantage,
        "baseline": -(right * np.log(baseline) + (1.0 - right) * np.log(1.0 - baseline)),
        "reward": -paper_reward,
        "advantage": advantage,
        "generator_entropy": -(np.exp(log_probs) * log_probs).sum(-1),
        "masked_lm_accuracy": np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
    }
    computed = terms()
    for name, values in expected.items():
        assert float(computed[name].value) == pytest.approx((values * SLOTS).sum(), rel=1e-5), name
        assert computed[name].denominator == "masked_tokens"


def test_samples_that_fool_the_discriminator_become_more_likely_and_detected_ones_less(terms):
    """At [0, 4] a replaced token passes for an original; at [1, 2] one is detected. The baseline predicts 1/2."""
    logits = tf.Variable(GENERATOR_LOGITS)
    with tf.GradientTape() as tape:
        policy = terms(logits + 0.0, weights=(0.0, 0.0))["policy"].value
    gradient = tape.gradient(policy, logits).numpy()
    fooled, detected, unused = gradient[0, 1], gradient[1, 0], gradient[1, 2]
    assert fooled[1] < 0.0 < detected[3]
    # The gradient of -log softmax times the advantage -R - ln 2.
    probs = np.exp([0.5, 0.5, 0.0, 0.0]) / np.exp([0.5, 0.5, 0.0, 0.0]).sum()
    advantage = math.log1p(math.exp(2.5)) - math.log(2.0)
    assert fooled == pytest.approx((probs - [0, 1, 0, 0]) * advantage, rel=1e-5)
    assert not unused.any()
