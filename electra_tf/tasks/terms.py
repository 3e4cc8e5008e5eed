"""Losses and metrics as sums, divided once, after all replicas, micro-batches and batches have been added.

Training terms are `Total`s: the task computes their denominators separately, from the batch alone, so that the step
can sum them over replicas before the forward pass. Evaluation terms carry their own denominators.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf


class Total(NamedTuple):
    """The numerator of a mean; its denominator is one of `Task.denominators`.

    Attributes:
        value: scalar float32, the sum of weighted values over a batch.
        denominator: its key.
    """

    value: tf.Tensor
    denominator: str


class Ratio(NamedTuple):
    """A mean, `total / weight`; both are summed over replicas and batches before the division.

    Attributes:
        total: scalar float32, the sum of weighted values.
        weight: scalar float32, the sum of weights.
    """

    total: tf.Tensor
    weight: tf.Tensor

    def value(self) -> float:
        """The mean, once all terms are summed; NaN if the weight is 0."""
        return float(self.total) / float(self.weight) if float(self.weight) else float("nan")


class BinaryEntropy(NamedTuple):
    """The entropy in nats of the fraction `total / weight`: the loss of the best constant predictor."""

    total: tf.Tensor
    weight: tf.Tensor

    def value(self) -> float:
        """The entropy; NaN if the weight is 0."""
        share = Ratio(self.total, self.weight).value()
        if share in (0.0, 1.0):
            return 0.0
        return float(-share * np.log(share) - (1.0 - share) * np.log1p(-share))


class RankingCounts(NamedTuple):
    """A histogram of logits for each of two classes, to compute the area under the ROC curve.

    Attributes:
        negatives, positives: [K] float32, the number of logits of each class in each of K equal bins.
    """

    negatives: tf.Tensor
    positives: tf.Tensor

    def value(self) -> float:
        """The area under the ROC curve; logits in one bin count as ties. NaN if a class is missing."""
        negatives, positives = np.asarray(self.negatives, np.float64), np.asarray(self.positives, np.float64)
        pairs = negatives.sum() * positives.sum()
        if not pairs:
            return float("nan")
        negatives_below = np.cumsum(negatives) - negatives
        return float(np.sum(positives * (negatives_below + 0.5 * negatives)) / pairs)


class Sum(NamedTuple):
    """A number that is summed."""

    total: tf.Tensor

    def value(self) -> float:
        """The sum."""
        return float(self.total)


Term = Ratio | BinaryEntropy | RankingCounts | Sum


def scaled(term: Term, factor: float) -> Term:
    """The term with each example counted `factor` times. A `Sum` stays, as it is no mean."""
    return term if isinstance(term, Sum) else type(term)(*(factor * value for value in term))


# Bins from -16 to 16, each 1/2048 wide: early in training a discriminator's logits differ by at most 0.1, which is
# still hundreds of bins.
_LARGEST_LOGIT, _BINS_PER_UNIT = 16, 2048
_NUM_BINS = 2 * _LARGEST_LOGIT * _BINS_PER_UNIT


def count_of(weights: tf.Tensor) -> tf.Tensor:
    """The sum of weights of any shape and type: scalar float32."""
    return tf.reduce_sum(tf.cast(weights, tf.float32))


def weighted_total(values: tf.Tensor, weights: tf.Tensor, denominator: str) -> Total:
    """The sum of values * weights, of one shape and any type, as a `Total` over `denominator`."""
    return Total(tf.reduce_sum(tf.cast(values, tf.float32) * tf.cast(weights, tf.float32)), denominator)


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """The mean of `values` weighted by `weights`, of one shape and any type, as a `Ratio`."""
    return Ratio(weighted_total(values, weights, "").value, count_of(weights))


def ranking_counts(logits: tf.Tensor, is_positive: tf.Tensor, weights: tf.Tensor) -> RankingCounts:
    """The histograms for the area under the ROC curve.

    Args:
        logits: any shape, float32; those beyond +-16 count as ties.
        is_positive, weights: the same shape; 0 or 1, and float32.
    """
    position = (tf.reshape(logits, [-1]) + _LARGEST_LOGIT) * _BINS_PER_UNIT
    bins = tf.cast(tf.clip_by_value(position, 0.0, _NUM_BINS - 1.0), tf.int32)
    labels, weights = tf.reshape(tf.cast(is_positive, tf.float32), [-1]), tf.reshape(weights, [-1])
    counts = (tf.math.unsorted_segment_sum(weights * share, bins, _NUM_BINS) for share in (1.0 - labels, labels))
    return RankingCounts(*counts)
