"""The alarm about a fine-tuned model that has learnt nothing."""

import numpy as np
import pytest

ANIMALS = {"kind": "classification", "labels": ["even", "odd"]}


@pytest.mark.parametrize(
    ("classes", "problem"),
    [([1, 1, 1, 1], "all 4 predictions of the dev set are odd"), ([1, 0, 1, 1], None)],
)
def test_equal_predictions_for_different_labels_raise_the_alarm(data_of, classes, problem):
    data = data_of(ANIMALS, (["w5"] * 4,), ["even", "odd"] * 2)
    outputs = {"logits": np.eye(2, dtype=np.float32)[classes], "loss": np.zeros(4, np.float32)}
    assert data.evaluated(outputs).alarm == problem
