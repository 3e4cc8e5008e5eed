"""What follows from the scores beside losses and samples: the likeliest token and the entropy."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.vocabulary_logits import VocabularyLogits

LOGITS = np.array(
    [
        [[0.0, math.log(3.0), -2.0], [2.0, 2.0, 2.0], [30.0, 0.0, -30.0]],
        [[1.0, 0.0, -1.0], [0.0, 0.0, 0.0], [-5.0, 700.0, 700.0]],
    ],
    np.float32,
)


def scores_of(logits: np.ndarray, training: bool) -> VocabularyLogits:
    return VocabularyLogits(tf.constant(logits), tf.eye(3), tf.zeros([3]), training)


@pytest.mark.parametrize("training", [True, False])
def test_the_entropy_is_that_of_the_softmax(training):
    logits = LOGITS.astype(np.float64)
    probs = np.exp(logits - logits.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    expected = -np.sum(probs * np.log(np.maximum(probs, 1e-300)), axis=-1)
    found = scores_of(LOGITS, training).entropies().numpy()
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert found[0, 1] == pytest.approx(math.log(3), rel=1e-6)
    assert found[1, 2] == pytest.approx(math.log(2), rel=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_a_token_that_never_occurs_adds_nothing_to_the_entropy(training):
    bias = tf.constant([0.0, math.log(3.0), -math.inf])
    scores = VocabularyLogits(tf.zeros([1, 1, 3]), tf.eye(3), bias, training)
    expected = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    assert float(scores.entropies()[0, 0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_the_likeliest_tokens_are_told_from_the_others(training):
    scores = scores_of(LOGITS, training)
    assert scores.is_top1(tf.constant([[1, 2, 0], [1, 0, 2]])).numpy().tolist() == [[1, 1, 1], [0, 1, 1]]
    assert scores.is_top1(tf.constant([[0, 0, 1], [0, 1, 0]])).numpy().tolist() == [[0, 1, 0], [1, 1, 0]]


def test_reports_send_no_gradient():
    vectors = tf.Variable(LOGITS)
    with tf.GradientTape() as tape:
        scores = VocabularyLogits(vectors + 0.0, tf.eye(3), tf.zeros([3]), training=True)
        total = tf.reduce_sum(scores.entropies()) + tf.reduce_sum(scores.is_top1(tf.zeros([2, 3], tf.int32)))
    assert tape.gradient(total, vectors) is None
