"""What `--task` names: where its examples are read, and what follows from them for the settings."""

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import tensorflow as tf

from electra_tf.config.errors import UserError, did_you_mean
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.glue import GLUE_TASKS, GlueTask, read_glue
from electra_tf.tasks.finetune.metrics import (
    CLASSIFICATION_METRICS,
    MULTI_LABEL_METRICS,
    REGRESSION_METRICS,
    classification_metrics,
    glue_metrics,
    multi_label_metrics,
    regression_metrics,
)
from electra_tf.tasks.finetune.question_answering import QuestionData
from electra_tf.tasks.finetune.sentence import SentenceData
from electra_tf.tasks.finetune.squad import SQUAD_TASKS, Question, read_squad
from electra_tf.tasks.finetune.tagged import read_tagged, scheme_of, tag_labels
from electra_tf.tasks.finetune.tagging import TaggingData
from electra_tf.tasks.finetune.text_examples import (
    TextExamples,
    class_targets,
    class_weights,
    label_set,
    read_examples,
    target_range,
)
from electra_tf.text.tokenizer import BertTokenizer

OWN_TASKS = ("classification", "multi_label", "regression", "tagging")
# The flags of data that a kind of task takes; another one would do nothing.
_OF_SQUAD = {"data_dir", "train_file", "validation_file"}
_OF_TAGGING = {"train_file", "validation_file"}
_OF_REGRESSION = _OF_TAGGING | {"text_columns", "label_column"}
_OF_CLASSES = _OF_REGRESSION | {"labels", "class_weights"}
_FLAGS_OF = {"tagging": _OF_TAGGING, "regression": _OF_REGRESSION} | dict.fromkeys(SQUAD_TASKS, _OF_SQUAD)


@dataclass(frozen=True)
class DataOptions:
    """What the flags say of a task's data."""

    data_dir: str | None = None
    train_file: str | None = None
    validation_file: str | None = None
    text_columns: tuple[str, ...] = ("text",)
    label_column: str = "label"
    labels: tuple[str, ...] | None = None
    class_weights: object = None  # None, "balanced", or weights by label


class TaskDataset(ABC):
    """A task's training and evaluation examples, as they were read.

    Attributes:
        name: of the task.        num_epochs, max_seq_length: of its fine-tuning, unless set otherwise.
    """

    name: str
    num_epochs: float = 3.0
    max_seq_length: int = 128

    @abstractmethod
    def settings(self, chosen: dict) -> dict:
        """What the `task` group of the configuration takes from the data, beside what the user has `chosen`."""

    @abstractmethod
    def data(self, config: FinetuningConfig, tokenizer: BertTokenizer) -> TaskData:
        """The examples as features."""


@dataclass
class GlueDataset(TaskDataset):
    """One of the GLUE tasks."""

    task: GlueTask
    data_dir: str
    max_seq_length: int = 128

    def __post_init__(self):
        self.name, self.num_epochs = self.task.name, self.task.num_epochs
        self._train = read_glue(self.task, self.data_dir, "train")
        splits = [split for split in self.task.splits if split.startswith("validation")]
        self._validation = {split: read_glue(self.task, self.data_dir, split) for split in splits}

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

    def data(self, config: FinetuningConfig, tokenizer: BertTokenizer) -> SentenceData:
        score = functools.partial(glue_metrics, self.task)
        return SentenceData(config, tokenizer, self._train, self._validation, score, self.task.paper_metric)


@dataclass
class TableDataset(TaskDataset):
    """A user's own texts with labels or numbers."""

    name: str
    files: DataOptions
    _train: TextExamples = field(init=False)

    def __post_init__(self):
        files = self.files
        paths = _required_files(self.name, files)
        self._train, self._validation = (
            read_examples(path, files.text_columns, files.label_column, self.name) for path in paths
        )

    def settings(self, chosen: dict) -> dict:
        files = self.files
        if len(set(files.text_columns)) < len(files.text_columns):
            raise UserError(f"--text_columns {' '.join(files.text_columns)} names one twice; give it once")
        common = {"kind": self.name, "text_columns": list(files.text_columns)}
        if self.name == "regression":
            smallest, largest = target_range(self._train)
            return {**common, "min_value": smallest, "max_value": largest}
        labels = label_set(self._train, files.labels)
        settings = {**common, "labels": list(labels)}
        if files.class_weights is not None:
            if self.name == "multi_label" and files.class_weights == "balanced":
                raise UserError("--class_weights=balanced is for one label an example; give weights by label")
            targets = class_targets(self._train, labels) if self.name == "classification" else None
            settings["class_weights"] = class_weights(targets, labels, files.class_weights).tolist()
        return settings

    def data(self, config: FinetuningConfig, tokenizer: BertTokenizer) -> SentenceData:
        score, primary_metric = OWN_METRICS[config.task.kind]
        return SentenceData(config, tokenizer, self._train, {"validation": self._validation}, score, primary_metric)


OWN_METRICS = {
    "classification": (classification_metrics, CLASSIFICATION_METRICS[0]),
    "multi_label": (multi_label_metrics, MULTI_LABEL_METRICS[0]),
    "regression": (regression_metrics, REGRESSION_METRICS[0]),
}


@dataclass
class TaggingDataset(TaskDataset):
    """A user's own sentences with a tag for each word."""

    name: str
    files: DataOptions

    def __post_init__(self):
        paths = _required_files(self.name, self.files)
        self._train, self._validation = map(read_tagged, paths)

    def settings(self, chosen: dict) -> dict:
        # Spans are learnt in one scheme, whichever the file is written in.
        plain = scheme_of(self._train) == "plain"
        scheme = "plain" if plain else str(chosen.get("scheme", "iob2"))
        return {"kind": "tagging", "scheme": scheme, "labels": list(tag_labels(self._train, scheme))}

    def data(self, config: FinetuningConfig, tokenizer: BertTokenizer) -> TaggingData:
        return TaggingData(config, tokenizer, self._train, self._validation)


@dataclass
class SquadDataset(TaskDataset):
    """SQuAD 1.1 or 2.0."""

    name: str
    files: DataOptions
    num_epochs: float = 2.0
    max_seq_length: int = 512

    def __post_init__(self):
        paths = self.files.train_file, self.files.validation_file
        if None in paths:
            if self.files.data_dir is None:
                raise UserError(f"--task={self.name} needs --data_dir, or --train_file and --validation_file")
            found = (squad_file(self.files.data_dir, self.name, split) for split in ("train", "validation"))
            paths = tuple(given or there for given, there in zip(paths, found, strict=True))
        self._paths = paths
        self._train, self._validation = map(read_squad, paths)
        for path, questions in zip(paths, (self._train, self._validation), strict=True):
            _require_answers(questions, path, version_2=self.name == "squad_v2")

    def settings(self, chosen: dict) -> dict:
        return {"kind": "question_answering", "version_2": self.name == "squad_v2"}

    def data(self, config: FinetuningConfig, tokenizer: BertTokenizer) -> QuestionData:
        train_file, validation_file = self._paths
        data = QuestionData(config, tokenizer, self._train, self._validation, train_file)
        if not data.train.num_rows:
            raise UserError(f"no question of {train_file} can be trained on: no answer stands in its context; mend it")
        if not data.evaluation.num_rows:
            raise UserError(f"no question of {validation_file} has a context with a word in it; mend the file")
        return data


def _require_answers(questions: Sequence[Question], path, version_2: bool) -> None:
    for question in questions:
        if question.is_impossible and not version_2:
            raise UserError(f"{path}: question {question.id} has no answer, as in SQuAD 2.0; give --task=squad_v2")
        if not question.answers and not question.is_impossible:
            raise UserError(
                f"{path}: question {question.id} has neither answers nor is_impossible; a file to be predicted only is "
                "for --predict"
            )


def squad_file(data_dir: str, task: str, split: str) -> str:
    """The file of a split: the official JSON, or Hugging Face's parquet. Raises: UserError: there is none."""
    version = "2.0" if task == "squad_v2" else "1.1"
    official = f"{'train' if split == 'train' else 'dev'}-v{version}.json"
    folder = "squad_v2" if task == "squad_v2" else "squad"
    parquet = f"{split}-00000-of-00001.parquet"
    candidates = [official, f"{folder}/{parquet}", f"{folder}/{folder}/{parquet}", f"plain_text/{parquet}", parquet]
    for candidate in candidates:
        if tf.io.gfile.exists(os.path.join(data_dir, candidate)):
            return os.path.join(data_dir, candidate)
    raise UserError(f"{data_dir} has no {split} split of {task}; looked for {', '.join(candidates)}")


def _required_files(task: str, files: DataOptions) -> tuple[str, str]:
    for flag in ("train_file", "validation_file"):
        if getattr(files, flag) is None:
            raise UserError(f"--task={task} needs --{flag}; see docs/finetuning.md for its formats")
    return files.train_file, files.validation_file


def read_dataset(name: str, files: DataOptions) -> TaskDataset:
    """Reads the data of a task. Raises: UserError: for an unknown task, a missing flag, or files that do not fit."""
    is_glue = name in GLUE_TASKS and "train" in GLUE_TASKS[name].splits
    if not is_glue and name not in (*SQUAD_TASKS, *OWN_TASKS):
        raise UserError(f"--task={name} is not known{did_you_mean(name, (*task_names(), 'glue'))}")
    allowed = {"data_dir"} if is_glue else _FLAGS_OF.get(name, _OF_CLASSES)
    for flag in fields(files):
        if getattr(files, flag.name) != flag.default and flag.name not in allowed:
            flags = ", ".join(f"--{each}" for each in sorted(allowed))
            raise UserError(f"--{flag.name} is not for --task={name}, whose data is given by {flags}")
    if is_glue:
        if files.data_dir is None:
            raise UserError(f"--task={name} needs --data_dir, the directory that holds GLUE's folders")
        return GlueDataset(GLUE_TASKS[name], files.data_dir)
    if name in SQUAD_TASKS:
        return SquadDataset(name, files)
    return (TaggingDataset if name == "tagging" else TableDataset)(name, files)


def task_names() -> tuple[str, ...]:
    """What `--task` takes, `glue` for all tasks of the paper's table aside."""
    glue = (task.name for task in GLUE_TASKS.values() if "train" in task.splits)
    return (*glue, *SQUAD_TASKS, *OWN_TASKS)
