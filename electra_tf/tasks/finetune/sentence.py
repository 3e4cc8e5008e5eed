"""Classification with one label or several, and regression: the model, its data and its predictions."""

import json
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from electra_tf.data.batch import Batch
from electra_tf.data.tables import tsv
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.finetune.class_report import Report, class_report, multi_label_report
from electra_tf.tasks.finetune.config import FinetuningConfig, SentenceConfig
from electra_tf.tasks.finetune.data import Outputs, TaskData
from electra_tf.tasks.finetune.glue import GLUE_TASKS
from electra_tf.tasks.finetune.metrics import OWN_METRICS, sentence_scores
from electra_tf.tasks.finetune.task import FinetuningTask, head_layer
from electra_tf.tasks.finetune.text_examples import (
    TextExamples,
    class_targets,
    multi_label_targets,
    scaled_targets,
    with_swapped_pairs,
)
from electra_tf.tasks.finetune.text_features import TextFeatures, text_features
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


class SentenceData(TaskData):
    """Texts or pairs of texts with labels or numbers.

    Args:
        train: the training split; None if the data is only predicted.
        splits: the evaluated splits, by name; without labels they are only predicted. The metrics of the second split
            have names that end in `_mm`, as Hugging Face names those of MNLI.
    """

    def __init__(
        self,
        config: FinetuningConfig,
        tokenizer: Tokenizer,
        train: TextExamples | None,
        splits: Mapping[str, TextExamples],
    ):
        self._task: SentenceConfig = config.task
        own = OWN_METRICS[config.task.kind]
        metrics_of = {name: (glue.metrics, glue.paper_metric) for name, glue in GLUE_TASKS.items()}
        self._splits = dict(splits)
        self._metric_names, self.primary_metric = metrics_of.get(config.name, (own, own[0]))
        self.source = (train or next(iter(splits.values()))).source
        self.num_evaluated = sum(map(len, splits.values()))
        self.has_labels = all(each.labels is not None for each in splits.values())
        if train is not None and config.task.double_unordered and len(train.texts) == 2:
            train = with_swapped_pairs(train)
        length, stride = config.data.max_seq_length, config.task.stride

        def features_of(examples: list[TextExamples]) -> TextFeatures:
            texts = [sum(columns, []) for columns in zip(*(each.texts for each in examples), strict=True)]
            has_labels = all(each.labels is not None for each in examples)
            targets = dict([self._gold(examples)]) if has_labels else {}
            return text_features(texts, targets, tokenizer, length, stride)

        of_train = features_of([train]) if train is not None else None
        self.set_features(of_train, features_of(list(splits.values())))

    @property
    def metric_names(self) -> tuple[str, ...]:
        suffixes = ("", "_mm")[: len(self._splits)]
        return *(f"{name}{suffix}" for suffix in suffixes for name in self._metric_names), "loss"

    def metrics(self, outputs: Outputs) -> dict[str, float]:
        metrics, is_regression = {}, self._task.kind == "regression"
        for number, (_, examples, logits) in enumerate(self._split_logits(outputs)):
            targets = np.asarray(examples.labels, np.float64) if is_regression else self._gold([examples])[1]
            scores = sentence_scores(self._metric_names, self._predictions(logits), targets)
            metrics |= {f"{name}{'_mm' if number else ''}": value for name, value in scores.items()}
        metrics["loss"] = float(np.mean(outputs["loss"], dtype=np.float64))
        return metrics

    def prediction_files(self, outputs: Outputs) -> dict[str, bytes]:
        splits = self._split_logits(outputs)
        return {f"predictions_{name}.tsv": self._table(examples, logits) for name, examples, logits in splits}

    def reports(self, outputs: Outputs) -> dict[str, Report]:
        kind, labels, reports = self._task.kind, self._task.labels, {}
        for name, examples, logits in self._split_logits(outputs):
            if kind == "classification":
                reports[name] = class_report(labels, self._labels_of(logits), examples.labels)
            elif kind == "multi_label":
                reports[name] = multi_label_report(labels, self._predictions(logits), self._gold([examples])[1])
        return reports

    def problem(self, outputs: Outputs) -> str | None:
        if self.train is None:
            return None
        kind, (name, gold) = self._task.kind, self._gold(list(self._splits.values()))
        predicted, train_targets = self._predictions(self._example_logits(outputs)), self.train.row_targets[name]
        if kind == "classification" and len(np.unique(predicted)) == 1 and len(np.unique(gold)) > 1:
            return f"all {len(predicted)} predictions of the dev set are {self._task.labels[predicted[0]]!r}"
        of_constant, constant = _constant_predictor(kind, train_targets, gold, len(self._task.labels))
        loss = float(np.mean(outputs["loss"]))
        # A model that has memorised its training set has a high loss, but a better accuracy than the constant one.
        is_better = kind != "regression" and np.mean(predicted == gold) > np.mean(constant == gold)
        if not self._task.class_weights and loss >= of_constant and not is_better:
            return f"the dev loss is {loss:.4f}; the best constant prediction has {of_constant:.4f}"
        return None

    def predicted_labels(self, outputs: Outputs) -> list[tuple[str, str]]:
        """Returns the id and the predicted label (or number) of each example; there must be one split."""
        ((_, examples, logits),) = self._split_logits(outputs)
        return list(zip(examples.ids, self._labels_of(logits), strict=True))

    def _gold(self, examples: list[TextExamples]) -> tuple[str, np.ndarray]:
        """The name of the target tensor, and the targets of all examples."""
        task = self._task
        if task.kind == "regression":
            targets = [scaled_targets(each, task.min_value, task.max_value) for each in examples]
            return "targets", np.concatenate(targets)
        read = multi_label_targets if task.kind == "multi_label" else class_targets
        return "label_ids", np.concatenate([read(each, task.labels) for each in examples])

    def _predictions(self, logits: np.ndarray) -> np.ndarray:
        """[N, C] logits -> predictions for `sentence_scores`."""
        task = self._task
        if task.kind == "regression":
            return task.min_value + logits[:, 0].astype(np.float64) * (task.max_value - task.min_value)
        return (logits > 0).astype(np.int32) if task.kind == "multi_label" else logits.argmax(axis=1).astype(np.int32)

    def _example_logits(self, outputs: Outputs) -> np.ndarray:
        """[N, C] float32: the logits of each example, the mean over its windows."""
        index = self.evaluation.example_index
        sums = np.zeros((index[-1] + 1, outputs["logits"].shape[1]), np.float64)
        np.add.at(sums, index, outputs["logits"])
        return (sums / np.bincount(index)[:, np.newaxis]).astype(np.float32)

    def _split_logits(self, outputs: Outputs) -> Iterator[tuple[str, TextExamples, np.ndarray]]:
        """Yields the name of each split, its examples and their logits [N, C]."""
        logits, first = self._example_logits(outputs), 0
        for name, examples in self._splits.items():
            yield name, examples, logits[first : first + len(examples)]
            first += len(examples)

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        from scipy import special  # here, because scoring libraries take long to import

        return special.expit(logits) if self._task.kind == "multi_label" else special.softmax(logits, axis=1)

    def _labels_of(self, logits: np.ndarray) -> list[str]:
        labels, predictions = self._task.labels, self._predictions(logits)
        if self._task.kind == "regression":
            return list(map(str, predictions.tolist()))
        if self._task.kind == "multi_label":
            return [_shown(tuple(labels[i] for i in np.flatnonzero(row))) for row in predictions]
        return [labels[i] for i in predictions]

    def _table(self, examples: TextExamples, logits: np.ndarray) -> bytes:
        """The predictions as TSV: id, label (if known), prediction, and the probability of each label."""
        gold = examples.labels
        probabilities = None if self._task.kind == "regression" else self._probabilities(logits)
        names = () if probabilities is None else [f"probability_{label}" for label in self._task.labels]
        table = [["id", *(["label"] if gold is not None else []), "prediction", *names]]
        for index, prediction in enumerate(self._labels_of(logits)):
            known = [] if gold is None else [_shown(gold[index])]
            shares = [] if probabilities is None else [f"{p:.6f}" for p in probabilities[index]]
            table.append([examples.ids[index], *known, prediction, *shares])
        return tsv(table)


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


def _shown(label) -> str:
    return json.dumps(list(label), ensure_ascii=False) if isinstance(label, tuple) else f"{label}"
