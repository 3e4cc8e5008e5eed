import math

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as reference

from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.tasks.pretrain.losses import masked_lm_loss, replaced_token_loss
from electra_tf.tasks.pretrain.metrics import masked_lm_metrics, replaced_token_metrics
from electra_tf.tasks.terms import BinaryEntropy, RankingCounts, Ratio

# Two examples of six positions, the second with two pads; two slots for masked positions, one of them unused; V = 3.
MASKED_LM_LOGITS = [[[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]], [[3.0, -1.0, 0.5], [9.0, 9.0, -9.0]]]
MASKED_LM_IDS = [[1, 2], [2, 0]]
MASKED_LM_WEIGHTS = [[1.0, 1.0], [1.0, 0.0]]
REPLACED_LOGITS = [[0.0, 1.0, -2.0, 0.5, 3.0, -1.0], [2.0, -0.5, 0.0, 1.0, 50.0, -50.0]]
IS_REPLACED = [[0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 0, 1]]
INPUT_MASK = [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]


def log_sum(*logits: float) -> float:
    return math.log(sum(math.exp(logit) for logit in logits))


def softplus(value: float) -> float:
    return math.log1p(math.exp(value))


def tensors(*values):
    return (tf.constant(value) for value in values)


def scores_of(logits: tf.Tensor) -> VocabularyLogits:
    size = logits.shape[-1]
    return VocabularyLogits(logits, tf.eye(size), tf.zeros([size]))


def test_the_masked_lm_loss_is_the_mean_of_minus_log_p_over_the_slots_in_use():
    expected = (log_sum(1, 2, 0) - 2) + math.log(3) + (log_sum(3, -1, 0.5) - 0.5)
    logits, ids, weights = tensors(MASKED_LM_LOGITS, MASKED_LM_IDS, MASKED_LM_WEIGHTS)
    loss = masked_lm_loss(scores_of(logits), ids, weights)
    assert float(loss.total) == pytest.approx(expected, rel=1e-6)
    assert float(loss.weight) == 3.0
    assert loss.value() == pytest.approx(expected / 3, rel=1e-6)


def test_the_replaced_token_loss_is_the_mean_cross_entropy_over_all_real_tokens():
    # -log(1 - sigmoid(x)) = softplus(x) for originals, softplus(-x) for replaced ones; ten real tokens.
    originals = [0.0, -2.0, 0.5, -1.0, 2.0, 0.0, 1.0]
    replaced = [1.0, 3.0, -0.5]
    expected = sum(map(softplus, originals)) + sum(softplus(-x) for x in replaced)
    loss = replaced_token_loss(*tensors(REPLACED_LOGITS, IS_REPLACED, INPUT_MASK))
    assert float(loss.weight) == 10.0
    assert loss.value() == pytest.approx(expected / 10, rel=1e-6)


def test_a_loss_of_nothing_has_no_value():
    loss = masked_lm_loss(scores_of(tf.zeros([2, 3, 5])), tf.zeros([2, 3], tf.int32), tf.zeros([2, 3]))
    assert (float(loss.total), float(loss.weight)) == (0.0, 0.0)
    assert math.isnan(loss.value())


def test_masked_lm_accuracy_counts_the_slots_in_use():
    (accuracy,) = masked_lm_metrics(*tensors(MASKED_LM_LOGITS, MASKED_LM_IDS, MASKED_LM_WEIGHTS)).values()
    assert (float(accuracy.total), float(accuracy.weight)) == (1.0, 3.0)


def scores(num_examples: int = 40, length: int = 31, seed: int = 0):
    """Logits, labels and mask in which replaced tokens score higher on average and a third is padding."""
    random = np.random.default_rng(seed)
    labels = (random.random([num_examples, length]) < 0.15).astype(np.int32)
    logits = (random.normal(-1.5, 1.2, [num_examples, length]) + 1.5 * labels).astype(np.float32)
    mask = (np.arange(length) < random.integers(8, length + 1, [num_examples, 1])).astype(np.int32)
    return logits, labels, mask


def test_precision_recall_and_accuracy_are_those_of_scikit_learn():
    logits, labels, mask = scores()
    found = {name: term.value() for name, term in replaced_token_metrics(*tensors(logits, labels, mask)).items()}
    actual, predicted = labels[mask > 0], logits[mask > 0] > 0
    assert found["replaced_token_precision"] == pytest.approx(reference.precision_score(actual, predicted), rel=1e-6)
    assert found["replaced_token_recall"] == pytest.approx(reference.recall_score(actual, predicted), rel=1e-6)
    assert found["replaced_token_accuracy"] == pytest.approx(reference.accuracy_score(actual, predicted), rel=1e-6)
    assert found["replaced_fraction"] == pytest.approx(actual.mean(), rel=1e-6)


def test_the_area_under_the_curve_is_that_of_scikit_learn_but_for_ties_within_a_cell():
    logits, labels, mask = scores()
    auc = replaced_token_metrics(*tensors(logits, labels, mask))["replaced_token_auc"]
    expected = reference.roc_auc_score(labels[mask > 0], logits[mask > 0])
    negatives, positives = auc.negatives.numpy(), auc.positives.numpy()
    assert negatives.sum() + positives.sum() == mask.sum()
    # A pair in one cell counts one half instead of 0 or 1.
    bound = 0.5 * (negatives * positives).sum() / (negatives.sum() * positives.sum())
    assert abs(auc.value() - expected) <= bound + 1e-12
    assert bound < 1e-3


def test_the_area_is_exact_where_no_two_scores_are_close():
    logits, labels = [[-3.0, -2.0, -1.0, 0.0, 1.0]], [[0, 1, 0, 0, 1]]
    auc = replaced_token_metrics(*tensors(logits, labels, [[1] * 5]))["replaced_token_auc"]
    assert auc.value() == pytest.approx(4 / 6)  # of 2 x 3 pairs: -2 is above one original, 1 above all three


@pytest.mark.parametrize("logit", [-60.0, 0.0, 60.0])
def test_a_constant_predictor_has_area_one_half(logit):
    _, labels, mask = scores()
    found = replaced_token_metrics(*tensors(np.full(labels.shape, logit, np.float32), labels, mask))
    assert found["replaced_token_auc"].value() == 0.5


@pytest.mark.parametrize(("share", "entropy"), [(0.138, 0.4013), (0.06, 0.2270), (0.5, math.log(2))])
def test_a_constant_predictor_loses_the_entropy_of_the_replaced_share(share, entropy):
    labels = (np.arange(1000) < 1000 * share).astype(np.int32)[np.newaxis]
    logits = np.full(labels.shape, math.log(share / (1 - share)), np.float32)
    mask = np.ones_like(labels)
    term = replaced_token_metrics(*tensors(logits, labels, mask))["constant_predictor_loss"]
    assert term.value() == pytest.approx(entropy, abs=5e-5)
    assert replaced_token_loss(*tensors(logits, labels, mask)).value() == pytest.approx(term.value(), rel=1e-6)


def test_padding_counts_in_no_metric():
    logits, labels, mask = scores()
    junk = np.where(mask > 0, logits, 40.0).astype(np.float32)
    other = {
        name: t.value() for name, t in replaced_token_metrics(*tensors(junk, 1 - mask * (1 - labels), mask)).items()
    }
    assert other == {name: t.value() for name, t in replaced_token_metrics(*tensors(logits, labels, mask)).items()}


def test_terms_of_two_halves_add_up_to_those_of_the_whole():
    logits, labels, mask = scores()
    whole = replaced_token_metrics(*tensors(logits, labels, mask))
    halves = [replaced_token_metrics(*tensors(*(part[rows] for part in (logits, labels, mask)))) for rows in HALVES]
    added = tf.nest.map_structure(lambda a, b: a + b, *halves)
    for name, term in whole.items():
        assert added[name].value() == pytest.approx(term.value(), rel=1e-6)


HALVES = (slice(0, 11), slice(11, 40))


@pytest.mark.parametrize("term", [Ratio(0.0, 0.0), BinaryEntropy(0.0, 0.0), RankingCounts(np.ones(3), np.zeros(3))])
def test_a_metric_of_nothing_is_not_a_number(term):
    assert math.isnan(term.value())


@pytest.mark.parametrize("total", [0.0, 7.0])
def test_a_share_of_none_or_all_has_no_entropy(total):
    assert BinaryEntropy(total, 7.0).value() == 0.0
