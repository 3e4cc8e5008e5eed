"""Regression: a number for a text or a pair of texts."""

from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.batch import Batch
from electra_tf.tasks.finetune.examples import Examples, numbers, require_no_index
from electra_tf.tasks.finetune.kind import Split
from electra_tf.tasks.finetune.scores import sentence_scores
from electra_tf.tasks.finetune.sentence import Sentence, SentenceConfig, SentenceTask


class RegressionTask(SentenceTask):
    """Predicts a number, scaled so that those of the training are in [0, 1]."""

    target_tensors = {"targets": ("", tf.float32)}

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        return tf.square(forward[:, 0] - batch["targets"])


class Regression(Sentence):
    name, settings, model = "regression", SentenceConfig, RegressionTask
    metrics = ("spearmanr", "pearson", "mse")
    labels_in = staticmethod(numbers)

    def derive(self, train: Examples, task: SentenceConfig) -> dict[str, Any]:
        if task.labels or task.class_weights:
            raise UserError("labels and class_weights have no effect in a regression; remove them")
        smallest, largest = target_range(train)
        return {"min_value": smallest, "max_value": largest}

    def targets(self, examples: Examples, task: SentenceConfig) -> np.ndarray:
        return scaled_targets(examples, task.min_value, task.max_value)

    def decisions(self, logits: np.ndarray, task: SentenceConfig) -> np.ndarray:
        return task.min_value + logits[:, 0].astype(np.float64) * (task.max_value - task.min_value)

    def named(self, decisions: np.ndarray, task: SentenceConfig) -> list[float]:
        return decisions.tolist()

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        return logits[:, :0]

    def scores(self, split: Split, logits: np.ndarray) -> dict[str, float]:
        numbers = np.asarray(split.examples.labels, np.float64)
        return sentence_scores(self.metric_names(split), self.decisions(logits, split.task), numbers)

    def best_constant(self, train: np.ndarray, gold: np.ndarray, task: SentenceConfig) -> tuple[float, float]:
        loss = np.mean((gold - train.mean(dtype=np.float64)) ** 2)
        return float(loss), 1.0  # the loss alone counts


def target_range(examples: Examples) -> tuple[float, float]:
    """Returns the smallest and the largest label of a training split.

    Raises: UserError: they are equal, or a column of the split counts the rows.
    """
    require_no_index(examples)
    smallest, largest = min(examples.labels), max(examples.labels)
    if smallest == largest:
        raise UserError(f"{examples.source} has only the label {smallest}; regression needs different numbers")
    return smallest, largest


def scaled_targets(examples: Examples, smallest: float, largest: float) -> np.ndarray:
    """Returns the labels, scaled so that `smallest` becomes 0 and `largest` becomes 1: [N] float32."""
    return ((np.array(examples.labels, np.float64) - smallest) / (largest - smallest)).astype(np.float32)
