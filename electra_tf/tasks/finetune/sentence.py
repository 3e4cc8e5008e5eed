"""What classification with one label or several and regression share: settings, model, features and predictions."""

import functools
import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tensorflow as tf
from pydantic import model_validator

from electra_tf.config.settings import Count, DropoutRate, MayChange, Positive, Real, Settings
from electra_tf.data.batch import Batch
from electra_tf.data.tables import Table, read_table
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, read_glue_texts
from electra_tf.tasks.finetune.examples import UNSTATED_COLUMNS, Examples, read_examples, with_swapped_pairs
from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.kind import Kind, NewColumns
from electra_tf.tasks.finetune.scores import sentence_scores
from electra_tf.tasks.finetune.task import FinetuningTask, Head, head_layer

if TYPE_CHECKING:
    from electra_tf.tasks.finetune.config import FinetuningConfig


class SentenceConfig(Settings):
    """Predicts one label, several labels or a number for a text or a pair of texts."""

    kind: Literal["classification", "multi_label", "regression"]
    # In the order of their ids; empty for regression. By default those of the training file, sorted.
    labels: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()  # one or two names, which --predict looks up in its input too
    label_column: MayChange[str] = "label"  # --predict scores an input that has this column
    # Targets of regression are scaled from this range to [0, 1].
    min_value: Real = 0.0
    max_value: Real = 1.0  # the upper end of that range
    # linear: dropout and one dense layer, as in the authors' code. huggingface: as in ElectraForSequenceClassification,
    # BertForSequenceClassification (by encoder.family) or ModernBertForSequenceClassification (by encoder.block).
    head: Head = "linear"
    dropout: DropoutRate = 0.1  # rate in the head
    # Weights of the labels in the loss, in the order of `labels` or by label; empty: all 1. balanced: from the training
    # file, by scikit-learn's formula. A run's resolved.yaml has the numbers.
    class_weights: tuple[Positive, ...] | dict[str, Positive] | Literal["balanced"] = ()
    # Train on both orders of a pair; for tasks in which the order has no meaning. As in the authors' code.
    double_unordered: bool = False
    # Tokens between the starts of two windows of a long text; null: a long text is truncated.
    stride: Count | None = None

    @property
    def num_outputs(self) -> int:
        """C, the width of the logits."""
        return len(self.labels) or 1

    @model_validator(mode="after")
    def _settings_are_consistent(self) -> "SentenceConfig":
        if self.max_value <= self.min_value:
            raise ValueError(f"max_value {self.max_value} is not above min_value {self.min_value}")
        if self.stride is not None and len(self.text_columns) == 2:
            raise ValueError(f"stride is {self.stride}, but only single texts have windows; remove it for pairs")
        weights = self.class_weights
        if isinstance(weights, tuple) and weights and self.labels and len(weights) != len(self.labels):
            raise ValueError(f"{len(weights)} class_weights for {len(self.labels)} labels; give one for each")
        return self


class SentenceTask(FinetuningTask):
    """Predicts from a text or a pair of texts: logits [B, C] float32; for regression [B, 1], the scaled number.

    The head is the authors' (dropout and a dense layer), or that of ElectraForSequenceClassification, which has another
    dense layer and GELU before it, of BertForSequenceClassification, which has tanh instead, or of
    ModernBertForSequenceClassification, which has GELU and a LayerNorm. It computes in float32, whatever the precision
    of the encoder.
    The loss is the cross-entropy, the mean of the labels' binary cross-entropies, or the squared error.
    Source: finetune/classification/classification_tasks.py of the authors' code.
    """

    reads_cls = True

    def __init__(self, config: "FinetuningConfig", **model_options):
        super().__init__(config, **model_options)
        self.output_layer = head_layer(config.task.num_outputs, "classifier")
        self.add_hidden_layers()

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, C] float32 logits."""
        return self.output_layer(self.head_input(self.encode(batch, context).pooled_output, context))

    def label_weights(self) -> tf.Tensor:
        """The weight of each label in the loss: [C] float32."""
        task = self.config.task
        return tf.constant(task.class_weights or (1.0,) * len(task.labels), tf.float32)

    def predictions(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": forward}


class Sentence(Kind):
    """A kind of task whose model is a `SentenceTask`. P is the logits of the examples, [N, C] float32.

    Attributes:
        metrics: on a user's own data.
        has_one_label: whether the probabilities of the labels sum to 1.
        labels_in(table, column): the labels in a column, see `Examples`; with `known` labels also those of the task.
    """

    settings, text_columns = SentenceConfig, ("text",)
    metrics: tuple[str, ...]
    has_one_label = False
    labels_in: Callable[[Table, str], list]

    @abstractmethod
    def targets(self, examples: Examples, task: SentenceConfig) -> np.ndarray:
        """Returns the only target tensor of the examples: [N, ...]."""

    @abstractmethod
    def decisions(self, logits: np.ndarray, task: SentenceConfig) -> np.ndarray:
        """Returns predictions for `sentence_scores`."""

    @abstractmethod
    def named(self, decisions: np.ndarray, task: SentenceConfig) -> list:
        """Returns the label, labels or number of each example."""

    def read(self, path, config, new=None):
        task, benchmark = config.task, GLUE_TASKS.get(config.name)
        labels_in = functools.partial(self.labels_in, known=task.labels)
        if new is None:
            return read_examples(path, task.text_columns, task.label_column, labels_in)
        if benchmark and (isinstance(path, Table) or os.fspath(path).lower().endswith((".tsv", ".parquet"))):
            return read_glue_texts(benchmark, path, *new)
        return read_new_texts(path, task, new, labels_in)

    def encode(self, examples, config, tokenizer, is_training):
        """Returns texts as features, in training both orders of a pair if the task has `double_unordered`."""
        task = config.task
        orders = 2 if is_training and task.double_unordered and len(examples.inputs) == 2 else 1
        if orders == 2:
            examples = with_swapped_pairs(examples)
        (name,) = self.model.target_tensors
        targets = {} if examples.labels is None else {name: self.targets(examples, task)}
        encoded = text_features(examples.inputs, targets, tokenizer, config.data.max_seq_length, task.stride)
        return replace(encoded, num_truncated=encoded.num_truncated // orders)  # both orders of a pair are, or none

    def metric_names(self, split):
        benchmark = GLUE_TASKS.get(split.config.name)
        return self.metrics if benchmark is None else benchmark.metrics

    def predict(self, split, outputs):
        """Returns the logits of each example, the mean over its windows."""
        index = split.encoded.features.example_index
        sums = np.zeros((index[-1] + 1, outputs["logits"].shape[1]), np.float64)
        np.add.at(sums, index, outputs["logits"])
        return (sums / np.bincount(index)[:, np.newaxis]).astype(np.float32)

    def scores(self, split, logits):
        gold = self.targets(split.examples, split.task)
        return sentence_scores(self.metric_names(split), self.decisions(logits, split.task), gold)

    def rows(self, split, logits):
        """Returns for each example id, label (if known), prediction, and the probability of each label."""
        from scipy import special  # here, because scoring libraries take long to import

        task, names = split.task, [f"probability_{label}" for label in split.task.labels]
        shares = special.softmax(logits, axis=1) if self.has_one_label else special.expit(logits)
        shares = shares[:, : len(names)].tolist()  # a regression has none
        predictions = zip(self.named(self.decisions(logits, task), task), shares, strict=True)
        return [
            {**split.examples.known(index), "prediction": prediction, **dict(zip(names, of_labels, strict=True))}
            for index, (prediction, of_labels) in enumerate(predictions)
        ]

    def alarm(self, split, logits):
        predicted = list(map(str, self.named(self.decisions(logits, split.task), split.task)))
        if len(set(predicted)) == 1 and len(set(split.examples.labels)) > 1:
            return f"all {len(predicted)} predictions of the dev set are {predicted[0]}"
        return None


def read_new_texts(
    path: str | os.PathLike, task: Any, new: NewColumns, labels_in: Callable[[Table, str], list] | None
) -> Examples:
    """Reads texts to predict.

    Args:
        task: the settings, with the columns of the training; without them, those usual for texts are read.
        labels_in: see `Sentence`; None to read no labels.
    """
    table = read_table(path)
    unstated = tuple(name for name in UNSTATED_COLUMNS if name == "text" or name in table.columns)
    has_one_output = len(getattr(task, "labels", ())) == 1  # a file may have any numbers for it
    label = (new.label or task.label_column) if labels_in and not has_one_output else None
    return read_examples(table, new.text or task.text_columns or unstated, label, labels_in, new.label is None)
