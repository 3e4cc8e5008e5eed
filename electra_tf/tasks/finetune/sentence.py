"""Classification with one label or several, and regression: the model, its data and its predictions."""

import csv
import io
import json
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from electra_tf.data.batch import Batch
from electra_tf.models.layers import ForwardContext, glorot_uniform
from electra_tf.ops.reference import gelu
from electra_tf.tasks.finetune.config import FinetuningConfig, SentenceConfig
from electra_tf.tasks.finetune.data import Outputs, TaskData
from electra_tf.tasks.finetune.metrics import sentence_scores
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.tasks.finetune.text_examples import (
    TextExamples,
    class_targets,
    multi_label_targets,
    scaled_targets,
    with_swapped_pairs,
)
from electra_tf.tasks.finetune.text_features import TextFeatures, text_features
from electra_tf.text.tokenizer import BertTokenizer

_TARGETS = {
    "classification": {"label_ids": ("", tf.int32)},
    "multi_label": {"label_ids": ("C", tf.int32)},
    "regression": {"targets": ("", tf.float32)},
}


class SentenceTask(FinetuningTask):
    """Classifies one text or a pair of texts: logits [B, C] float32; for regression [B, 1], the scaled target.

    The head is the authors', dropout and one dense layer, or Hugging Face's ElectraForSequenceClassification, with
    another dense layer and GELU before it. It computes in float32, whatever the precision of the encoder.
    Losses: cross-entropy; mean of the labels' binary cross-entropies; squared error.
    Source: finetune/classification/classification_tasks.py of the authors' code.
    """

    def __init__(self, config: FinetuningConfig, **model_options):
        super().__init__(config, **model_options)
        self.target_tensors = _TARGETS[config.task.kind]
        self.output_layer = _dense(config.task.num_outputs, "classifier")
        self.hidden_layer = None
        if config.task.head == "huggingface":
            self.hidden_layer = _dense(config.encoder.hidden_size, "hidden")

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, C] float32 logits."""
        rate = self.config.task.dropout
        vector = tf.cast(self.encode(batch, context).pooled_output, tf.float32)
        vector = context.dropout(vector, rate, "head")
        if self.hidden_layer is not None:
            vector = context.dropout(gelu(self.hidden_layer(vector)), rate, "hidden")
        return self.output_layer(vector)

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


def _dense(units: int, name: str) -> tf_keras.layers.Dense:
    return tf_keras.layers.Dense(units, kernel_initializer=glorot_uniform(), dtype="float32", name=name)


_SMALLEST_SHARE = 1e-12  # the share of a label that the training set lacks


class SentenceData(TaskData):
    """Texts or pairs of texts with labels or numbers.

    Args:
        train: None for predictions only.
        splits: the splits to evaluate, by name; predicted only if they have no labels. The metrics of a second split
            have names that end in `_mm`, as Hugging Face names those of MNLI.
        metric_names: the metrics of a split, see `sentence_scores`.
        primary_metric: the metric that selects the best epoch and the best seed.
    """

    def __init__(
        self,
        config: FinetuningConfig,
        tokenizer: BertTokenizer,
        train: TextExamples | None,
        splits: Mapping[str, TextExamples],
        metric_names: Sequence[str] = (),
        primary_metric: str = "",
    ):
        self._task: SentenceConfig = config.task
        self._splits, self._metric_names, self.primary_metric = dict(splits), metric_names, primary_metric
        self.source = (train or next(iter(splits.values()))).source
        self.num_evaluated = sum(map(len, splits.values()))
        if train is not None and config.task.double_unordered and len(train.texts) == 2:
            train = with_swapped_pairs(train)
        length, stride = config.data.max_seq_length, config.task.stride

        def features_of(examples: list[TextExamples]) -> TextFeatures:
            texts = [sum(columns, []) for columns in zip(*(each.texts for each in examples), strict=True)]
            return text_features(texts, self._targets(examples), tokenizer, length, stride)

        of_train = features_of([train]) if train is not None else None
        of_splits = features_of(list(splits.values()))
        self.train = of_train.features if of_train else None
        self.evaluation = of_splits.features
        self.num_truncated = (of_train.num_truncated if of_train else 0), of_splits.num_truncated

    def metrics(self, outputs: Outputs) -> dict[str, float]:
        metrics = {}
        logits = self._example_logits(outputs)
        for number, (examples, rows) in enumerate(zip(self._splits.values(), self._ranges(), strict=True)):
            suffix = "_mm" if number else ""
            scores = sentence_scores(self._metric_names, self._predictions(logits[rows]), self._known(examples))
            metrics |= {f"{name}{suffix}": value for name, value in scores.items()}
        metrics["loss"] = float(np.mean(outputs["loss"], dtype=np.float64))
        return metrics

    def prediction_files(self, outputs: Outputs) -> dict[str, bytes]:
        logits, splits = self._example_logits(outputs), zip(self._splits.items(), self._ranges(), strict=True)
        return {f"predictions_{name}.tsv": self._table(each, logits[rows]).encode() for (name, each), rows in splits}

    def problem(self, outputs: Outputs) -> str | None:
        if self.train is None:
            return None
        kind, (name, gold) = self._task.kind, self._gold(list(self._splits.values()))
        predicted, train_targets = self._predictions(self._example_logits(outputs)), self.train.row_targets[name]
        if kind == "classification" and len(np.unique(predicted)) == 1 and len(np.unique(gold)) > 1:
            return f"all {len(predicted)} predictions of the dev set are {self._task.labels[predicted[0]]!r}"
        of_constant, constant = _constant_predictor(kind, train_targets, gold, len(self._task.labels))
        loss = float(np.mean(outputs["loss"]))
        # A model that has memorised its training set has a high loss, but beats the constant predictor's accuracy.
        is_better = kind != "regression" and np.mean(predicted == gold) > np.mean(constant == gold)
        if not self._task.class_weights and loss >= of_constant and not is_better:
            return f"the dev loss is {loss:.4f}, that of always predicting the training set's mean {of_constant:.4f}"
        return None

    def predicted_labels(self, outputs: Outputs) -> dict[str, list[tuple[str, str]]]:
        """The ids and predicted labels, or numbers, of each split's examples."""
        logits, predicted = self._example_logits(outputs), {}
        for (name, examples), rows in zip(self._splits.items(), self._ranges(), strict=True):
            predicted[name] = list(zip(examples.ids, self._labels_of(logits[rows]), strict=True))
        return predicted

    def _targets(self, examples: list[TextExamples]) -> dict[str, np.ndarray]:
        if any(each.labels is None for each in examples):
            return {}
        return dict([self._gold(examples)])

    def _gold(self, examples: list[TextExamples]) -> tuple[str, np.ndarray]:
        """The name of the target tensor, and the targets of several splits, concatenated."""
        task = self._task
        if task.kind == "regression":
            targets = [scaled_targets(each, task.min_value, task.max_value) for each in examples]
            return "targets", np.concatenate(targets)
        read = multi_label_targets if task.kind == "multi_label" else class_targets
        return "label_ids", np.concatenate([read(each, task.labels) for each in examples])

    def _predictions(self, logits: np.ndarray) -> np.ndarray:
        """The predictions as the metrics take them: [N] or [N, C]."""
        task = self._task
        if task.kind == "regression":
            return task.min_value + logits[:, 0].astype(np.float64) * (task.max_value - task.min_value)
        return (logits > 0).astype(np.int32) if task.kind == "multi_label" else logits.argmax(axis=1).astype(np.int32)

    def _known(self, examples: TextExamples) -> np.ndarray:
        """The true labels, in the same form as `_predictions`."""
        if self._task.kind == "regression":
            return np.asarray(examples.labels, np.float64)
        return self._gold([examples])[1]

    def _example_logits(self, outputs: Outputs) -> np.ndarray:
        """[N, C] float32: the logits of each example; for one with several windows their mean."""
        index = self.evaluation.example_index
        sums = np.zeros((index[-1] + 1, outputs["logits"].shape[1]), np.float64)
        np.add.at(sums, index, outputs["logits"])
        return (sums / np.bincount(index)[:, np.newaxis]).astype(np.float32)

    def _ranges(self) -> list[slice]:
        ends = np.cumsum([0, *map(len, self._splits.values())])
        return [slice(begin, end) for begin, end in zip(ends[:-1], ends[1:], strict=True)]

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        if self._task.kind == "multi_label":
            return 1.0 / (1.0 + np.exp(-logits))
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        return exponentials / exponentials.sum(axis=1, keepdims=True)

    def _labels_of(self, logits: np.ndarray) -> list[str]:
        labels, predictions = self._task.labels, self._predictions(logits)
        if self._task.kind == "regression":
            return list(map(str, predictions.tolist()))  # all digits
        if self._task.kind == "multi_label":
            return [_shown(tuple(labels[i] for i in np.flatnonzero(row))) for row in predictions]
        return [labels[i] for i in predictions]

    def _table(self, examples: TextExamples, logits: np.ndarray) -> str:
        """The predictions as TSV: id, label if it is known, prediction, and the probability of each label."""
        gold = examples.labels
        probabilities = None if self._task.kind == "regression" else self._probabilities(logits)
        stream = io.StringIO()
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        names = () if probabilities is None else [f"probability_{label}" for label in self._task.labels]
        writer.writerow(["id", *(["label"] if gold is not None else []), "prediction", *names])
        for index, prediction in enumerate(self._labels_of(logits)):
            known = [] if gold is None else [_shown(gold[index])]
            shares = [] if probabilities is None else [f"{p:.6f}" for p in probabilities[index]]
            writer.writerow([examples.ids[index], *known, prediction, *shares])
        return stream.getvalue()


def _constant_predictor(kind: str, train: np.ndarray, gold: np.ndarray, num_labels: int) -> tuple[float, np.ndarray]:
    """The best predictor for the training set among those with the same output for every example.

    Args:
        train, gold: the targets of the training set and of the evaluated set.
    Returns: its loss on the evaluated set, and its prediction: a class, 0 or 1 for each label, or a number.
    """
    if kind == "regression":
        mean = train.mean(dtype=np.float64)
        return float(np.mean((gold - mean) ** 2)), mean
    if kind == "classification":
        shares = np.maximum(np.bincount(train, minlength=num_labels) / len(train), _SMALLEST_SHARE)
        return float(-np.mean(np.log(shares[gold]))), shares.argmax()
    shares = np.clip(train.mean(axis=0, dtype=np.float64), _SMALLEST_SHARE, 1 - _SMALLEST_SHARE)
    return float(-np.mean(np.where(gold, np.log(shares), np.log(1 - shares)))), shares > 0.5


def _shown(label) -> str:
    return json.dumps(list(label), ensure_ascii=False) if isinstance(label, tuple) else f"{label}"
