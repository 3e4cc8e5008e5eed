"""Classification with several labels for a text or a pair of texts, or none."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.batch import Batch
from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.classification import derive_labels
from electra_tf.tasks.finetune.examples import Examples, class_label, label_ids, refuse_numbers_of_all_labels
from electra_tf.tasks.finetune.kind import Split
from electra_tf.tasks.finetune.scores import Report, multi_label_report
from electra_tf.tasks.finetune.sentence import SMALLEST_SHARE, Sentence, SentenceConfig, SentenceTask


class MultiLabelTask(SentenceTask):
    """Classifies with any number of labels for each example."""

    target_tensors = {"label_ids": ("C", tf.int32)}

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        weights, labels = self.label_weights(), tf.cast(batch["label_ids"], tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=forward)
        return tf.reduce_mean(losses * weights, axis=1)


def label_tuples(table: Table, column: str) -> list[tuple[str, ...]]:
    """The labels of each row: a list, or in CSV and TSV a JSON list, or names with commas between them."""
    values = [_label_list(value, table.where(row), column) for row, value in enumerate(table.labels(column))]
    refuse_numbers_of_all_labels(table, column, values, may_be_ids=True)
    return [
        tuple(dict.fromkeys(class_label(label, table.where(row), column) for label in value))
        for row, value in enumerate(values)
    ]


class MultiLabel(Sentence):
    name, settings, model = "multi_label", SentenceConfig, MultiLabelTask
    metrics = ("f1", "f1_macro", "accuracy")
    labels_in = staticmethod(label_tuples)

    def derive(self, train: Examples, task: SentenceConfig) -> dict[str, Any]:
        if task.class_weights == "balanced":
            raise UserError("--class_weights=balanced needs --task=classification; give a weight for each label")
        return derive_labels(train, task)

    def targets(self, examples: Examples, task: SentenceConfig) -> np.ndarray:
        return multi_label_targets(examples, task.labels)

    def decisions(self, logits: np.ndarray, task: SentenceConfig) -> np.ndarray:
        return (logits > 0).astype(np.int32)

    def named(self, decisions: np.ndarray, task: SentenceConfig) -> list[list[str]]:
        return [[task.labels[index] for index in np.flatnonzero(row)] for row in decisions]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        from scipy import special  # here, because scoring libraries take long to import

        return special.expit(logits)

    def report(self, split: Split, logits: np.ndarray) -> Report:
        task = split.task
        return multi_label_report(task.labels, self.decisions(logits, task), self.targets(split.examples, task))

    def best_constant(self, train: np.ndarray, gold: np.ndarray, task: SentenceConfig) -> tuple[float, float]:
        shares = np.clip(train.mean(axis=0, dtype=np.float64), SMALLEST_SHARE, 1 - SMALLEST_SHARE)
        loss = -np.mean(np.where(gold, np.log(shares), np.log(1 - shares)))
        return float(loss), np.mean((shares > 0.5) == gold)


def multi_label_targets(examples: Examples, labels: Sequence[str]) -> np.ndarray:
    """Returns [N, C] int32, 1 where an example has a label. Raises: UserError: a label is not in `labels`."""
    targets = np.zeros((len(examples), len(labels)), np.int32)
    pairs = [(index, name) for index, names in enumerate(examples.labels) for name in names]
    targets[[index for index, _ in pairs], label_ids(pairs, labels, examples.where)] = 1
    return targets


def _label_list(value: Any, where: str, column: str) -> list:
    if isinstance(value, str) and not value.startswith("["):
        return list(filter(None, map(str.strip, value.split(","))))
    if isinstance(value, str):
        for text in (value, value.replace("'", '"')):  # JSON, or as pandas writes a list
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(text)
    if not isinstance(value, list):
        raise UserError(f"{where} has {value!r} as {column!r}, expected a list of labels, as JSON in a text")
    return value
