"""The data of a fine-tuning task: splits as features and batches, and the scores of a model's outputs."""

import hashlib
import itertools
import logging
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.data.bucketing import (
    Features,
    bucket_lengths,
    evaluation_order,
    padded_batches,
    padded_lengths,
    training_order,
)
from electra_tf.tasks.base import Evaluation, Stage
from electra_tf.tasks.finetune.benchmarks import BENCHMARKS
from electra_tf.tasks.finetune.config import FinetuningConfig, TaskConfig
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.kind import EncodedExamples, Kind, Outputs, Split
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.scores import Report
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.step import compiles_steps

logger = logging.getLogger(__name__)


class TaskData:
    """The training split and the evaluated splits of a task as features.

    Args:
        train: the training split; None if the data is only predicted.
        evaluated: the evaluated splits, by name; without labels they are only predicted. The metrics of the second
            split have names that end in `_mm`, as Hugging Face names those of MNLI.

    Attributes:
        train, evaluation: the features of the training split, and those of the evaluated `splits`, concatenated.
        primary_metric: the metric that selects the best seed: the paper's, if it reports the task.
        source: the file or folder, for messages.
        notes: how the evaluated splits are scored, see `EncodedExamples`.
    """

    def __init__(
        self,
        config: FinetuningConfig,
        tokenizer: Tokenizer,
        train: Examples | None,
        evaluated: Mapping[str, Examples],
    ):
        self.config, self.kind = config, KINDS[config.task.kind]
        self.train = None if train is None else self._encoded(train, tokenizer, is_training=True).features
        self.splits = [
            Split(name, examples, self._encoded(examples, tokenizer, is_training=False), config)
            for name, examples in evaluated.items()
        ]
        self.evaluation = _joined([split.encoded.features for split in self.splits])
        names = [*_with_suffixes(dict.fromkeys(self.kind.metric_names(split)) for split in self.splits)]
        self.metric_names = (*names, "loss") if self.kind.has_loss else tuple(names)
        benchmark = BENCHMARKS.get(config.name)
        self.primary_metric = benchmark.paper_metric if benchmark else self.kind.primary or names[0]
        self.source = (train or self.splits[0].examples).source
        self.notes = self.splits[0].encoded.notes

    def _encoded(self, examples: Examples, tokenizer: Tokenizer, is_training: bool) -> EncodedExamples:
        """The examples as features; logs how many are truncated."""
        # An example without a label gets that of another one, for a loss that counts nowhere.
        some = next((label for label in examples.labels or () if label is not None), None)
        labels = examples.labels and [some if label is None else label for label in examples.labels]
        encoded = self.kind.encode(replace(examples, labels=labels), self.config, tokenizer, is_training)
        _warn_of_decomposed(examples, tokenizer)
        if count := encoded.num_truncated:
            limit = self.kind.truncation.format(data=self.config.data, task=self.config.task)
            logger.info("%s: %d of %d examples were truncated: %s", examples.source, count, len(examples), limit)
        return encoded

    def evaluated(self, outputs: Outputs, task: TaskConfig | None = None) -> "Predictions":
        """Returns the predictions and scores by a model's outputs, of a task as in `Predictions`; None: as given."""
        splits = self.splits
        if task is not None:
            splits = [replace(split, config=split.config.model_copy(update={"task": task})) for split in splits]
        return Predictions(self.kind, splits, outputs)

    @cached_property
    def data_hash(self) -> str:
        """A hash of the features, and of what else the evaluated examples are scored by."""
        digest = hashlib.sha256()
        for split in self.splits:
            for facts in filter(None, (split.encoded.gold, split.examples.unlabelled)):
                digest.update(repr(facts).encode())
        for features in filter(None, (self.train, self.evaluation)):
            tables = {**features.row_targets, **features.token_targets}
            arrays = [features.input_ids, features.segment_ids, features.row_splits, *map(tables.get, sorted(tables))]
            if features.choice_splits is not None:
                arrays.append(features.choice_splits)
            for array in arrays:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _warn_of_decomposed(examples: Examples, tokenizer: Tokenizer) -> None:
    """Warns of texts whose tokens depend on the Unicode form: a letter with its accent as a character of its own."""
    decomposed = (text for text in _texts_in(examples.inputs) if not unicodedata.is_normalized("NFC", text))
    if some := [*itertools.islice(decomposed, 1000)]:
        composed = [unicodedata.normalize("NFC", text) for text in some]
        forms = (tokenizer.tokenize(tf.constant(texts)).to_list() for texts in (some, composed))
        if unlike := [text for text, *ids in zip(some, *forms, strict=True) if ids[0] != ids[1]]:
            words = (word for word in unlike[0].split() if not unicodedata.is_normalized("NFC", word))
            logger.warning(
                "warning: %s: %.50r is not in Unicode NFC, the form of the builder's text, and its tokens differ from "
                "those in it: give text in NFC",
                examples.source,
                next(words, unlike[0]),
            )


def _texts_in(values: Any) -> Iterator[str]:
    """The texts in nested lists and tuples."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, list | tuple):
        for each in values:
            yield from _texts_in(each)


class Predictions:
    """The predictions for evaluated splits and their scores.

    Args: outputs: the model's, a row for each row of the splits' features, one split after the other.
    """

    def __init__(self, kind: Kind, splits: list[Split], outputs: Outputs):
        self._kind, self._outputs, first = kind, outputs, 0
        self._predicted: list[tuple[Split, Any]] = []
        self._scored: list[tuple[Split, Any]] = []  # for the examples that have a label
        for split in splits:
            rows = slice(first, first := first + split.encoded.features.num_rows)
            predictions = kind.predict(split, {name: values[rows] for name, values in outputs.items()})
            self._predicted.append((split, predictions))
            if unlabelled := split.examples.unlabelled:
                split = replace(split, examples=split.examples.labelled())
                predictions = tf.nest.map_structure(lambda of, rows=unlabelled: np.delete(of, rows, 0), predictions)
            self._scored.append((split, predictions))

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The metrics of the splits, in the order of `TaskData.metric_names`."""
        metrics = _with_suffixes(self._kind.scores(*each) for each in self._scored)
        if self._kind.has_loss:
            splits = [split for split, _ in self._predicted]
            index_of = [(split.encoded.features.example_index, split.examples.unlabelled) for split in splits]
            is_scored = np.concatenate([~np.isin(*each) for each in index_of])
            metrics["loss"] = float(np.mean(self._outputs["loss"][is_scored], dtype=np.float64))
        return metrics

    @cached_property
    def reports(self) -> dict[str, Report]:
        """The scores of each class, by the name of the split; empty for tasks without classes."""
        reports = {split.name: self._kind.report(split, predictions) for split, predictions in self._scored}
        return {name: report for name, report in reports.items() if report is not None}

    @property
    def alarm(self) -> str | None:
        """A sign that the model has learnt nothing, as a clause for a warning; None without such a sign."""
        return next(filter(None, (self._kind.alarm(*each) for each in self._scored)), None)

    @property
    def task(self) -> TaskConfig:
        """The settings of the task, with those that these splits choose for other text."""
        return self._kind.with_chosen(self._predicted[0][0].task, self.metrics)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The prediction for each example, by the names of columns."""
        return [row for split, predictions in self._predicted for row in self._kind.rows(split, predictions)]

    @property
    def table(self) -> bytes:
        """The content of a file with the rows."""
        return self._kind.content_of(self.rows)

    def files(self) -> dict[str, bytes]:
        """Returns the files with the predictions for the splits: contents by name."""
        found = (self._kind.files(split, predictions) for split, predictions in self._predicted)
        return {name: content for files in found for name, content in files.items()}


def _with_suffixes(of_splits: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The values of all splits; the names of those after the first one end in `_mm`."""
    return {
        f"{name}{'_mm' if number else ''}": value
        for number, values in enumerate(of_splits)
        for name, value in values.items()
    }


def _joined(parts: list[Features]) -> Features:
    if len(parts) == 1:
        return parts[0]
    assert all(part.choice_splits is None and not part.token_targets for part in parts)
    lengths = np.concatenate([np.diff(part.row_splits) for part in parts])
    examples = np.cumsum([0, *(part.example_index[-1] + 1 for part in parts)])
    return Features(
        np.concatenate([part.input_ids for part in parts]),
        np.concatenate([part.segment_ids for part in parts]),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate(
            [part.example_index + first for part, first in zip(parts, examples, strict=False)], dtype=np.int32
        ),
        {name: np.concatenate([part.row_targets[name] for part in parts]) for name in parts[0].row_targets},
    )


class FinetuningStage(Stage):
    """The batches of one seed. Args: strategy: decides how many lengths they may have."""

    name, first_step = "", 0

    def __init__(
        self,
        config: FinetuningConfig,
        data: TaskData,
        tokenizer: Tokenizer,
        strategy: tf.distribute.Strategy,
    ):
        self.config, self.data = config, data
        self.last_step, self.batch_size = config.train.num_steps, config.train.batch_size
        micro_batch_size = self.batch_size // config.train.gradient_accumulation_steps
        self.evaluation_batch_size = config.evaluation.batch_size or micro_batch_size
        longest = self.max_seq_length = config.data.max_seq_length
        self.evaluation_order = evaluation_order(data.evaluation, self.evaluation_batch_size)
        self.num_evaluation_batches = len(self.evaluation_order)
        self.source, self.data_hash = data.source, data.data_hash
        self.tokenizer = StoredTokenizer(tokenizer.vocabulary.content, tokenizer.settings)
        is_compiled = compiles_steps(config.train.xla, strategy)
        is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        self.lengths = (longest,) if is_tpu else bucket_lengths(longest, is_compiled)
        # If inference compiles nothing for a length, each batch is padded to its own longest row.
        self.evaluation_lengths = self.lengths if is_compiled else range(1, longest + 1)

        if data.train is not None:
            # [num_steps, B]: the rows of each training step.
            self.training_order = training_order(data.train, self.batch_size, config.train.seed, self.last_step)
            lengths = padded_lengths(data.train, self.training_order, self.lengths)
            self.mean_seq_length = round(np.mean(lengths) * data.train.num_choices)

    def training_batches(self, first_step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        assert self.data.train is not None
        return padded_batches(self.data.train, self.training_order[first_step:], self.lengths, context).repeat()

    def evaluation_batches(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return padded_batches(self.data.evaluation, self.evaluation_order, self.evaluation_lengths, context)

    def scored(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with predictions in place of the outputs, and their metrics."""
        predictions = self.data.evaluated(self.in_row_order(evaluation.outputs))
        return Evaluation(predictions.metrics, predictions=predictions)

    def in_row_order(self, outputs: Mapping[str, list[npt.NDArray[Any]]]) -> Outputs:
        """Joins the outputs of all batches, in the order of the rows; outputs for tokens are padded with zeros."""
        ordered = {}
        for name, parts in outputs.items():
            longest = np.max([part.shape[1:] for part in parts], axis=0).astype(int)
            ordered[name] = np.zeros((self.data.evaluation.num_rows, *longest), parts[0].dtype)
            for rows, part in zip(outputs["row_index"], parts, strict=True):
                within = tuple(map(slice, (None, *part.shape[1:])))
                ordered[name][within][rows[rows >= 0]] = part[rows >= 0]
        return ordered
