"""Adversarial training: its terms by hand, the direction in which they push, and where their gradients must not go."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.convert.tf1 import tf1_variables
from electra_tf.models.context import ForwardContext
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.electra import ElectraForward
from electra_tf.tasks.pretrain.generator_objective import CorruptedInput
from electra_tf.train.step import compile_task

QUIET = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
ALL_TERMS = ("masked_lm", "replaced_token", "policy", "baseline")

# Two examples of six tokens over a vocabulary of four; three slots, the last one of the second example not in use.
# At [0, 1] the original 2 was drawn, at [0, 4] and [1, 2] another token, at [1, 5] the original.
INPUT_IDS = [[0, 2, 1, 1, 3, 0], [0, 1, 1, 3, 2, 2]]
CORRUPTED_IDS = [[0, 2, 1, 1, 1, 0], [0, 1, 3, 3, 2, 2]]
POSITIONS = [[1, 4, 2], [2, 5, 0]]
WEIGHTS = [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
# Positive: thinks it replaced.
DETECTION_LOGITS = [[0.3, -1.2, 2.0, -0.5, -2.5, 0.1], [-0.7, 0.8, 1.5, -3.0, 0.2, -0.4]]
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


def by_position(rows: list) -> np.ndarray:
    return np.take_along_axis(np.array(rows), np.array(POSITIONS), axis=1)


@pytest.fixture(scope="module")
def objective(tiny_config):
    objective = build_objective(tiny_config(objective={"name": "adversarial"}))
    objective.baseline = tf_keras.layers.Dense(1, use_bias=False)
    objective.baseline.build([None, 2])
    objective.baseline.kernel.assign([[2.0], [-1.0]])
    return objective


def by_hand(objective, generator_logits=GENERATOR_LOGITS, detection_logits=DETECTION_LOGITS, training=True):
    """The terms of the case above."""
    scores = VocabularyLogits(tf.convert_to_tensor(generator_logits), tf.eye(4), tf.zeros([4]))
    is_replaced = tf.cast(tf.constant(CORRUPTED_IDS) != tf.constant(INPUT_IDS), tf.int32)
    corrupted = CorruptedInput(tf.constant([]), tf.constant(CORRUPTED_IDS), is_replaced)
    proposal = GeneratorOutput(scores, tf.constant(HIDDEN), None)
    forward = ElectraForward(proposal, corrupted, None, tf.convert_to_tensor(detection_logits))
    batch = {
        "masked_lm_positions": tf.constant(POSITIONS),
        "masked_lm_weights": tf.constant(WEIGHTS),
        "masked_lm_ids": tf.gather(tf.constant(INPUT_IDS), POSITIONS, batch_dims=1),
    }
    return objective.extra_metrics(batch, forward)


@pytest.mark.parametrize("training", [True, False])
def test_every_term_is_that_of_appendix_f(objective, training):
    found = by_hand(objective, training=training)
    is_replaced = by_position(CORRUPTED_IDS) != by_position(INPUT_IDS)
    assert is_replaced.tolist() == [[False, True, False], [True, False, False]]
    # D of the paper is the probability of an original.
    original = 1.0 / (1.0 + np.exp(by_position(DETECTION_LOGITS)))
    paper_reward = np.where(is_replaced, np.log(1.0 - original), np.log(original))
    sure = 1.0 / (1.0 + np.exp(-BASELINE_LOGITS))
    advantage = np.log(sure) - paper_reward
    logits = GENERATOR_LOGITS.astype(np.float64)
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    taken = np.take_along_axis(probs, by_position(CORRUPTED_IDS)[..., np.newaxis], axis=-1)[..., 0]
    right = np.exp(paper_reward)
    expected = {
        "policy": -np.log(taken) * advantage,
        "baseline": -(right * np.log(sure) + (1.0 - right) * np.log(1.0 - sure)),
        "reward": -paper_reward,
        "advantage": advantage,
        "generator_entropy": -(probs * np.log(probs)).sum(-1),
        "masked_lm_accuracy": np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
    }
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert float(found[name].total) == pytest.approx((values * WEIGHTS).sum(), rel=1e-5), name
        assert float(found[name].weight) == 5.0


def test_what_fools_the_discriminator_becomes_more_likely_and_what_does_not_less(objective):
    """At [0, 4] a fake passes for an original; at [1, 2] one is found out. Both were expected to be an even bet."""
    variable = tf.Variable(GENERATOR_LOGITS)
    objective.baseline.kernel.assign([[0.0], [0.0]])
    try:
        with tf.GradientTape() as tape:
            terms = by_hand(objective, generator_logits=variable + 0.0)
        gradient = tape.gradient(terms["policy"].total, variable).numpy()
    finally:
        objective.baseline.kernel.assign([[2.0], [-1.0]])
    fooled, found_out = (0, 1), (1, 0)
    assert gradient[fooled][1] < 0.0 < gradient[found_out][3]
    # The gradient of -log p, p being softmax's, times an advantage of -R - log 2.
    probs = np.exp([0.5, 0.5, 0.0, 0.0]) / np.exp([0.5, 0.5, 0.0, 0.0]).sum()
    advantage = math.log1p(math.exp(2.5)) - math.log(2.0)
    assert gradient[fooled] == pytest.approx((probs - [0, 1, 0, 0]) * advantage, rel=1e-5)
    assert not gradient[1, 2].any()


def test_the_policy_gradient_is_on_average_that_of_the_discriminators_expected_loss(tiny_config, tiny_batch):
    """Over all tokens x' in a single place: sum of p_G(x') times the loss that the discriminator has with x' there."""
    config = tiny_config(
        encoder={**QUIET, "initializer_range": 0.4},
        objective={"name": "adversarial", "tying": "none"},
        masking={"masked_fraction": 0.1},
    )
    tf_keras.utils.set_random_seed(3)
    objective = build_objective(config)
    batch = tiny_batch(config, [10])
    position, original = int(batch["masked_lm_positions"][0, 0]), int(batch["masked_lm_ids"][0, 0])
    every_token = {name: tf.repeat(batch[name], 47, axis=0) for name in ("input_ids", "input_mask", "segment_ids")}
    rows = every_token["input_ids"].numpy()
    rows[:, position] = range(47)
    logits = objective.detection_logits({**every_token, "input_ids": tf.constant(rows)})[:, position]
    losses = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(tf.range(47) != original, tf.float32), logits=logits
    )
    generator = objective.generator.trainable_variables
    with tf.GradientTape() as tape:
        probs = tf.nn.softmax(objective.generate(batch, ForwardContext()).logits[0, 0])
        expected_loss = tf.reduce_sum(probs * losses)
    exact = flat(tape.gradient(expected_loss, generator, unconnected_gradients="zero"))
    # Rows draw each for itself, so many rows are many draws of one.
    draws = {name: tf.repeat(values, 20_000, axis=0) for name, values in batch.items()}
    with tf.GradientTape() as tape:
        policy = objective.loss_terms(draws, ForwardContext(random=RandomStream(0, 0, 0)))["policy"]
        loss = policy.total / policy.weight
    found = flat(tape.gradient(loss, generator, unconnected_gradients="zero"))
    assert np.linalg.norm(exact) > 1e-3
    # The loss is descended: its gradient points the other way. A draw's deviation is a few times the mean's length.
    assert np.linalg.norm(found + exact) < 0.15 * np.linalg.norm(exact)


def flat(gradients) -> np.ndarray:
    return np.concatenate([tf.convert_to_tensor(gradient).numpy().ravel() for gradient in gradients])


@pytest.fixture(scope="module")
def gradients(tiny_config, tiny_batch):
    """`gradients(tying, term)`: of one term, by the part of the model."""
    built = {}

    def compute(tying: str, term: str) -> dict[str, bool]:
        if tying not in built:
            tf_keras.utils.set_random_seed(2)
            settings = {"name": "adversarial", "tying": tying}
            config = tiny_config(encoder={**QUIET, "initializer_range": 0.3}, objective=settings)
            built[tying] = build_objective(config), tiny_batch(config, [10, 7, 5, 8])
        objective, batch = built[tying]
        with tf.GradientTape() as tape:
            terms = objective.loss_terms(batch, ForwardContext(random=RandomStream(0, 0, 0)))
        embeddings = {id(v) for v in objective.discriminator.embeddings.weights}
        parts = {
            "embeddings of the discriminator": objective.discriminator.embeddings.weights,
            "discriminator": [
                *(v for v in objective.discriminator.weights if id(v) not in embeddings),
                *objective.replaced_token_head.weights,
            ],
            "generator": [v for v in objective.generator.weights if id(v) not in embeddings],
            "baseline": objective.baseline.weights,
        }
        found = tape.gradient(terms[term].total, parts, unconnected_gradients="zero")
        return {name for name, values in found.items() if any(tf.convert_to_tensor(v).numpy().any() for v in values)}

    return compute


@pytest.mark.parametrize(
    ("term", "tying", "reached"),
    [
        ("policy", "none", {"generator"}),
        ("policy", "embeddings", {"generator", "embeddings of the discriminator"}),
        ("baseline", "none", {"baseline"}),
        ("baseline", "embeddings", {"baseline"}),
        ("replaced_token", "none", {"discriminator", "embeddings of the discriminator"}),
        ("masked_lm", "none", {"generator"}),
        ("reward", "none", set()),
        ("generator_entropy", "none", set()),
    ],
)
def test_a_term_teaches_its_own_part_alone(gradients, term, tying, reached):
    assert gradients(tying, term) == reached


def test_the_generator_is_not_told_the_masked_tokens_unless_that_is_mixed_in(tiny_config):
    pure = build_objective(tiny_config(objective={"name": "adversarial"}))
    assert pure.loss_weights == {"replaced_token": 50.0, "policy": 1.0, "baseline": 1.0}
    mixed = build_objective(tiny_config(objective={"name": "adversarial", "masked_lm_loss_weight": 0.5}))
    assert mixed.loss_weights["masked_lm"] == 0.5


def test_the_authors_checkpoints_have_no_baseline(tiny_config):
    objective = build_objective(tiny_config(objective={"name": "adversarial"}))
    with pytest.raises(UserError, match="the authors' code has no adversarial: it knows no variable .*baseline/kernel"):
        tf1_variables(objective)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 2.0}, "objective.temperature is 2.0, but the policy gradient of adversarial"),
        ({"disallow_correct": True}, "objective.disallow_correct is True, but the policy gradient of adversarial"),
        ({"sampling": "greedy"}, "objective.sampling 'greedy' draws nothing"),
        (
            {"tying": "all", "generator": {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}},
            "objective.tying 'all' makes generator and discriminator one network",
        ),
    ],
)
def test_settings_that_make_no_sense_with_it_are_refused(tiny_config, settings, message):
    with pytest.raises(UserError) as caught:
        tiny_config(objective={"name": "adversarial", **settings})
    assert message in str(caught.value)


def test_micro_batches_on_two_replicas_train_like_one_batch(tiny_config, tiny_batch, two_replicas, run_on_replicas):
    settings = {
        "encoder": {"initializer_range": 0.2},
        "objective": {"name": "adversarial", "masked_lm_loss_weight": 0.1},
        "optimizer": {"learning_rate": 1e-3},
    }

    def build(config, strategy):
        tf_keras.utils.set_random_seed(5)
        with strategy.scope():
            return compile_task(build_objective(config))

    whole = build(tiny_config(**settings), tf.distribute.get_strategy())
    parts = build(tiny_config(**settings, train={"gradient_accumulation_steps": 2}), two_replicas)
    batch = tiny_batch(whole.config, [10, 10, 5, 0])
    one = {name: float(value) for name, value in tf.function(whole.train_step)(batch).items()}
    two = run_on_replicas(two_replicas, tf.function(parts.train_step), batch)
    assert set(ALL_TERMS) < set(one)
    assert {name: float(value) for name, value in two.items()} == pytest.approx(one, rel=1e-5)
    pairs = zip(whole.trainable_variables, parts.trainable_variables, strict=True)
    assert max(float(np.abs(a.numpy() - b.numpy()).max()) for a, b in pairs) < 1e-5
