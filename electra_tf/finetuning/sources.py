"""What `--task` names: where its examples are read, and what follows from them for the settings."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from electra_tf.config.errors import UserError
from electra_tf.config.loader import nearest
from electra_tf.data.glue import GLUE_TASKS, GlueTask, read_glue
from electra_tf.data.tables import (
    TextExamples,
    class_targets,
    class_weights,
    label_set,
    read_examples,
    target_range,
)
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.sentence_data import SentenceData
from electra_tf.text.tokenizer import BertTokenizer

OWN_TASKS = ("classification", "multi_label", "regression", "tagging")
SQUAD_TASKS = ("squad_v1", "squad_v2")


@dataclass(frozen=True)
class Files:
    """What the flags say of a task's data."""

    data_dir: str | None = None
    train_file: str | None = None
    validation_file: str | None = None
    text_columns: tuple[str, ...] = ("text",)
    label_column: str = "label"
    labels: tuple[str, ...] | None = None
    class_weights: object = None  # None, "balanced", or weights by label


class Source(ABC):
    """A task's training and evaluation examples, as they were read.

    Attributes:
        name: of the task.        num_epochs, max_seq_length: of its fine-tuning, unless set otherwise.
    """

    name: str
    num_epochs: float = 3.0
    max_seq_length: int = 128

    @abstractmethod
    def settings(self) -> dict:
        """What the `task` group of the configuration takes from the data."""

    @abstractmethod
    def data(self, config: FinetuningConfig, tokenizer: BertTokenizer) -> TaskData:
        """The examples as features."""


@dataclass
class GlueSource(Source):
    """One of the GLUE tasks."""

    task: GlueTask
    data_dir: str
    max_seq_length: int = 128

    def __post_init__(self):
        self.name, self.num_epochs = self.task.name, self.task.num_epochs
        self._train = read_glue(self.task, self.data_dir, "train")
        splits = [split for split in self.task.splits if split.startswith("validation")]
        self._validation = {split: read_glue(self.task, self.data_dir, split) for split in splits}

    def settings(self) -> dict:
        task = self.task
        return {
            "kind": task.problem,
            "labels": list(task.labels),
            "min_value": task.smallest,
            "max_value": task.largest,
            "double_unordered": task.unordered,
        }

    def data(self, config: FinetuningConfig, tokenizer: BertTokenizer) -> SentenceData:
        metric_names = (self.task.paper_metric, *(m for m in self.task.metrics if m != self.task.paper_metric))
        return SentenceData(config, tokenizer, self._train, self._validation, metric_names)


@dataclass
class TableSource(Source):
    """A user's own texts with labels or numbers."""

    name: str
    files: Files
    _train: TextExamples = field(init=False)

    def __post_init__(self):
        files = self.files
        for flag in ("train_file", "validation_file"):
            if getattr(files, flag) is None:
                raise UserError(f"--task={self.name} needs --{flag}; give a .csv, .tsv, .jsonl or .parquet file")
        paths = files.train_file, files.validation_file
        self._train, self._validation = (
            read_examples(path, files.text_columns, files.label_column, self.name) for path in paths
        )

    def settings(self) -> dict:
        files = self.files
        if self.name == "regression":
            smallest, largest = target_range(self._train)
            return {"kind": "regression", "min_value": smallest, "max_value": largest}
        labels = label_set(self._train, files.labels)
        settings = {"kind": self.name, "labels": list(labels)}
        if files.class_weights is not None:
            if self.name == "multi_label" and files.class_weights == "balanced":
                raise UserError("--class_weights=balanced is for one label an example; give weights by label")
            targets = class_targets(self._train, labels) if self.name == "classification" else None
            settings["class_weights"] = class_weights(targets, labels, files.class_weights).tolist()
        return settings

    def data(self, config: FinetuningConfig, tokenizer: BertTokenizer) -> SentenceData:
        return SentenceData(
            config, tokenizer, self._train, {"validation": self._validation}, OWN_METRICS[config.task.kind]
        )


OWN_METRICS = {
    "classification": ("accuracy", "f1", "matthews_correlation"),
    "multi_label": ("f1", "accuracy"),
    "regression": ("spearmanr", "pearson", "mse"),
}


def open_source(name: str, files: Files) -> Source:
    """Reads the data of a task. Raises: UserError: for an unknown task, a missing flag, or files that do not fit."""
    if name in GLUE_TASKS:
        if files.data_dir is None:
            raise UserError(f"--task={name} needs --data_dir, the directory that holds GLUE's folders")
        return GlueSource(GLUE_TASKS[name], files.data_dir)
    if name in OWN_TASKS:
        return TableSource(name, files)
    raise UserError(f"--task={name} is not known{nearest(name, task_names())}")


def task_names() -> tuple[str, ...]:
    """What `--task` takes, `glue` for all tasks of the paper's table aside."""
    return (*GLUE_TASKS, *SQUAD_TASKS, *OWN_TASKS)
