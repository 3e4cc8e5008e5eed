"""The data sets of all tasks but similarity: examples, and the settings that follow from the examples."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, get_args

from electra_tf.config.errors import UserError, did_you_mean
from electra_tf.files import exists
from electra_tf.tasks.finetune.choices import read_choices
from electra_tf.tasks.finetune.config import FinetuningConfig, TagScheme
from electra_tf.tasks.finetune.data_options import DataOptions, TaskDataset, require_flags
from electra_tf.tasks.finetune.glue import GLUE_TASKS, GlueTask, read_glue
from electra_tf.tasks.finetune.multiple_choice import ChoiceData
from electra_tf.tasks.finetune.question_answering import QuestionData
from electra_tf.tasks.finetune.sentence import SentenceData
from electra_tf.tasks.finetune.similarity_dataset import SimilarityDataset
from electra_tf.tasks.finetune.squad import SQUAD_TASKS, Question, read_squad
from electra_tf.tasks.finetune.tagged import read_tagged, tag_labels
from electra_tf.tasks.finetune.tagging import TaggingData
from electra_tf.tasks.finetune.text_examples import (
    TextExamples,
    class_targets,
    class_weights,
    label_set,
    read_examples,
    target_range,
)
from electra_tf.text.tokenizer import Tokenizer

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


@dataclass
class GlueDataset(TaskDataset):
    """A task of GLUE. MNLI is evaluated on both of its dev sets."""

    task: GlueTask
    data_dir: str
    test = None

    def __post_init__(self):
        self.name, self.num_epochs = self.task.name, self.task.num_epochs
        self.train = read_glue(self.task, self.data_dir, "train")
        splits = [split for split in self.task.splits if split.startswith("validation")]
        self.validation = {split: read_glue(self.task, self.data_dir, split) for split in splits}

    def task_data(self, config: FinetuningConfig, tokenizer: Tokenizer, train, evaluated, split: str) -> SentenceData:
        return SentenceData(config, tokenizer, train, evaluated)

    def settings(self, chosen: dict) -> dict:
        task = self.task
        return {
            "kind": task.problem,
            "labels": list(task.labels),
            "text_columns": list(task.parquet_texts),
            "min_value": task.smallest,
            "max_value": task.largest,
            "double_unordered": task.unordered,
        }


@dataclass
class FileDataset(TaskDataset):
    """A user's own examples, a file for each split, which `read` reads."""

    name: str
    options: DataOptions
    read: ClassVar[Callable[[str], Any]]

    def __post_init__(self):
        self.train, self.validation, self.test = (path and self.read(path) for path in self.options.split_files)


class TableDataset(FileDataset):
    """Texts with labels or numbers."""

    def read(self, path: str) -> TextExamples:
        return read_examples(path, self.options.text_columns, self.options.label_column, self.name)

    def task_data(self, config: FinetuningConfig, tokenizer: Tokenizer, train, evaluated, split: str) -> SentenceData:
        return SentenceData(config, tokenizer, train, {split: evaluated})

    def settings(self, chosen: dict) -> dict:
        weights = self.options.class_weights
        settings = {"kind": self.name, "text_columns": list(self.options.text_columns)}
        settings["label_column"] = self.options.label_column
        if self.name == "regression":
            smallest, largest = target_range(self.train)
            return settings | {"min_value": smallest, "max_value": largest}
        labels = label_set(self.train, self.options.labels)
        settings["labels"] = list(labels)
        if weights is not None:
            if self.name == "multi_label" and weights == "balanced":
                raise UserError("--class_weights=balanced needs --task=classification; give a weight for each label")
            targets = class_targets(self.train, labels) if weights == "balanced" else None
            settings["class_weights"] = class_weights(targets, labels, weights).tolist()
        return settings


class TaggingDataset(FileDataset):
    """Sentences with a tag for each word."""

    read, task_data = staticmethod(read_tagged), TaggingData

    def settings(self, chosen: dict) -> dict:
        scheme = chosen.get("scheme", "iob2")
        labels = tag_labels(self.train, scheme) if scheme in get_args(TagScheme) else ()  # else `resolve` refuses it
        return {"kind": "tagging", "scheme": scheme, "labels": list(labels)}


class ChoiceDataset(FileDataset):
    """Contexts with choices: SWAG, RACE, COPA or a user's own."""

    read, task_data = staticmethod(read_choices), ChoiceData

    def settings(self, chosen: dict) -> dict:
        return {"kind": "multiple_choice"}


@dataclass
class SquadDataset(TaskDataset):
    """SQuAD 1.1 or 2.0."""

    name: str
    options: DataOptions
    num_epochs: float = 2.0
    max_seq_length: int = 512

    def __post_init__(self):
        directory, files = self.options.data_dir, (self.options.train_file, self.options.validation_file)
        if directory is None and None in files:
            raise UserError(f"--task={self.name} needs --data_dir, or --train_file and --validation_file")
        given = zip(files, ("train", "validation"), strict=True)
        paths = [file or _squad_file(directory, self.name, split) for file, split in given]
        self._files = {"validation": paths[0], "test": self.options.test_file}
        self.train, self.validation, self.test = (
            path and _answered_questions(path, self.name == "squad_v2") for path in (*paths, self.options.test_file)
        )

    def settings(self, chosen: dict) -> dict:
        return {"kind": "question_answering", "version_2": self.name == "squad_v2"}

    def task_data(self, config: FinetuningConfig, tokenizer: Tokenizer, train, evaluated, split: str) -> QuestionData:
        suffix = "_test" if split == "test" else ""
        return QuestionData(config, tokenizer, train, evaluated, self._files[split], suffix=suffix)


def _answered_questions(path: str, version_2: bool) -> list[Question]:
    """Reads questions that all have an answer or, in version 2, are impossible. Raises: UserError: one is neither."""
    questions = read_squad(path)
    for question in questions:
        if question.is_impossible and not version_2:
            raise UserError(f"{path}: question {question.id} has no answer; give --task=squad_v2")
        if not question.answers and not question.is_impossible:
            raise UserError(f"{path}: question {question.id} has neither answers nor is_impossible; add one")
    return questions


def _squad_file(data_dir: str, task: str, split: str) -> str:
    """Finds the file of a split: the official JSON, or Hugging Face's parquet. Raises: UserError: there is none."""
    version = "2.0" if task == "squad_v2" else "1.1"
    official = f"{'train' if split == 'train' else 'dev'}-v{version}.json"
    folder = "squad_v2" if task == "squad_v2" else "squad"
    parquet = f"{split}-00000-of-00001.parquet"
    candidates = [official, f"{folder}/{parquet}", f"{folder}/{folder}/{parquet}", f"plain_text/{parquet}", parquet]
    for candidate in candidates:
        if exists(os.path.join(data_dir, candidate)):
            return os.path.join(data_dir, candidate)
    raise UserError(f"--data_dir={data_dir} has no {split} split of {task}; looked for {', '.join(candidates)}")


def read_dataset(name: str, options: DataOptions) -> TaskDataset:
    """Reads the examples of a task. Raises: UserError: an unknown task, a missing or useless flag, a wrong file."""
    if name not in _FLAGS:
        raise UserError(f"--task={name} is unknown{did_you_mean(name, (*_FLAGS, 'glue'))}")
    for flag in fields(options):
        if getattr(options, flag.name) != flag.default and flag.name not in _FLAGS[name]:
            flags = ", ".join(f"--{each}" for each in sorted(_FLAGS[name]))
            raise UserError(f"--{flag.name} has no effect with --task={name}, which reads {flags}; remove it")
    if name in GLUE_TASKS:
        require_flags(name, options, "data_dir")
        return GlueDataset(GLUE_TASKS[name], options.data_dir)
    if name in SQUAD_TASKS:
        return SquadDataset(name, options)
    if name == "similarity":
        return SimilarityDataset(name, options)
    require_flags(name, options, "train_file", "validation_file")
    of_kind = {"tagging": TaggingDataset, "multiple_choice": ChoiceDataset}
    return of_kind.get(name, TableDataset)(name, options)
