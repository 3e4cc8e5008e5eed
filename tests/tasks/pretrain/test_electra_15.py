"""ELECTRA 15%: which tokens the discriminator's loss counts. The batch is 2 x 6 tokens, written down."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.models.context import ForwardContext
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.electra import ElectraForward
from electra_tf.tasks.pretrain.generator_objective import CorruptedInput
from electra_tf.train.health import HealthMonitor, binary_entropy

# [CLS] 11 12 [SEP] 13 [SEP], and [CLS] 21 22 [SEP] with two of padding; masked out are 11, 13 and 22.
ROWS = {
    "input_ids": [[2, 11, 12, 3, 13, 3], [2, 21, 22, 3, 0, 0]],
    "masked_input_ids": [[2, 4, 12, 3, 4, 3], [2, 21, 4, 3, 0, 0]],
    "input_mask": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]],
    "segment_ids": [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]],
    "masked_lm_positions": [[4, 1], [2, 0]],
    "masked_lm_ids": [[13, 11], [22, 0]],
}
MASKED = [[0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0]]
WORDS = [[0, 1, 1, 0, 1, 0], [0, 1, 1, 0, 0, 0]]
# The generator hits 13 and misses the others.
REPLACED = [[0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
LOGITS = [[9.0, 1.0, 2.0, 9.0, -0.5, 9.0], [9.0, -1.0, -2.0, 9.0, 9.0, 9.0]]


@pytest.fixture(scope="module")
def batch() -> dict[str, tf.Tensor]:
    tensors = {name: tf.constant(rows, tf.int32) for name, rows in ROWS.items()}
    return {**tensors, "masked_lm_weights": tf.constant([[1.0, 1.0], [1.0, 0.0]])}


@pytest.fixture(scope="module")
def build(tiny_config):
    def electra_15(loss_positions: str = "masked", **settings):
        tf_keras.utils.set_random_seed(2)
        return build_objective(
            tiny_config(objective={"name": "electra_15", "loss_positions": loss_positions, **settings})
        )

    return electra_15


@pytest.fixture
def answer(batch, monkeypatch):
    """`answer(objective, logits)`: a forward pass of it ends with these logits and the replaced tokens above."""

    def patch(objective, logits=LOGITS):
        corrupted_ids = tf.where(tf.constant(REPLACED) > 0, 40, batch["input_ids"])
        corrupted = CorruptedInput(tf.constant([[13, 40], [40, 0]]), corrupted_ids, tf.constant(REPLACED))
        scores = VocabularyLogits(tf.zeros([2, 2, 3]), tf.zeros([47, 3]), tf.zeros([47]))
        forward = ElectraForward(GeneratorOutput(scores, None, None), corrupted, None, tf.convert_to_tensor(logits))
        monkeypatch.setattr(objective, "forward", lambda batch, context: forward)

    return patch


def context(step: int = 0) -> ForwardContext:
    return ForwardContext(random=RandomStream(4, step, 0))


def softplus(value: float) -> float:
    return math.log1p(math.exp(value))


def test_the_loss_and_the_metrics_are_over_the_masked_tokens_alone(build, batch, answer):
    objective = build()
    answer(objective)
    terms = objective.evaluation_terms(batch, context())
    # Replaced with logit 1, original with -0.5, replaced with -2.
    assert terms["replaced_token_loss"].value() == pytest.approx(
        (softplus(-1.0) + softplus(-0.5) + softplus(2.0)) / 3, rel=1e-6
    )
    assert terms["masked_lm_loss"].value() == pytest.approx(math.log(47), rel=1e-6)
    expected = {"accuracy": 2 / 3, "precision": 1.0, "recall": 0.5, "auc": 0.5}
    for name, value in expected.items():
        assert terms[f"replaced_token_{name}"].value() == pytest.approx(value, rel=1e-6)
    assert terms["replaced_fraction"].value() == pytest.approx(2 / 3, rel=1e-6)
    assert terms["constant_predictor_loss"].value() == pytest.approx(binary_entropy(2 / 3), rel=1e-6)


def test_no_gradient_reaches_the_logits_of_tokens_that_do_not_count(build, batch, answer):
    objective, logits = build(), tf.Variable(LOGITS)
    with tf.GradientTape() as tape:
        answer(objective, logits)
        loss = objective.loss_terms(batch, context())["replaced_token"]
        mean = loss.total / loss.weight
    sigmoids = 1 / (1 + np.exp(-np.array(LOGITS)))
    expected = (sigmoids - np.array(REPLACED)) * np.array(MASKED) / 3
    assert tape.gradient(mean, logits).numpy() == pytest.approx(expected, rel=1e-6)


def counted(objective, batch, steps: int) -> np.ndarray:
    return np.stack([objective.counted_tokens(batch, context(step)).numpy() for step in range(steps)])


def test_random_tokens_are_as_many_words_as_are_masked_and_every_word_as_often(build, batch):
    found = counted(build("random"), batch, 300)
    assert found.sum(axis=2).tolist() == [[2, 1]] * 300
    assert not found[:, np.array(WORDS) == 0].any()
    # Each of three words in two of three draws, each of two in one of two: within five standard deviations.
    shares = found.mean(axis=0)
    assert shares[0, [1, 2, 4]] == pytest.approx(2 / 3, abs=5 * math.sqrt(2 / 9 / 300))
    assert shares[1, [1, 2]] == pytest.approx(1 / 2, abs=5 * math.sqrt(1 / 4 / 300))


def test_random_tokens_among_the_unmasked_ones_are_never_replaced(build, batch, answer):
    objective = build("random_unmasked")
    # One word of each row is left over, in the first row one less than are masked.
    assert counted(objective, batch, 20).tolist() == [[[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0]]] * 20
    answer(objective)
    terms = objective.loss_terms(batch, context())
    assert terms["replaced_fraction"].value() == 0.0
    assert terms["replaced_token"].value() == pytest.approx((softplus(2.0) + softplus(-1.0)) / 2, rel=1e-6)


@pytest.mark.parametrize(("loss_positions", "num_counted"), [("masked", 3), ("random", 3), ("random_unmasked", 2)])
def test_how_many_tokens_count_is_known_from_the_batch(build, batch, loss_positions, num_counted):
    objective = build(loss_positions)
    weights = objective.term_weights(batch)
    terms = objective.loss_terms(batch, context())
    assert {name: float(term.weight) for name, term in terms.items()} == {
        name: float(weight) for name, weight in weights.items()
    }
    assert float(weights["replaced_token"]) == float(weights["replaced_fraction"]) == num_counted


def test_a_token_that_was_masked_twice_counts_once(build, tiny_batch, tiny_config):
    batch = tiny_batch(tiny_config(masking={"selection": "with_replacement", "masked_fraction": 0.9}), [10, 7] * 10)
    positions = [set(row[used > 0]) for row, used in zip(*positions_and_weights(batch), strict=True)]
    assert sum(map(len, positions)) < batch["masked_lm_weights"].numpy().sum()
    for loss_positions in ("masked", "random"):
        found = build(loss_positions).counted_tokens(batch, context()).numpy()
        assert found.sum(axis=1).tolist() == [len(row) for row in positions]


def positions_and_weights(batch) -> tuple[np.ndarray, np.ndarray]:
    return batch["masked_lm_positions"].numpy(), batch["masked_lm_weights"].numpy()


def test_words_are_told_from_cls_and_sep_by_their_places(build, tiny_batch, tiny_config):
    batch = tiny_batch(tiny_config(), [10, 7, 5, 8])
    candidates = build("random")._candidates(batch, tf.zeros([4, 10], tf.int32)).numpy()
    assert np.array_equal(candidates, batch["input_ids"].numpy() > 4)


def test_a_discriminator_that_sees_no_replaced_token_is_not_called_ill(build):
    metrics = {"replaced_token": 1e-6, "replaced_fraction": 0.0}
    for loss_positions, num_alarms in (("masked", 1), ("random", 1), ("random_unmasked", 0)):
        monitor = HealthMonitor(build(loss_positions).config)
        assert len(monitor.observe(5000, metrics)) == num_alarms
