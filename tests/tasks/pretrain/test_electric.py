"""The noise-contrastive objective and its cloze generator."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.models.context import ForwardContext
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective

CONTEXT = ForwardContext(random=RandomStream(4, 0, 0))
# [CLS] a b c [SEP] and [CLS] a [SEP] b [SEP]; b and c of the first are selected, and a of the second.
BATCH = {
    "input_ids": tf.constant([[2, 11, 12, 13, 3, 0], [2, 21, 3, 22, 3, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0]]),
    "segment_ids": tf.constant([[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0]]),
    "masked_input_ids": tf.constant([[2, 11, 4, 4, 3, 0], [2, 4, 3, 22, 3, 0]]),
    "masked_lm_positions": tf.constant([[3, 2], [1, 0]]),
    "masked_lm_ids": tf.constant([[13, 12], [21, 0]]),
    "masked_lm_weights": tf.constant([[1.0, 1.0], [1.0, 0.0]]),
}
SELECTED = np.array([[0, 0, 1, 1, 0, 0], [0, 1, 0, 0, 0, 0]])
WORDS = np.array([[0, 1, 1, 1, 0, 0], [0, 1, 0, 1, 0, 0]])
REAL = np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0]])


@pytest.fixture(scope="module")
def build(tiny_config):
    """`build(**settings)`: a tiny Electric without dropout and with weights large enough to matter."""

    def electric(**settings):
        tf_keras.utils.set_random_seed(2)
        quiet = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3}
        return build_objective(tiny_config(encoder=quiet, objective={"name": "electric", **settings}))

    return electric


@pytest.fixture(scope="module")
def electric(build):
    return build()


def log_probs_of_all(objective, batch) -> np.ndarray:
    """[B, S, V]: log q of every token at every place."""
    places = tf.tile(tf.range(6)[tf.newaxis], [2, 1])
    inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
    logits = objective.generator(**inputs, positions=places).logits.numpy().astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def sure_of(token_ids) -> VocabularyLogits:
    return VocabularyLogits(100.0 * tf.one_hot(token_ids, 47), tf.eye(47), tf.zeros([47]))


def test_the_log_odds_of_noise_by_hand(electric):
    # 0.5 + ln q + ln(0.3 / 0.7), q = 1/4; and -1.0, q = 1.
    found = electric.noise_logits(tf.constant([[0.5, -1.0]]), tf.constant([[math.log(4.0), 0.0]]))
    np.testing.assert_allclose(found, [[-1.7335922, -1.8472979]], rtol=1e-6)


def test_a_right_energy_makes_the_odds_those_of_noise_against_data(electric):
    data, noise, share = 0.08, 0.02, 0.3
    odds = electric.noise_logits(tf.constant([[-math.log(data)]]), tf.constant([[-math.log(noise)]]))
    expected = share * noise / (share * noise + (1 - share) * data)
    assert float(tf.sigmoid(odds)[0, 0]) == pytest.approx(expected, rel=1e-6)


def test_every_draw_counts_as_noise_also_one_that_hits_the_original(electric):
    corrupted = electric.corrupt(BATCH, sure_of([[13, 33], [21, 34]]), CONTEXT)
    assert corrupted.input_ids.numpy().tolist() == [[2, 11, 33, 13, 3, 0], [2, 21, 3, 22, 3, 0]]
    assert np.array_equal(corrupted.is_replaced, SELECTED)


@pytest.mark.parametrize("training", [True, False])
def test_the_losses_by_hand(electric, training):
    context = ForwardContext(training=training, random=RandomStream(4, 0, 0))
    forward, terms = electric.forward(BATCH, context), electric.loss_terms(BATCH, context)
    log_q, ids = log_probs_of_all(electric, BATCH), BATCH["input_ids"].numpy()
    cloze = -np.take_along_axis(log_q, ids[..., np.newaxis], axis=-1)[..., 0]
    assert float(terms["masked_lm"].weight) == WORDS.sum()
    assert terms["masked_lm"].value() == pytest.approx((cloze * WORDS).sum() / WORDS.sum(), rel=1e-5)

    shown = forward.corrupted.input_ids.numpy()
    assert (shown != ids).any() and not (shown != ids)[SELECTED == 0].any()
    inputs = {**BATCH, "input_ids": tf.constant(shown)}
    # The generator's probabilities of what is shown, each given the original tokens around it.
    of_shown = np.take_along_axis(log_q, shown[..., np.newaxis], axis=-1)[..., 0]
    odds = electric.energies(inputs).numpy() + of_shown + math.log(0.3 / 0.7)
    chances = 1.0 / (1.0 + np.exp(-odds))
    losses = -np.where(SELECTED, np.log(chances), np.log(1.0 - chances))
    assert float(terms["replaced_token"].weight) == REAL.sum()
    assert terms["replaced_token"].value() == pytest.approx((losses * REAL).sum() / REAL.sum(), rel=1e-5)
    assert terms["replaced_fraction"].value() == pytest.approx(3 / 10)


def test_the_generator_never_reads_the_masked_input(electric):
    junk = {**BATCH, "masked_input_ids": tf.fill([2, 6], 40)}
    found, expected = (electric.generate(batch, CONTEXT).everywhere.logits for batch in (junk, BATCH))
    assert np.array_equal(found, expected)


def test_detection_reckons_with_how_likely_the_noise_is(electric):
    log_q = np.take_along_axis(log_probs_of_all(electric, BATCH), BATCH["input_ids"].numpy()[..., np.newaxis], axis=-1)
    odds = electric.energies(BATCH).numpy() + log_q[..., 0] + math.log(0.3 / 0.7)
    np.testing.assert_allclose(electric.detect(BATCH), 1 / (1 + np.exp(-odds)), rtol=1e-5)


def gradients(objective, name: str) -> dict[str, bool]:
    """Which parts a loss sends a gradient other than zero."""
    with tf.GradientTape() as tape:
        loss = objective.loss_terms(BATCH, ForwardContext(training=True, random=RandomStream(4, 0, 0)))[name].total
    parts = {
        "left_to_right": objective.generator.left_to_right.transformer_layers[0].attention.query.kernel,
        "right_to_left": objective.generator.right_to_left.transformer_layers[0].attention.query.kernel,
        "generator's head": objective.generator.head.transform.kernel,
        "generator's table": objective.generator.head.embeddings.word_embeddings,
        "discriminator": objective.discriminator.transformer_layers[0].attention.query.kernel,
        "discriminator's table": objective.discriminator.embeddings.word_embeddings,
        "discriminator's head": objective.replaced_token_head.score.kernel,
    }
    found = tape.gradient(loss, parts, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return {part: bool(tf.convert_to_tensor(gradient).numpy().any()) for part, gradient in found.items()}


def test_each_loss_trains_its_own_network_and_no_gradient_flows_through_the_noise(build):
    objective = build(tying="none")
    of_noise, of_generator = gradients(objective, "replaced_token"), gradients(objective, "masked_lm")
    assert {part for part, trained in of_noise.items() if trained} == {
        "discriminator",
        "discriminator's table",
        "discriminator's head",
    }
    assert {part for part, trained in of_generator.items() if trained} == {
        "left_to_right",
        "right_to_left",
        "generator's head",
        "generator's table",
    }


def test_the_three_encoders_share_their_embeddings_as_a_rule(electric, build):
    tables = {id(v) for v in electric.trainable_variables if "word_embeddings" in v.name}
    assert len(tables) == 1
    assert electric.generator.left_to_right.embeddings is electric.discriminator.embeddings
    assert len([v for v in build(tying="none").trainable_variables if "word_embeddings" in v.name]) == 2


@pytest.mark.parametrize(
    ("objective", "masking", "said"),
    [
        ({"temperature": 2.0}, {}, "objective.temperature 2.0 draws from another distribution"),
        ({"disallow_correct": True}, {}, "objective.disallow_correct True draws from another distribution"),
        ({"sampling": "greedy"}, {}, "objective.sampling 'greedy' draws nothing"),
        ({}, {"scheme": "rare_tokens"}, "masking.scheme 'rare_tokens' draws noise for some tokens more often"),
        ({"tying": "all"}, {}, "objective.tying"),
        ({}, {"masked_fraction": 1.0}, "masking.masked_fraction 1.0 leaves no token that is not noise"),
    ],
)
def test_what_the_estimate_does_not_allow_for_is_refused(tiny_config, objective, masking, said):
    with pytest.raises(UserError, match=said):
        tiny_config(objective={"name": "electric", **objective}, masking=masking)


def test_the_description_of_a_step_has_both_towers_under_one_head(tiny_config):
    config = tiny_config(objective={"name": "electric"})
    ((left, right, discriminator),) = [phase.passes for phase in config.objective.phases(config)]
    assert (left.name, left.heads) == ("generator_left_to_right", ())
    assert [(head.kind, head.positions, head.input_size, head.trained) for head in right.heads] == [
        ("vocabulary", "all", 12, True),
        ("vocabulary", "masked", 12, False),
    ]
    assert discriminator.name == "discriminator"
