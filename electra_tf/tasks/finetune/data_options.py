"""The data flags of `run_finetuning.py`, and the interface of a task's data set."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.text.tokenizer import Tokenizer

_Path = str | os.PathLike[str]


@dataclass(frozen=True)
class DataOptions:
    """The data flags of `run_finetuning.py`; from Python, a file may be a `Table` in memory."""

    data_dir: _Path | None = None
    train_file: _Path | None = None
    validation_file: _Path | None = None
    test_file: _Path | None = None
    text_columns: tuple[str, ...] = ("text",)
    label_column: str = "label"
    labels: tuple[str, ...] | None = None
    class_weights: object = None  # None, "balanced", or weights by label

    @property
    def split_files(self) -> tuple[_Path | None, ...]:
        """The files of the training, dev and test split."""
        return self.train_file, self.validation_file, self.test_file


class TaskDataset(ABC):
    """The training and evaluated examples of a task.

    Attributes:
        name: the task's name.
        num_epochs, max_seq_length: the task's defaults.
        train, validation, test: the examples; no `test` without `--test_file`.
        task_data: makes features of config, tokenizer, training examples, evaluated examples and the latters' split.
    """

    name: str
    task_data: Callable[..., TaskData]
    num_epochs: float = 3.0
    max_seq_length: int = 128

    @abstractmethod
    def settings(self, chosen: dict) -> dict:
        """Returns the settings of the `task` group that follow from the examples.

        Args:
            chosen: the user's settings of that group.
        """

    def data(self, config: FinetuningConfig, tokenizer: Tokenizer) -> TaskData:
        """Returns the examples as features."""
        return self.task_data(config, tokenizer, self.train, self.validation, "validation")

    def test_data(self, config: FinetuningConfig, tokenizer: Tokenizer) -> TaskData | None:
        """Returns the examples of `--test_file` as features; None without the flag."""
        return self.test and self.task_data(config, tokenizer, None, self.test, "test")


def require_flags(task: str, options: DataOptions, *flags: str) -> None:
    """Raises: UserError: a flag of the data is missing."""
    for flag in flags:
        if getattr(options, flag) is None:
            raise UserError(f"--task={task} needs --{flag}; see docs/finetuning.md")
