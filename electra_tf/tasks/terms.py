"""Losses and metrics as sums that are divided once, after every replica, micro-batch and batch has been added up.

Training terms are `Total`s: a task declares their denominators apart, from the batch alone, so that the step can sum
those over replicas before the forward pass. Evaluation terms carry their own denominators."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf


class Total(NamedTuple):
    """The sum behind a mean over something that `Task.denominators` counts.

    Attributes:
        value: scalar float32, the sum of weighted values over a batch.
        over: the key of its denominator.
    """

    value: tf.Tensor
    over: str


class Ratio(NamedTuple):
    """A mean not yet divided: `total / weight` once both have been summed over replicas, micro-batches and batches.

    Attributes:
        total: scalar float32, the sum of weighted values.
        weight: scalar float32, the sum of weights.
    """

    total: tf.Tensor
    weight: tf.Tensor

    def value(self) -> float:
        """The mean; NaN where nothing was counted. Only for terms that have been summed to the end."""
        return float(self.total) / float(self.weight) if float(self.weight) else float("nan")


class BinaryEntropy(NamedTuple):
    """The entropy in nats of a yes/no share `total / weight`: the loss of the best constant predictor of it."""

    total: tf.Tensor
    weight: tf.Tensor

    def value(self) -> float:
        """The entropy; NaN where nothing was counted."""
        share = Ratio(self.total, self.weight).value()
        if share in (0.0, 1.0):
            return 0.0
        return float(-share * np.log(share) - (1.0 - share) * np.log1p(-share))


class RankingCounts(NamedTuple):
    """Counts of scores by class in K equal cells, from which the area under the ROC curve follows.

    Attributes:
        negatives, positives: [K] float32, how many scores of each class fell into each cell.
    """

    negatives: tf.Tensor
    positives: tf.Tensor

    def value(self) -> float:
        """The area under the ROC curve; scores in one cell count as ties. NaN where a class is missing."""
        negatives, positives = np.asarray(self.negatives, np.float64), np.asarray(self.positives, np.float64)
        pairs = negatives.sum() * positives.sum()
        if not pairs:
            return float("nan")
        negatives_below = np.cumsum(negatives) - negatives
        return float(np.sum(positives * (negatives_below + 0.5 * negatives)) / pairs)


class Count(NamedTuple):
    """How many there were."""

    total: tf.Tensor

    def value(self) -> float:
        """The number itself."""
        return float(self.total)


Term = Ratio | BinaryEntropy | RankingCounts | Count

# Logits from -16 to 16 in steps of 1/2048: even the scores of a discriminator that has barely begun to tell tokens
# apart, which lie within a tenth of each other, fall into hundreds of cells.
_LARGEST_LOGIT, _CELLS_PER_UNIT = 16, 2048
_NUM_CELLS = 2 * _LARGEST_LOGIT * _CELLS_PER_UNIT


def weighted_total(values: tf.Tensor, weights: tf.Tensor, over: str) -> Total:
    """The Total of `values` under `weights`, two float32 tensors of one shape, to be divided by the count `over`."""
    return Total(tf.reduce_sum(values * weights), over)


def weighted_sum(values: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """The Ratio of `values` under `weights`: two float32 tensors of one shape."""
    return Ratio(tf.reduce_sum(values * weights), tf.reduce_sum(weights))


def ranking_counts(logits: tf.Tensor, is_positive: tf.Tensor, weights: tf.Tensor) -> RankingCounts:
    """Counts scores for the area under the ROC curve.

    Args:
        logits: any shape, float32; beyond +-16 they count as ties.
        is_positive, weights: the same shape; 0 or 1, and float32.
    """
    place = (tf.reshape(logits, [-1]) + _LARGEST_LOGIT) * _CELLS_PER_UNIT
    cells = tf.cast(tf.clip_by_value(place, 0.0, _NUM_CELLS - 1.0), tf.int32)
    labels, weights = tf.reshape(tf.cast(is_positive, tf.float32), [-1]), tf.reshape(weights, [-1])
    counts = (tf.math.unsorted_segment_sum(weights * share, cells, _NUM_CELLS) for share in (1.0 - labels, labels))
    return RankingCounts(*counts)
