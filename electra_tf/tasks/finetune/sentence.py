"""Classification with one label or several, and regression: the model, its features, scores and predictions."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.batch import Batch
from electra_tf.data.tables import Table, read_table
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, read_glue_texts
from electra_tf.tasks.finetune.config import FinetuningConfig, SentenceConfig
from electra_tf.tasks.finetune.examples import (
    UNSTATED_COLUMNS,
    Examples,
    class_targets,
    class_weights,
    label_set,
    multi_label_targets,
    read_examples,
    scaled_targets,
    target_range,
    with_swapped_pairs,
)
from electra_tf.tasks.finetune.features import EncodedExamples, Outputs, Split, text_features
from electra_tf.tasks.finetune.scores import OWN_METRICS, Report, class_report, multi_label_report, sentence_scores
from electra_tf.tasks.finetune.task import FinetuningTask, head_layer
from electra_tf.text.tokenizer import Tokenizer

_TARGETS = {
    "classification": {"label_ids": ("", tf.int32)},
    "multi_label": {"label_ids": ("C", tf.int32)},
    "regression": {"targets": ("", tf.float32)},
}
_SMALLEST_SHARE = 1e-12  # replaces 0, the share of a label without training examples


class SentenceTask(FinetuningTask):
    """Classifies a text or a pair of texts: logits [B, C] float32; for regression [B, 1], the scaled number.

    The head is the authors' (dropout and a dense layer), or that of ElectraForSequenceClassification, which has another
    dense layer and GELU before it, or of ModernBertForSequenceClassification, which has a LayerNorm too. It computes in
    float32, whatever the precision of the encoder.
    The loss is the cross-entropy, the mean of the labels' binary cross-entropies, or the squared error.
    Source: finetune/classification/classification_tasks.py of the authors' code.
    """

    def __init__(self, config: FinetuningConfig, **model_options):
        super().__init__(config, **model_options)
        self.target_tensors = _TARGETS[config.task.kind]
        self.output_layer = head_layer(config.task.num_outputs, "classifier")
        self.add_hidden_layers()

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, C] float32 logits."""
        return self.output_layer(self.head_input(self.encode(batch, context).pooled_output, context))

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        task = self.config.task
        if task.kind == "regression":
            return tf.square(forward[:, 0] - batch["targets"])
        weights = tf.constant(task.class_weights or (1.0,) * len(task.labels), tf.float32)
        label_ids = batch["label_ids"]
        if task.kind == "multi_label":
            labels = tf.cast(label_ids, tf.float32)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=forward)
            return tf.reduce_mean(losses * weights, axis=1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_ids, logits=forward)
        return losses * tf.gather(weights, label_ids)

    def predictions(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": forward}


def read(path: str | os.PathLike, task: SentenceConfig) -> Examples:
    """Reads texts with labels."""
    return read_examples(path, task.text_columns, task.label_column, task.kind)


def read_new(
    path: str | os.PathLike, config: FinetuningConfig, text_columns: tuple[str, ...] | None, label_column: str | None
) -> Examples:
    """Reads texts to predict, with their labels if the file has them.

    Args:
        path: a file, or a `Table`.
        text_columns, label_column: the columns; None for those of the training, of which the labels may be missing.
    """
    task, benchmark = config.task, GLUE_TASKS.get(config.name)
    if benchmark is not None and (isinstance(path, Table) or os.fspath(path).lower().endswith((".tsv", ".parquet"))):
        return read_glue_texts(benchmark, path, text_columns, label_column)
    table = read_table(path)
    columns = columns_of(table, config, text_columns)
    known = ["-1"] if getattr(task, "min_value", 0.0) <= -1.0 else getattr(task, "labels", ())
    label, problem = label_column or task.label_column, "regression" if task.kind == "similarity" else task.kind
    return read_examples(table, columns, label, problem, label_column is None, known)


def columns_of(table: Table, config: FinetuningConfig, text_columns: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """The columns of a table to predict: the given ones, or those of the training, or else those usual for texts."""
    unstated = tuple(name for name in UNSTATED_COLUMNS if name == "text" or name in table.columns)
    return text_columns or config.task.text_columns or unstated


def derive_range(train: Examples, task: SentenceConfig) -> dict[str, Any]:
    """The settings of a regression that follow from its training examples."""
    smallest, largest = target_range(train)
    return {"min_value": smallest, "max_value": largest}


def derive_labels(train: Examples, task: SentenceConfig) -> dict[str, Any]:
    """The settings of a classification that follow from its training examples and from `labels`, `class_weights`."""
    labels, weights = label_set(train, task.labels or None), task.class_weights
    if not weights:
        return {"labels": list(labels)}
    if task.kind == "multi_label" and weights == "balanced":
        raise UserError("--class_weights=balanced needs --task=classification; give a weight for each label")
    targets = class_targets(train, labels) if weights == "balanced" else None
    return {"labels": list(labels), "class_weights": class_weights(targets, labels, weights).tolist()}


def encode(examples: Examples, config: FinetuningConfig, tokenizer: Tokenizer, is_training: bool) -> EncodedExamples:
    """Returns texts as features, in training both orders of a pair if the task has `double_unordered`."""
    if is_training and config.task.double_unordered and len(examples.inputs) == 2:
        examples = with_swapped_pairs(examples)
    targets = {} if examples.labels is None else dict([_gold(examples, config.task)])
    return text_features(examples.inputs, targets, tokenizer, config.data.max_seq_length, config.task.stride)


def metric_names(split: Split) -> tuple[str, ...]:
    benchmark = GLUE_TASKS.get(split.config.name)
    return OWN_METRICS[split.task.kind] if benchmark is None else benchmark.metrics


def predict(split: Split, outputs: Outputs) -> np.ndarray:
    """Returns the logits of each example, the mean over its windows: [N, C] float32."""
    index = split.encoded.features.example_index
    sums = np.zeros((index[-1] + 1, outputs["logits"].shape[1]), np.float64)
    np.add.at(sums, index, outputs["logits"])
    return (sums / np.bincount(index)[:, np.newaxis]).astype(np.float32)


def scores(split: Split, logits: np.ndarray) -> dict[str, float]:
    is_regression = split.task.kind == "regression"
    gold = np.asarray(split.examples.labels, np.float64) if is_regression else _gold(split.examples, split.task)[1]
    return sentence_scores(metric_names(split), _decided(logits, split.task), gold)


def report(split: Split, logits: np.ndarray) -> Report | None:
    task, examples = split.task, split.examples
    if task.kind == "classification":
        return class_report(task.labels, _predicted_labels(logits, task), examples.labels)
    if task.kind == "multi_label":
        return multi_label_report(task.labels, _decided(logits, task), _gold(examples, task)[1])
    return None


def rows(split: Split, logits: np.ndarray) -> list[dict[str, Any]]:
    """The prediction for each example: id, label (if known), prediction, and the probability of each label."""
    from scipy import special  # here, because scoring libraries take long to import

    task, examples, shares = split.task, split.examples, None
    if task.kind != "regression":
        shares = special.expit(logits) if task.kind == "multi_label" else special.softmax(logits, axis=1)
    lines = []
    for index, prediction in enumerate(_predicted_labels(logits, task)):
        line = {**examples.known(index), "prediction": prediction}
        if shares is not None:
            names = (f"probability_{label}" for label in task.labels)
            line |= zip(names, shares[index].tolist(), strict=True)
        lines.append(line)
    return lines


def alarm(split: Split, logits: np.ndarray, scores: Mapping[str, float]) -> str | None:
    """Returns a sign that the model has learnt nothing, from its logits and scores for the split."""
    loss = scores["loss"]
    task, (name, gold), predicted = split.task, _gold(split.examples, split.task), _decided(logits, split.task)
    if task.kind == "classification" and len(np.unique(predicted)) == 1 and len(np.unique(gold)) > 1:
        return f"all {len(predicted)} predictions of the dev set are {task.labels[predicted[0]]!r}"
    of_constant, constant = _constant_predictor(task.kind, split.train.row_targets[name], gold, len(task.labels))
    # A model that has memorised its training set has a high loss, but a better accuracy than the constant one.
    is_better = task.kind != "regression" and np.mean(predicted == gold) > np.mean(constant == gold)
    if not task.class_weights and loss >= of_constant and not is_better:
        return f"the dev loss is {loss:.4f}; the best constant prediction has {of_constant:.4f}"
    return None


def _gold(examples: Examples, task: SentenceConfig) -> tuple[str, np.ndarray]:
    """The name of the target tensor, and the targets of the examples."""
    if task.kind == "regression":
        return "targets", scaled_targets(examples, task.min_value, task.max_value)
    return "label_ids", (multi_label_targets if task.kind == "multi_label" else class_targets)(examples, task.labels)


def _decided(logits: np.ndarray, task: SentenceConfig) -> np.ndarray:
    """[N, C] logits -> predictions for `sentence_scores`."""
    if task.kind == "regression":
        return task.min_value + logits[:, 0].astype(np.float64) * (task.max_value - task.min_value)
    return (logits > 0).astype(np.int32) if task.kind == "multi_label" else logits.argmax(axis=1).astype(np.int32)


def _predicted_labels(logits: np.ndarray, task: SentenceConfig) -> list:
    """A label, a number or a list of labels for each example."""
    decided = _decided(logits, task)
    if task.kind == "regression":
        return decided.tolist()
    if task.kind == "multi_label":
        return [[task.labels[i] for i in np.flatnonzero(row)] for row in decided]
    return [task.labels[i] for i in decided]


def _constant_predictor(kind: str, train: np.ndarray, gold: np.ndarray, num_labels: int) -> tuple[float, np.ndarray]:
    """Returns the loss and the prediction of the best model that ignores its input.

    Args:
        train: the targets of the training set, whose mean is the output.
        gold: the targets of the evaluated set.
    Returns: the loss on the evaluated set, and the prediction: a class, 0 or 1 for each label, or a number.
    """
    if kind == "regression":
        mean = train.mean(dtype=np.float64)
        return float(np.mean((gold - mean) ** 2)), mean
    if kind == "classification":
        shares = np.maximum(np.bincount(train, minlength=num_labels) / len(train), _SMALLEST_SHARE)
        return float(-np.mean(np.log(shares[gold]))), shares.argmax()
    shares = np.clip(train.mean(axis=0, dtype=np.float64), _SMALLEST_SHARE, 1 - _SMALLEST_SHARE)
    return float(-np.mean(np.where(gold, np.log(shares), np.log(1 - shares)))), shares > 0.5
