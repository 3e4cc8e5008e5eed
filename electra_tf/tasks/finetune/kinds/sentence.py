"""What classification with one label or several and regression share: a text or a pair -> labels, or a number."""

import functools
import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from pydantic import Field, model_validator

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.config.settings import Count, DropoutRate, Labels, MayChange, Positive, Real, Settings
from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, read_glue_texts
from electra_tf.tasks.finetune.examples import DataFile, Examples, NewColumns, read_texts, with_swapped_pairs
from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.kind import EncodedExamples, Kind, Outputs, Split
from electra_tf.tasks.finetune.labels import class_weights, label_set
from electra_tf.tasks.finetune.scores import sentence_scores
from electra_tf.tasks.finetune.settings import FinetuningRunConfig
from electra_tf.tasks.finetune.task import Head, LogitsTask
from electra_tf.tasks.finetune.transformers_head import CLS_LAYERS, FoundHead, TransformersHead, Weights, WrittenHead
from electra_tf.tasks.served import Served, ServedModel, ServedOutputs, ServingShapes, in_blocks
from electra_tf.text.packing import Rows, cut_pair, windows
from electra_tf.text.tokenizer import Tokenizer

# The problem types of transformers' configuration.
ONE_LABEL, SEVERAL_LABELS, NUMBER = "single_label_classification", "multi_label_classification", "regression"


class SentenceConfig(Settings):
    """Predicts one label, several labels or a number for a text or a pair of texts."""

    kind: Literal["classification", "multi_label", "regression"]
    # In the order of their ids; empty for regression. By default those of the training file, sorted.
    labels: Labels = ()
    # One or two names, which --predict looks up in its input too.
    text_columns: Annotated[tuple[str, ...], Field(max_length=2)] = ()
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

    @model_validator(mode="after")
    def _settings_are_consistent(self) -> "SentenceConfig":
        if self.stride is not None and len(self.text_columns) == 2:
            raise ValueError(f"stride is {self.stride}, but only single texts have windows; remove it for pairs")
        weights = self.class_weights
        if isinstance(weights, tuple) and weights and self.labels and len(weights) != len(self.labels):
            raise ValueError(
                f"class_weights has {len(weights)} numbers, expected one for each of {list_briefly(self.labels)}"
            )
        return self


class SentenceTask(LogitsTask):
    """Predicts from a text or a pair of texts: logits [B, C] float32; for regression [B, 1], the scaled number.

    The head is the authors' (dropout and a dense layer), or that of ElectraForSequenceClassification, which has another
    dense layer and GELU before it, of BertForSequenceClassification, which has tanh instead, or of
    ModernBertForSequenceClassification, which has GELU and a LayerNorm.
    The loss is the cross-entropy, the mean of the labels' binary cross-entropies, or the squared error.
    Source: finetune/classification/classification_tasks.py of the authors' code.
    """

    reads_cls = True
    verb = "classify"  # the name of the served function

    def label_weights(self) -> tf.Tensor:
        """The weight of each label in the loss: [C] float32."""
        task = self.config.task
        return tf.constant(task.class_weights or (1.0,) * len(task.labels), tf.float32)

    def all_labels(self, logits: tf.Tensor) -> tf.Tensor:
        """All labels for each example: [N, C] string."""
        return tf.tile(tf.constant(self.config.task.labels)[tf.newaxis], [tf.shape(logits)[0], 1])

    def predictions(self, logits: tf.Tensor) -> ServedOutputs:
        """Returns what a served model makes of [N, C] logits."""
        raise NotImplementedError


class ServedSentences(ServedModel):
    """Serves a model for texts or pairs of texts: `classify` (one label or several) or `regress`, and `embed`.

    If the model was fine-tuned with a stride, a long text is cut into windows, whose logits are averaged. Without a
    stride it is truncated. `--predict` does the same.
    """

    def __init__(self, task: SentenceTask, tokenizer: Tokenizer, shapes: ServingShapes):
        self._config: SentenceConfig = task.config.task
        self.default = task.verb
        self._is_pair = len(self._config.text_columns) == 2
        self.has_windows = self._config.stride is not None
        super().__init__(task, tokenizer, shapes)

    @property
    def least_length(self) -> int:
        return 5 if self._is_pair else 2 + (self._config.stride or 1)  # with [CLS] and [SEP]

    def served(self) -> dict[str, Served]:
        predict = self.for_texts(self._predicted)
        if self._is_pair:
            predict = self._predict_pairs, self.texts("text", "text_pair")
        elif self.has_windows:
            predict = self._predict_windows, self.texts("text")
        return {self.default: predict, f"{self.default}_ids": self.for_ids(self._predicted), **super().served()}

    def _predict_windows(self, text: tf.Tensor) -> ServedOutputs:
        """The predictions for texts, as of `for_texts`."""
        task, stride = self.get_task(), self._config.stride
        assert stride is not None
        tokens, is_cut = self.tokenize(text, is_windowed=True)
        parts, of_text = windows(tokens, self.shapes.max_seq_length - 2, stride)
        shapes = {"logits": ([task.num_outputs], tf.float32)}
        logits = in_blocks(lambda rows: {"logits": task(rows._asdict())}, self.pack([parts]), shapes)["logits"]
        means = tf.math.unsorted_segment_mean(tf.cast(logits, tf.float64), of_text, tf.size(text))
        return {**task.predictions(tf.cast(means, tf.float32)), "truncated": is_cut}

    def _predict_pairs(self, text: tf.Tensor, text_pair: tf.Tensor) -> ServedOutputs:
        """The predictions for pairs of texts, [N] string, UTF-8.

        Returns: the outputs of `_predicted`; `truncated` [N] bool, whether one of the texts was cut.
        """
        # One call for both inputs, so that the graph has the tokenizer's operations once.
        (tokens, is_cut), num_pairs = self.tokenize(self.pairs(text, text_pair)), tf.size(text)
        whole = tokens[:num_pairs], tokens[num_pairs:]
        parts = cut_pair(*whole, self.shapes.max_seq_length - 3)
        lost = [part.row_lengths() < each.row_lengths() for part, each in zip(parts, whole, strict=True)]
        lost += [is_cut[:num_pairs], is_cut[num_pairs:]]
        return {**self._predicted(self.pack(parts)), "truncated": tf.reduce_any(lost, axis=0)}

    def _predicted(self, rows: Rows) -> ServedOutputs:
        """Returns: for classification:
            label: [N] string, the likeliest.        labels: [N, C] string, all labels.
            probabilities: [N, C] float32, in the order of `labels`; they sum to 1.
        For several labels `predicted` [N, C] bool in place of `label`, and independent probabilities. For regression:
            value: [N] float32, in the unit of the training file.
        """
        task = self.get_task()
        return task.predictions(task(rows._asdict()))


class SentenceHead(TransformersHead):
    """The head of a class for sequences: of several kinds, which config.json tells apart.

    Args:
        problem_type: of the kind, in config.json.
        activation: what a cross-encoder of sentence-transformers makes of its logits; None for its default.
        notes: facts that a user of the class needs.
    """

    ending, description, pipeline = "ForSequenceClassification", "that labels texts.", "text-classification"
    layers = {"Electra": {"classifier.dense": ("hidden",), "classifier.out_proj": ("dense",)}, **CLS_LAYERS}
    noted = ("text_columns", "label_column", "stride")

    def __init__(self, problem_type: str, activation: str | None = None, notes: tuple[str, ...] = ()):
        self.problem_type, self.activation, self.notes = problem_type, activation, notes

    def written(self, config: FinetuningRunConfig, weights: Weights, family: str) -> WrittenHead | str:
        task, notes = config.task, self.notes
        entries = {"problem_type": self.problem_type, "classifier_dropout": task.dropout}
        if self.activation is not None:
            entries["sentence_transformers"] = {"activation_fn": self.activation}
        labels, scale, offset = task.labels, 1.0, 0.0
        if self.problem_type == NUMBER:  # transformers' logit is in the unit of the data, not in [0, 1]
            labels, scale, offset = (config.name,), task.max_value - task.min_value, task.min_value
            trained = f"{task.min_value:g} to {task.max_value:g}"
            notes += (f"The one logit is the predicted number in the unit of the data, {trained} in training.",)
        kernel, bias = weights["dense/kernel"], weights["dense/bias"]
        if task.head == "huggingface":
            weights = {**weights, "dense/kernel": kernel * scale, "dense/bias": bias * scale + offset}
            return WrittenHead(self.layers[family], weights, labels, entries, notes)
        hidden_size, num_labels = kernel.shape
        if 2 * num_labels > hidden_size:
            return (
                f"transformers' head of {hidden_size} hidden units cannot compute a linear layer of {num_labels} "
                "labels: this is the encoder alone. With task.head huggingface, fine-tuning trains transformers' head."
            )
        notes += (
            "The head was trained as one linear layer. The two layers of ElectraForSequenceClassification have weights "
            "that compute the same; to fine-tune further, start from the pre-trained encoder.",
        )
        pairs = linear_as_pairs(kernel, bias, scale, offset)
        return WrittenHead(self.layers[family], pairs, labels, {**entries, "classifier_dropout": 0.0}, notes)

    def settings(self, found: FoundHead) -> dict[str, Any] | None:
        """Of the kind that computes what transformers' pipeline or, by its activation, a cross-encoder does.

        One number is a probability, its sigmoid, unless it is stated to be the result.
        """
        config = found.config
        problem = str(config.get("problem_type") or ONE_LABEL)
        stated = (config.get("sentence_transformers") or {}).get("activation_fn")
        stated = str(stated or config.get("sbert_ce_default_activation_function") or "")  # the second: older versions
        activation = stated.rsplit(".", 1)[-1]  # of torch.nn.modules.activation.Sigmoid
        if activation not in ("", "Identity", "Sigmoid", "Softmax"):
            raise UserError(
                f"{found.path}: the activation is {stated!r:.80}, expected Identity, Sigmoid or Softmax of torch"
            )
        if activation == "Sigmoid":
            problem = SEVERAL_LABELS
        elif found.num_outputs == 1:
            problem = NUMBER if activation == "Identity" or problem == NUMBER else SEVERAL_LABELS
        if problem != self.problem_type:
            return None
        # A number is predicted in the unit of the data, so the range of targets is left at its default, 0 to 1.
        return {"labels": [] if self.problem_type == NUMBER else found.labels, "dropout": found.dropout}


def linear_as_pairs(
    kernel: npt.NDArray[np.float32], bias: npt.NDArray[np.float32], scale: float, offset: float
) -> dict[str, npt.NDArray[np.float32]]:
    """One linear layer as two with GELU between them. They compute scale * z + offset with z = x kernel + bias.

    The first layer computes z and -z for each label; GELU(z) - GELU(-z) = z. The other hidden units stay 0. The error
    is a few roundings of z, for any x.

    Args: kernel, bias: [H, C] with 2 C <= H, and [C].
    Returns: `hidden/kernel` [H, H], `hidden/bias` [H], `dense/kernel` [H, C] and `dense/bias` [C].
    """
    hidden_size, num_labels = kernel.shape
    hidden, hidden_bias = np.zeros([hidden_size, hidden_size], np.float32), np.zeros(hidden_size, np.float32)
    output = np.zeros([hidden_size, num_labels], np.float32)
    for unit, sign in ((0, 1.0), (1, -1.0)):
        units = slice(unit, 2 * num_labels, 2)
        hidden[:, units], hidden_bias[units] = sign * kernel, sign * bias
        output[units] = sign * scale * np.eye(num_labels)
    of_output = {"dense/kernel": output, "dense/bias": np.full(num_labels, offset, np.float32)}
    return {"hidden/kernel": hidden, "hidden/bias": hidden_bias, **of_output}


class Sentence(Kind):
    """A kind of task whose model is a `SentenceTask`. P is the logits of the examples, [N, C] float32."""

    settings, served, text_columns = SentenceConfig, ServedSentences, ("text",)
    metrics: tuple[str, ...]  # on a user's own data
    has_one_label = False  # the probabilities of the labels sum to 1
    labels_in: Callable[..., list[Any]]  # of a table, in a column; `known`: the labels of the task

    @abstractmethod
    def targets(self, examples: Examples, task: SentenceConfig) -> npt.NDArray[Any]:
        """Returns the only target tensor of the examples: [N, ...]."""

    def derive(self, train: Examples, task: Any) -> dict[str, Any]:
        labels, weights = label_set(train, task.labels), task.class_weights
        derived: dict[str, Any] = {"labels": list(labels)}
        if weights:
            derived["class_weights"] = class_weights(train.gold, labels, weights).tolist()
        return derived

    @abstractmethod
    def decisions(self, logits: npt.NDArray[np.float32], task: SentenceConfig) -> npt.NDArray[Any]:
        """Returns predictions for `sentence_scores`."""

    @abstractmethod
    def named(self, logits: npt.NDArray[np.float32], task: SentenceConfig) -> list[Any]:
        """Returns the label, labels or number of each example."""

    def read(self, path: DataFile, config: FinetuningRunConfig, new: NewColumns | None = None) -> Examples:
        task, benchmark = config.task, GLUE_TASKS.get(config.name)
        is_of_glue = isinstance(path, Table) or os.fspath(path).lower().endswith((".tsv", ".parquet"))
        if benchmark and new and is_of_glue:
            return read_glue_texts(benchmark, path, *new)
        return read_texts(path, task, new, functools.partial(self.labels_in, known=task.labels))

    def encode(
        self, examples: Examples, config: FinetuningRunConfig, tokenizer: Tokenizer, is_training: bool
    ) -> EncodedExamples:
        """Returns texts as features, in training both orders of a pair if the task has `double_unordered`."""
        task = config.task
        orders = 2 if is_training and task.double_unordered and len(examples.inputs) == 2 else 1
        if orders == 2:
            examples = with_swapped_pairs(examples)
        (name,) = self.model.target_tensors
        targets = {} if examples.labels is None else {name: self.targets(examples, task)}
        encoded = text_features(examples.inputs, targets, tokenizer, config.data.max_seq_length, task.stride)
        return replace(encoded, num_truncated=encoded.num_truncated // orders)  # both orders of a pair are, or none

    def metric_names(self, split: Split) -> tuple[str, ...]:
        benchmark = GLUE_TASKS.get(split.config.name)
        return self.metrics if benchmark is None else benchmark.metrics

    def predict(self, split: Split, outputs: Outputs) -> npt.NDArray[np.float32]:
        """Returns the logits of each example, the mean over its windows."""
        index = split.encoded.features.example_index
        sums = np.zeros((index[-1] + 1, outputs["logits"].shape[1]), np.float64)
        np.add.at(sums, index, outputs["logits"])
        return (sums / np.bincount(index)[:, np.newaxis]).astype(np.float32)

    def scores(self, split: Split, logits: npt.NDArray[np.float32]) -> dict[str, float]:
        gold = self.targets(split.examples, split.task)
        return sentence_scores(self.metric_names(split), self.decisions(logits, split.task), gold)

    def rows(self, split: Split, logits: npt.NDArray[np.float32]) -> list[dict[str, Any]]:
        """Returns for each example id, label (if known), prediction, and the probability of each label."""
        from scipy import special  # here, because scoring libraries take long to import

        task, names = split.task, [f"probability_{label}" for label in split.task.labels]
        shares = special.softmax(logits, axis=1) if self.has_one_label else special.expit(logits)
        shares = shares[:, : len(names)].tolist()  # a regression has none
        predictions = zip(self.named(logits, task), shares, strict=True)
        return [
            {**split.examples.known(index), "prediction": prediction, **dict(zip(names, of_labels, strict=True))}
            for index, (prediction, of_labels) in enumerate(predictions)
        ]

    def alarm(self, split: Split, logits: npt.NDArray[np.float32]) -> str | None:
        predicted = list(map(str, self.named(logits, split.task)))
        if len(set(predicted)) == 1 and len(set(split.examples.gold)) > 1:
            return f"all {len(predicted)} predictions of the dev set are {predicted[0]}"
        return None
