"""The judge of the replication: all discriminators are asked about the same samples."""

import math

import numpy as np
import pytest
import tensorflow as tf

from experiments.replication.judge import metrics_of


class FixedDiscriminator:
    """Says that token 7 was replaced, with the logit ln 3."""

    def detection_logits(self, batch):
        return tf.where(batch["input_ids"] == 7, math.log(3.0), -math.log(3.0))


def test_padding_does_not_count():
    ids, mask = tf.constant([[7, 5, 7, 7]]), tf.constant([[1, 1, 1, 0]])
    texts = [({"input_ids": ids, "input_mask": mask}, np.array([[True, False, False, True]]))]
    metrics = metrics_of(FixedDiscriminator(), texts)
    # Right with probability 3/4 twice, with 1/4 once; a third of three tokens is replaced.
    assert metrics["loss"] == pytest.approx((2 * -math.log(0.75) - math.log(0.25)) / 3)
    assert metrics["constant_loss"] == pytest.approx(math.log(3.0) - 2 / 3 * math.log(2.0))
    assert metrics["auc"] == pytest.approx(0.75)
