"""The interface of a kind of fine-tuning task, and what its functions take and return."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy.typing as npt

from electra_tf.config.settings import Settings
from electra_tf.data.bucketing import Features
from electra_tf.data.tables import tsv
from electra_tf.tasks.finetune.examples import DataFile, Examples, NewColumns
from electra_tf.tasks.finetune.scores import Report
from electra_tf.tasks.finetune.settings import FinetuningRunConfig
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.tasks.finetune.transformers_head import TransformersHead
from electra_tf.tasks.served import ServedModel
from electra_tf.text.tokenizer import Tokenizer

SettingsOfKind = TypeVar("SettingsOfKind", bound=Settings)
Outputs = dict[str, npt.NDArray[Any]]  # by name [N, ...], one row for each row of features


@dataclass(frozen=True)
class EncodedExamples:
    """Examples as model input."""

    features: Features
    num_truncated: int = 0  # the examples that lost tokens because they were too long
    gold: object = None  # what they are scored by beside the targets in `features`, with a fixed `repr`
    notes: Mapping[str, str] = field(default_factory=dict)  # how they are scored, for result.json


@dataclass(frozen=True)
class Split:
    """An evaluated split."""

    name: str
    examples: Examples
    encoded: EncodedExamples
    config: FinetuningRunConfig  # its `task` has the settings that the dev set chose

    @property
    def task(self) -> Any:
        return self.config.task


class Kind(ABC):
    """A kind of task: all that the rest of the program knows about it. P is whatever `predict` returns."""

    name: str  # in `--task`, and in the setting `task.kind`
    settings: type[Settings]  # the class of the group `task`
    model: type[FinetuningTask]
    served: type[ServedModel]
    transformers: TransformersHead
    is_for_own_data = True  # whether `--task` takes its name; else only the names of its benchmarks
    text_columns: tuple[str, ...] = ()  # the setting for own data, where none is given
    glue_task: str | None = None  # the task of GLUE that `--data_dir` means
    chosen: tuple[str, ...] = ()  # the settings that the dev set chooses, which are metrics of the same names
    primary = ""  # the metric that selects the best seed; "": the first one
    has_loss = True  # whether the mean loss is a metric too
    number_format = ""  # of a predicted number in a file; "": all its digits
    truncation = "data.max_seq_length is {data.max_seq_length}"  # the limit that a truncated example exceeds

    @abstractmethod
    def read(self, path: DataFile, config: FinetuningRunConfig, new: NewColumns | None = None) -> Examples:
        """Returns the examples of a file, or of a `Table` in its place.

        Args: new: for examples to predict, which have labels if the file has them; None: all must have labels.
        """

    def derive(self, train: Examples, task: Any) -> dict[str, Any]:
        """Returns the settings that follow from the training examples."""
        return {}

    @abstractmethod
    def encode(
        self, examples: Examples, config: FinetuningRunConfig, tokenizer: Tokenizer, is_training: bool
    ) -> EncodedExamples:
        """Returns examples as features."""

    @abstractmethod
    def metric_names(self, split: Split) -> tuple[str, ...]:
        """Returns the names of `scores`."""

    def predict(self, split: Split, outputs: Outputs) -> Any:
        """Returns what the model's outputs mean; here the outputs themselves."""
        return outputs

    @abstractmethod
    def scores(self, split: Split, predictions: Any) -> dict[str, float]:
        """Returns the metrics of a split."""

    @abstractmethod
    def rows(self, split: Split, predictions: Any) -> list[dict[str, Any]]:
        """Returns the prediction for each example, by the columns of the file that `--predict` writes."""

    def with_chosen(self, task: SettingsOfKind, metrics: Mapping[str, Any]) -> SettingsOfKind:
        """Returns the settings with those that the dev set with these metrics has chosen."""
        return task.model_copy(update={name: metrics[name] for name in self.chosen if name in metrics})

    def alarm(self, split: Split, predictions: Any) -> str | None:
        """Returns a sign that the model has learnt nothing, as a clause for a warning; None without such a sign."""
        return None

    def report(self, split: Split, predictions: Any) -> Report | None:
        """Returns the scores of each class; None for a kind without classes."""
        return None

    def content_of(self, rows: list[dict[str, Any]]) -> bytes:
        """Returns the content of a file with rows: here a TSV file."""
        names = list(rows[0]) if rows else ["id", "prediction"]
        return tsv([names, *([cell(name, row[name], self.number_format) for name in names] for row in rows)])

    def files(self, split: Split, predictions: Any) -> dict[str, bytes]:
        """Returns the files with the predictions for a split, by name."""
        return {f"predictions_{split.name}.tsv": self.content_of(self.rows(split, predictions))}

    def python_values(self, rows: list[dict[str, Any]]) -> list[Any]:
        """Returns what `electra_tf.Model.predict` makes of the rows."""
        return rows


def cell(name: str, value: Any, number_format: str = "") -> str:
    """A value of a column in a file: "" for none, six digits of a probability, a list as JSON."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return json.dumps(list(value), ensure_ascii=False)
    if isinstance(value, float) and name.startswith("probability"):
        return f"{value:.6f}"
    return format(value, number_format) if name == "prediction" and isinstance(value, float) else str(value)
