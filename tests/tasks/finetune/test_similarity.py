"""Similarity: vectors, both losses, features, metrics and predictions."""

import logging
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.kinds.similarity import mean_vectors
from tests.tasks.finetune.steps import CONTRASTIVE, SCORED, build, pair_batch


def test_padding_does_not_count_in_the_mean():
    values = tf.constant([[[1.0, 2.0], [3.0, 8.0], [9.0, 9.0]], [[5.0, 7.0], [9.0, 9.0], [9.0, 9.0]]])
    assert mean_vectors(values, tf.constant([[1, 1, 0], [1, 0, 0]])).numpy().tolist() == [[2.0, 5.0], [5.0, 7.0]]
    assert mean_vectors(values, tf.zeros([2, 3], tf.int32)).numpy().tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.fixture(scope="module")
def scored():
    return build(SCORED)


def test_each_text_is_encoded_alone(scored):
    task, batch = scored, pair_batch()
    vectors = task.forward(batch, INFERENCE).numpy()
    swapped = {name: values[:, ::-1] if len(values.shape) == 3 else values for name, values in batch.items()}
    np.testing.assert_allclose(task.forward(swapped, INFERENCE).numpy(), vectors[:, ::-1], atol=1e-6)
    np.testing.assert_allclose(task.forward(pair_batch(length=9), INFERENCE).numpy(), vectors, atol=1e-6)
    assert np.abs(vectors[:, 0] - vectors[:, 1]).max() > 1e-3


def test_the_loss_of_a_score_is_the_squared_difference_to_the_cosine(scored):
    vectors = tf.constant([[[3.0, 4.0], [6.0, 8.0]], [[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [1.0, 0.0]]])
    losses = scored.row_losses({"targets": tf.constant([0.75, 0.5, 0.0])}, vectors)
    np.testing.assert_allclose(losses, [0.0625, 0.25, 0.5], rtol=1e-6)


def test_a_text_finds_its_own_among_the_candidates_of_its_group():
    # Cosines of the first group: own 1 and 0, the other's 0 and 1; both logits are doubled by the temperature of 0.5.
    right, wrong = [[1.0, 0.0], [2.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]
    alone = [[0.0, 3.0], [0.0, 5.0]]
    vectors = tf.constant([right, [[0.0, 1.0], [0.0, 1.0]], wrong, [[1.0, 0.0], [0.0, 1.0]], alone, [[1.0, 0.0]] * 2])
    losses = build(CONTRASTIVE).row_losses({"row_weights": tf.constant([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])}, vectors)
    good, bad = math.log1p(math.exp(-2.0)), math.log1p(math.exp(2.0))
    # The last one's candidate is padding.
    np.testing.assert_allclose(losses[:5], [good, good, bad, bad, 0.0], atol=1e-6)


def test_pairs_without_scores_are_named_and_one_score_for_all_is_refused(task_of, refusal, caplog):
    caplog.set_level(logging.INFO)
    pairs, settings = {"one": ["w5", "w6"], "two": ["w7", "w8"]}, {"task": {"text_columns": ["one", "two"]}}
    assert task_of("similarity", settings, train=pairs | {"score": [1.5, 4.0]}).config.task.is_contrastive
    (message,) = caplog.messages
    assert "train.csv has no scores in 'label'" in message and "label_column" in message
    only_one = pairs | {"label": [1, 1]}
    assert "has only the label 1.0" in refusal(lambda: task_of("similarity", settings, train=only_one))


VECTORS = np.float32([[[2, 0], [1, 0]], [[0, 1], [3, 4]], [[1, 0], [0, 1]]])  # cosines 1, 0.8, 0
OUTPUTS = {"vectors": VECTORS, "loss": np.float32([0.5, 1.0, 3.0])}


@pytest.fixture(scope="module")
def pairs_of(data_of):
    """`pairs_of(SCORED, [1.0, 3.0, 5.0])`: three pairs with these scores."""
    return lambda task, labels, second=("w9 w9 w9", "w5", "w6"), **options: data_of(
        task, (["w5", "w6 w7", "w8"], list(second)), labels, **options
    )


def test_a_row_has_a_sequence_for_each_text(pairs_of):
    features = pairs_of(SCORED, [1.0, 2.0, 5.0]).train
    assert features.num_choices == 2
    assert features.choice_splits.tolist() == [0, 3, 8, 12, 15, 18, 21]
    assert features.row_splits.tolist() == [0, 8, 15, 21]
    assert features.row_targets["targets"].tolist() == [0.0, 0.25, 1.0]
    assert not features.segment_ids.any()


def test_metrics_are_correlations_of_cosines_or_the_share_of_texts_that_find_their_own(pairs_of):
    metrics = pairs_of(SCORED, [4.0, 5.0, 1.0]).evaluated(OUTPUTS).metrics
    pearson = np.corrcoef([1.0, 0.8, 0.0], [4.0, 5.0, 1.0])[0, 1]
    assert metrics == pytest.approx({"spearmanr": 0.5, "pearson": pearson, "loss": 1.5})
    # The nearest second vectors of the three first ones: the first, the third, the first. Of equal texts any is right.
    for second, share in (("w9 w9 w9", "w5", "w6"), 1 / 3), (("w9", "w5", "w9"), 2 / 3):
        metrics = pairs_of(CONTRASTIVE, [True] * 3, second).evaluated(OUTPUTS).metrics
        assert metrics == pytest.approx({"accuracy": share, "loss": 1.5})


def test_predictions_are_cosines(pairs_of):
    content = pairs_of(SCORED, [4.0, 5.0, 1.0]).evaluated(OUTPUTS).table
    assert content.decode() == "id\tlabel\tprediction\na\t4.0\t1.000000\nb\t5.0\t0.800000\nc\t1.0\t0.000000\n"
    content = pairs_of(SCORED, None, is_train=False).evaluated(OUTPUTS).table
    assert content.decode() == "id\tprediction\na\t1.000000\nb\t0.800000\nc\t0.000000\n"
