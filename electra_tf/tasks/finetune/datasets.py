"""The examples of a fine-tuning by the data flags of `electra-tf finetune`, and the settings that follow from them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from electra_tf.config.errors import UserError, did_you_mean
from electra_tf.tasks.finetune.benchmarks import BENCHMARKS, GLUE_TASKS, SQUAD_TASKS, Benchmark, read_glue
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.text.tokenizer import Tokenizer

_Path = str | os.PathLike[str]

# The data flags that each task reads.
_GLUE_FLAGS = {"data_dir"}
_FILE_FLAGS = {"train_file", "validation_file", "test_file"}
_SQUAD_FLAGS = _FILE_FLAGS | {"data_dir"}
_REGRESSION_FLAGS = _FILE_FLAGS | {"text_columns", "label_column"}
_CLASS_FLAGS = _REGRESSION_FLAGS | {"labels", "class_weights"}
_FLAGS = {
    **{name: _GLUE_FLAGS for name, task in GLUE_TASKS.items() if "train" in task.splits},
    **dict.fromkeys(SQUAD_TASKS, _SQUAD_FLAGS),
    **{"classification": _CLASS_FLAGS, "multi_label": _CLASS_FLAGS},
    **{"regression": _REGRESSION_FLAGS, "similarity": _REGRESSION_FLAGS | {"data_dir"}},
    **{"tagging": _FILE_FLAGS, "multiple_choice": _FILE_FLAGS},
}


@dataclass(frozen=True)
class DataOptions:
    """The data flags of `electra-tf finetune`; from Python, a file may be a `Table` in memory."""

    data_dir: _Path | None = None
    train_file: _Path | None = None
    validation_file: _Path | None = None
    test_file: _Path | None = None
    text_columns: tuple[str, ...] = ("text",)
    label_column: str = "label"
    labels: tuple[str, ...] | None = None
    class_weights: object = None  # None, "balanced", or weights by label


@dataclass(frozen=True)
class Dataset:
    """The examples of a task.

    Attributes:
        name: the task's name.
        task: settings of the group `task` that follow from flags; `settings` adds those that follow from the examples.
        train, evaluated, test: the training split, the dev set (of MNLI both) by name, and the examples of
            `--test_file` or None.
        num_epochs, max_seq_length: the task's defaults.
    """

    name: str
    task: dict[str, Any]
    train: Examples
    evaluated: Mapping[str, Examples]
    test: Examples | None = None
    num_epochs: float = 3.0
    max_seq_length: int = 128

    def settings(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings of the group `task`. Args: chosen: the user's settings of that group."""
        if self.name in BENCHMARKS:
            return self.task
        task = {name: value for name, value in self.task.items() if value is not None}
        derived = KINDS[task["kind"]].derive(self.train, {**task, **chosen})
        return {**{name: value for name, value in task.items() if name != "class_weights"}, **derived}

    def data(self, config: FinetuningConfig, tokenizer: Tokenizer) -> TaskData:
        """Returns the examples as features."""
        return TaskData(config, tokenizer, self.train, self.evaluated)

    def test_data(self, config: FinetuningConfig, tokenizer: Tokenizer) -> TaskData | None:
        """Returns the examples of `--test_file` as features; None without the flag."""
        return None if self.test is None else TaskData(config, tokenizer, None, {"test": self.test})


def read_dataset(name: str, options: DataOptions) -> Dataset:
    """Reads the examples of a task. Raises: UserError: an unknown task, a missing or useless flag, a wrong file."""
    if name not in _FLAGS:
        raise UserError(f"--task={name} is unknown{did_you_mean(name, (*_FLAGS, 'glue'))}")
    for flag in fields(options):
        if getattr(options, flag.name) != flag.default and flag.name not in _FLAGS[name]:
            flags = ", ".join(f"--{each}" for each in sorted(_FLAGS[name]))
            raise UserError(f"--{flag.name} has no effect with --task={name}, which reads {flags}; remove it")
    if name in GLUE_TASKS:
        benchmark = GLUE_TASKS[name]
        return Dataset(name, benchmark.settings, *_glue_splits(benchmark, options), num_epochs=benchmark.num_epochs)
    if name == "similarity" and options.data_dir is not None:
        return _pairs_of_stsb(options)
    if name in SQUAD_TASKS:
        benchmark = SQUAD_TASKS[name]
        kind, task = KINDS[benchmark.kind], benchmark.settings
        defaults = {"num_epochs": benchmark.num_epochs, "max_seq_length": benchmark.max_seq_length}
    else:
        benchmark, kind, defaults = None, KINDS[name], {}
        names = _FLAGS[name] - _SQUAD_FLAGS
        task = {"kind": name, **{flag: getattr(options, flag) for flag in names}}
    files = [options.train_file, options.validation_file, options.test_file]
    for number, split in enumerate(("train", "validation")):
        if files[number] is None:
            if benchmark is None or options.data_dir is None:
                needed = f"--{split}_file" + (" or --data_dir" if benchmark else "")
                raise UserError(f"--task={name} needs {needed}; see docs/finetuning.md")
            files[number] = benchmark.find(options.data_dir, split)
    train, validation, test = (file and kind.read(file, task) for file in files)
    _require_labels_in_all_or_none([split for split in (train, validation, test) if split is not None])
    return Dataset(name, task, train, {"validation": validation}, test, **defaults)


def _glue_splits(benchmark: Benchmark, options: DataOptions) -> tuple[Examples, dict[str, Examples]]:
    """The training split, and the dev set or both of MNLI."""
    if options.data_dir is None:
        raise UserError(f"--task={benchmark.name} needs --data_dir; see docs/finetuning.md")
    names = [split for split in benchmark.splits if not split.startswith("test")]
    splits = {split: read_glue(benchmark, options.data_dir, split) for split in names}
    return splits.pop("train"), splits


def _pairs_of_stsb(options: DataOptions) -> Dataset:
    for flag in fields(options):
        if flag.name != "data_dir" and getattr(options, flag.name) != flag.default:
            raise UserError(f"--{flag.name} has no effect with --data_dir, which is STS-B's; remove one of them")
    benchmark = GLUE_TASKS["stsb"]
    task = {"kind": "similarity", "text_columns": benchmark.parquet_texts, "label_column": options.label_column}
    return Dataset("similarity", task, *_glue_splits(benchmark, options))


def _require_labels_in_all_or_none(splits: Sequence[Examples]) -> None:
    """Raises: UserError: some of the files of pairs have scores, and others have none."""
    without = [split.source for split in splits if split.labels[0] is True]
    if without and len(without) < len(splits):
        others = next(split.source for split in splits if split.labels[0] is not True)
        raise UserError(f"{without[0]} has no scores, and {others} has some; give scores in all files, or in none")
