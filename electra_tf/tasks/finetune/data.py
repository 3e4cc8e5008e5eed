"""The data of a fine-tuning task: splits as features, and metrics and predictions computed from a model's outputs."""

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import tensorflow as tf

from electra_tf.data.bucketing import (
    Features,
    batches,
    bucket_lengths,
    evaluation_order,
    padded_lengths,
    padding_share,
    training_order,
)
from electra_tf.tasks.base import InputStage
from electra_tf.tasks.finetune.class_report import Report
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.text_features import TextFeatures
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.step import compiles_steps

Outputs = dict[str, np.ndarray]  # by name [N, ...], one row for each row of the evaluated features


class TaskData(ABC):
    """The training split and the evaluated splits of a task. Each kind of task has a subclass.

    Attributes:
        train: the training split; None if the data is only predicted.
        evaluation: the evaluated splits, concatenated.
        has_labels: False if the evaluated splits can only be predicted.
        primary_metric: the metric that selects the best seed: the paper's, if it reports the task.
        source: the file or folder, for messages.
        num_evaluated: the number of examples in the evaluated splits.
        num_truncated: the numbers of training and of evaluated examples that lost tokens because they were too long.
    """

    train: Features | None
    evaluation: Features
    has_labels: bool = True
    primary_metric: str
    source: str
    num_evaluated: int
    num_truncated: tuple[int, int] = (0, 0)

    def set_features(self, train: TextFeatures | None, evaluated: TextFeatures) -> None:
        self.train, self.evaluation = train.features if train else None, evaluated.features
        self.num_truncated = train.num_truncated if train else 0, evaluated.num_truncated

    @property
    @abstractmethod
    def metric_names(self) -> tuple[str, ...]:
        """The names of `metrics`, known before there are outputs."""

    @abstractmethod
    def metrics(self, outputs: Outputs) -> dict[str, float]:
        """Returns the metrics of the evaluated splits."""

    @abstractmethod
    def prediction_files(self, outputs: Outputs) -> dict[str, bytes]:
        """Returns the files with the predictions for the evaluated splits: contents by name."""

    def prediction_table(self, outputs: Outputs) -> bytes:
        """Returns the content of the file that `--predict` writes; there must be one evaluated split."""
        (content,) = self.prediction_files(outputs).values()
        return content

    def reports(self, outputs: Outputs) -> dict[str, Report]:
        """Returns the scores of each class, by the name of the evaluated split; empty for tasks without classes."""
        return {}

    def adopt_choices(self, directory: str) -> None:
        """Takes over what a seed has chosen on its dev set, from the seed's directory; called before test scores."""
        return None

    def problem(self, outputs: Outputs) -> str | None:
        """Returns a sign that the model has learnt nothing, as a clause for a warning; None without such a sign."""
        return None

    def gold(self) -> object:
        """Returns what the evaluated examples are scored by, beside their features, as values with a fixed `repr`."""
        return None

    @cached_property
    def identity(self) -> str:
        """A hash of the features and of `gold`."""
        digest = hashlib.sha256()
        if (gold := self.gold()) is not None:
            digest.update(repr(gold).encode())
        for features in filter(None, (self.train, self.evaluation)):
            tables = {**features.row_targets, **features.token_targets}
            arrays = [features.input_ids, features.segment_ids, features.row_splits, *map(tables.get, sorted(tables))]
            if features.choice_splits is not None:
                arrays.append(features.choice_splits)
            for array in arrays:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


class FinetuningStage(InputStage):
    """The batches of one seed.

    Args:
        tokenizer: written into the run's directory, see `InputStage`.
        strategy: where the batches are computed: it decides how many lengths they may have.

    Attributes:
        last_outputs: the outputs of the last evaluation; None before the first.
    """

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
        longest = config.data.max_seq_length
        self.evaluation_order = evaluation_order(data.evaluation, self.evaluation_batch_size)
        self.num_evaluation_batches = len(self.evaluation_order)
        self.source, self.identity = data.source, data.identity
        self.tokenizer = StoredTokenizer(tokenizer.vocabulary.content, tokenizer.settings)
        self.is_compiled = compiles_steps(config.train.xla, strategy)
        is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        self.lengths = (longest,) if is_tpu else bucket_lengths(longest, self.is_compiled)
        # If inference compiles nothing for a length, each batch is padded to its own longest row.
        self.evaluation_lengths = self.lengths if self.is_compiled else range(1, longest + 1)
        self.last_outputs: Outputs | None = None

    def training_batches(self, first_step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        order = self.training_order
        return batches(self.data.train, order[first_step:], self.lengths, context).repeat()

    def evaluation_batches(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return batches(self.data.evaluation, self.evaluation_order, self.evaluation_lengths, context)

    def output_metrics(self, outputs: dict[str, list[np.ndarray]]) -> dict[str, float]:
        self.last_outputs = self.in_row_order(outputs)
        return self.data.metrics(self.last_outputs)

    def in_row_order(self, outputs: dict[str, list[np.ndarray]]) -> Outputs:
        """Joins the outputs of all batches, in the order of the rows; outputs for tokens are padded with zeros."""
        rows = np.concatenate(outputs["row_index"])
        ordered = {}
        for name, parts in outputs.items():
            longest = np.max([part.shape[1:] for part in parts], axis=0).astype(int)
            ordered[name] = np.zeros((self.data.evaluation.num_rows, *longest), parts[0].dtype)
            values = np.concatenate([_padded(part, longest) for part in parts])
            ordered[name][rows[rows >= 0]] = values[rows >= 0]
        return ordered

    @cached_property
    def max_seq_length(self) -> int:
        """The mean number of tokens in a row of the training batches, padding included."""
        lengths = padded_lengths(self.data.train, self.training_order, self.lengths)
        return round(np.mean(lengths) * self.data.train.num_choices)

    @cached_property
    def training_order(self) -> np.ndarray:
        """[num_steps, B] int32: the rows of each training step."""
        return training_order(self.data.train, self.batch_size, self.config.train.seed, self.last_step)

    def describe(self) -> str:
        """Returns a line about lengths, padding and truncation, for the log."""
        share = padding_share(self.data.train, self.training_order, self.lengths)
        longest, lengths = self.lengths[-1], np.diff(self.data.train.sequence_splits)
        to_longest = padding_share(self.data.train, self.training_order, (longest,))
        line = (
            f"{len(lengths)} sequences of {np.mean(lengths):.1f} tokens on average; "
            f"{share:.0%} of the computed tokens are padding ({to_longest:.0%} if all were padded to {longest})"
        )
        if self.is_compiled:
            line += f"; XLA compiles the step for {len(self.lengths)} lengths, each when it first occurs"
        if any(self.data.num_truncated):
            line += "; {} training and {} evaluated examples were truncated to {} tokens".format(
                *self.data.num_truncated, self.config.data.max_seq_length
            )
        return line


def _padded(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Pads [B, ...] with zeros, so that the axes after the first have these sizes."""
    return np.pad(values, [(0, 0), *((0, size - now) for size, now in zip(sizes, values.shape[1:], strict=True))])
