"""Regression: a number for a text or a pair of texts."""

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.batch import Batch
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.kind import Split
from electra_tf.tasks.finetune.kinds.sentence import NUMBER, Sentence, SentenceConfig, SentenceHead, SentenceTask
from electra_tf.tasks.finetune.labels import numbers
from electra_tf.tasks.finetune.scores import sentence_scores
from electra_tf.tasks.served import ServedOutputs


class RegressionTask(SentenceTask):
    """Predicts a number, scaled so that those of the training are in [0, 1]."""

    target_tensors = {"targets": ("", tf.float32)}
    verb = "regress"

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        return tf.square(forward[:, 0] - batch["targets"])

    def predictions(self, logits: tf.Tensor) -> ServedOutputs:
        config = self.config.task
        value = config.min_value + tf.cast(logits[:, 0], tf.float64) * (config.max_value - config.min_value)
        return {"value": tf.cast(value, tf.float32)}


class Regression(Sentence):
    """A number for each example."""

    name, model = "regression", RegressionTask
    transformers = SentenceHead(NUMBER, "torch.nn.modules.linear.Identity")
    metrics = ("spearmanr", "pearson", "mse")
    labels_in = staticmethod(numbers)

    def derive(self, train: Examples, task: Any) -> dict[str, Any]:
        if task.labels or task.class_weights:
            raise UserError("labels and class_weights have no effect in a regression; remove them")
        return target_range(train)

    def targets(self, examples: Examples, task: SentenceConfig) -> npt.NDArray[np.float32]:
        return scaled_targets(examples, task.min_value, task.max_value)

    def decisions(self, logits: npt.NDArray[np.float32], task: SentenceConfig) -> npt.NDArray[np.float64]:
        return task.min_value + logits[:, 0].astype(np.float64) * (task.max_value - task.min_value)

    def named(self, logits: npt.NDArray[np.float32], task: SentenceConfig) -> list[Any]:
        return self.decisions(logits, task).tolist()

    def scores(self, split: Split, logits: npt.NDArray[np.float32]) -> dict[str, float]:
        gold = np.asarray(split.examples.gold, np.float64)
        return sentence_scores(self.metric_names(split), self.decisions(logits, split.task), gold)


def target_range(examples: Examples) -> dict[str, float]:
    """Returns the settings of the range of a training split's labels. Raises: UserError: all are equal."""
    smallest, largest = min(examples.gold), max(examples.gold)
    if smallest == largest:
        raise UserError(f"{examples.source} has only the label {smallest}; training needs different numbers")
    return {"min_value": smallest, "max_value": largest}


def scaled_targets(examples: Examples, min_value: float, max_value: float) -> npt.NDArray[np.float32]:
    """Returns the labels, scaled so that `min_value` becomes 0 and `max_value` becomes 1: [N] float32.

    Raises: UserError: the range is empty.
    """
    if min_value >= max_value:
        raise UserError(f"task.min_value {min_value:g} is not below task.max_value {max_value:g}; change one of them")
    return ((np.array(examples.gold, np.float64) - min_value) / (max_value - min_value)).astype(np.float32)
