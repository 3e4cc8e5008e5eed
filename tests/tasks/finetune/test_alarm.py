"""The alarm about a fine-tuned model that has learnt nothing."""

import math

import numpy as np
import pytest

from tests.tasks.finetune.steps import CHOICE, CONTRASTIVE, SCORED

LOWEST = float(np.finfo(np.float32).min)
ANIMALS = {"kind": "classification", "labels": ["even", "odd"]}
TEXTS, LABELS = ["w5"] * 6, ["even", "odd"] * 3
CHOICES = ["w5", "w6 w7", "w8"], [["w9"], ["w5", "w6 w7"], ["w5", "w6", "w7"]]
PAIRS = ["w5", "w6 w7", "w8"], ["w9 w9 w9", "w5", "w6"]
VECTORS = {"vectors": np.float32([[[2, 0], [1, 0]], [[0, 1], [3, 4]], [[1, 0], [0, 1]]])}  # cosines 1, 0.8, 0
AT_CHANCE = math.log(6) / 3  # the mean over one, two and three choices
CHOOSES_WRONG = {"logits": np.float32([[0.1, 0, 0], [0.1, 0, 0], [0.1, 0, 0]])}
CHOOSES_RIGHT = {"logits": np.float32([[0, LOWEST, LOWEST], [0, 0.1, 0], [0, 0, 0.1]])}


def of_classes(*classes: int) -> dict:
    return {"logits": np.eye(2, dtype=np.float32)[list(classes)]}


@pytest.mark.parametrize(
    ("task", "inputs", "labels", "outputs", "loss", "problem"),
    [
        (ANIMALS, (TEXTS,), LABELS, of_classes(1, 1, 1, 1, 1, 1), 0.25, "all 6 predictions of the dev set are 'odd'"),
        # Three of six are right; both classes are equally frequent.
        (ANIMALS, (TEXTS,), LABELS, of_classes(1, 0, 0, 1, 1, 1), 0.75, "0.7500; the best constant prediction has"),
        (ANIMALS, (TEXTS,), LABELS, of_classes(1, 0, 0, 1, 1, 1), 0.625, None),
        (ANIMALS, (TEXTS,), LABELS, of_classes(0, 1, 0, 1, 1, 1), 2.0, None),
        (CHOICE, CHOICES, [0, 1, 2], CHOOSES_WRONG, AT_CHANCE + 1e-3, "equal scores for all choices have 0.5973"),
        (CHOICE, CHOICES, [0, 1, 2], CHOOSES_WRONG, AT_CHANCE - 1e-3, None),
        (CHOICE, CHOICES, [0, 1, 2], CHOOSES_RIGHT, AT_CHANCE + 1e-3, None),
        (SCORED, PAIRS, [4.0, 5.0, 1.0], VECTORS, 0.0, None),
        (SCORED, PAIRS, [1.0, 2.0, 3.0], VECTORS, 0.0, "-1.0000"),
        (CONTRASTIVE, PAIRS, [True] * 3, VECTORS, 0.0, "the accuracy 0.3333 is that of chance"),
        (CONTRASTIVE, (PAIRS[0], ["w9", "w5", "w9"]), [True] * 3, VECTORS, 0.0, "accuracy 0.6667 is that of chance"),
    ],
)  # fmt: skip
def test_a_model_no_better_than_a_constant_one_raises_the_alarm(data_of, task, inputs, labels, outputs, loss, problem):
    data = data_of(task, inputs, labels)
    found = data.evaluated({**outputs, "loss": np.full(len(labels), loss, np.float32)}).alarm
    assert found is problem is None or problem in found
