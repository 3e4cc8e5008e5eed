"""The tasks of GLUE and SQuAD and their files.

GLUE: the official TSV folders, or the parquet files of nyu-mll/glue. SQuAD: the official JSON, or the parquet files of
rajpurkar/squad and squad_v2.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table, read_existing, read_separated, read_table
from electra_tf.files import exists
from electra_tf.tasks.finetune.examples import DataFile, Examples, read_examples
from electra_tf.tasks.finetune.labels import class_labels, numbers

_MAX_WRONG_ROWS = 10  # QQP's training file has a few incomplete rows; more of them mean that a file is damaged
_PARQUET = "-00000-of-00001.parquet"
_FILES = {"train": ("train.tsv",), "validation": ("dev.tsv",)}
_MNLI_FILES = {
    "train": ("train.tsv",),
    "validation_matched": ("dev_matched.tsv",),
    "validation_mismatched": ("dev_mismatched.tsv",),
}
_SENTENCE, _SENTENCES, _QUESTIONS = ("sentence",), ("sentence1", "sentence2"), ("question1", "question2")
_PREMISE = ("premise", "hypothesis")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("entailment", "neutral", "contradiction")
_BINARY = ("0", "1")
_F1_METRICS = ("accuracy", "f1", "combined_score")
# Of CoLA's files with labels.
_COLA_HEADER = ("source", "label", "mark", "sentence")


@dataclass(frozen=True)
class Benchmark:
    """A published task. Numbers of epochs and lengths are those of the authors' code."""

    name: str
    folders: tuple[str, ...] = ("",)  # possible names: the official one, the authors', and others in use
    kind: str = "classification"
    # For each split, as nyu-mll/glue names it, the possible names of its file, for GLUE that of its TSV file.
    files: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _FILES)
    metrics: tuple[str, ...] = ("accuracy",)  # that the leaderboard and Hugging Face report; not of SQuAD
    paper_metric: str = "accuracy"
    num_epochs: float = 3
    max_seq_length: int = 128
    text_columns: tuple[str, ...] = _SENTENCES  # of the TSV files
    label_column: str = "label"  # of the TSV files
    labels: tuple[str, ...] = ()  # named and ordered as in the parquet files; empty for regression
    tsv_labels: tuple[str, ...] = _BINARY  # their names in the TSV files
    parquet_texts: tuple[str, ...] = _SENTENCES  # the text columns of the parquet files, whose labels are in `label`
    smallest: float = 0.0  # of the labels of a regression
    largest: float = 1.0
    unordered: bool = False  # the order of the two texts has no meaning, so that training uses both orders
    version_2: bool | None = None  # of SQuAD, whether some questions have no answer; None for GLUE

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the group `task` that it fixes."""
        if self.version_2 is not None:
            return {"kind": self.kind, "version_2": self.version_2}
        return {
            "kind": self.kind,
            "labels": list(self.labels),
            "text_columns": list(self.parquet_texts),
            "min_value": self.smallest,
            "max_value": self.largest,
            "double_unordered": self.unordered,
        }

    def find(self, data_dir: str | os.PathLike[str], split: str) -> str:
        """Returns the path of a split's file. Raises: UserError: there is none."""
        candidates = [os.path.join(folder, file) for folder in self.folders for file in self.files[split]]
        if self.version_2 is None:
            candidates.append(f"{self.name}/{split}{_PARQUET}")
            kind, _, part = split.partition("_")
            if part:  # of mnli: validation_matched is also the split validation of mnli_matched
                candidates.append(f"{self.name}_{part}/{kind}{_PARQUET}")
        for file in candidates:
            if exists(os.path.join(data_dir, file)):
                return os.path.join(data_dir, file)
        looked_for = ", ".join(candidates)
        raise UserError(f"data_dir={data_dir} has no {split} split of {self.name}; looked for {looked_for}")


def _squad(name: str, version: str, folder: str) -> Benchmark:
    parquet_folders = (f"{folder}/", f"{folder}/{folder}/", "plain_text/", "")
    files = {
        split: (f"{official}-v{version}.json", *(f"{place}{split}{_PARQUET}" for place in parquet_folders))
        for split, official in (("train", "train"), ("validation", "dev"))
    }
    return Benchmark(
        name, kind="question_answering", files=files, paper_metric="f1", num_epochs=2, max_seq_length=512,
        version_2=version == "2.0",
    )  # fmt: skip


_TASKS = (
    Benchmark("cola", ("CoLA", "cola"), text_columns=_SENTENCE,
              parquet_texts=_SENTENCE, labels=("unacceptable", "acceptable"),
              paper_metric="matthews_correlation", metrics=("matthews_correlation",)),
    Benchmark("sst2", ("SST-2", "sst", "sst-2", "sst2"), text_columns=_SENTENCE, parquet_texts=_SENTENCE,
              labels=("negative", "positive")),
    Benchmark("mrpc", ("MRPC", "mrpc"), text_columns=("#1 String", "#2 String"), label_column="Quality",
              labels=("not_equivalent", "equivalent"), metrics=_F1_METRICS, unordered=True),
    Benchmark("stsb", ("STS-B", "sts", "sts-b", "stsb"), kind="regression", label_column="score",
              largest=5.0, num_epochs=10, paper_metric="spearmanr",
              metrics=("pearson", "spearmanr", "combined_score"), unordered=True),
    Benchmark("qqp", ("QQP", "qqp"), text_columns=_QUESTIONS, label_column="is_duplicate", parquet_texts=_QUESTIONS,
              labels=("not_duplicate", "duplicate"), metrics=_F1_METRICS),
    Benchmark("mnli", ("MNLI", "mnli"), files=_MNLI_FILES, label_column="gold_label",
              parquet_texts=_PREMISE, labels=_INFERENCE, tsv_labels=_INFERENCE),
    Benchmark("qnli", ("QNLI", "qnli"), text_columns=("question", "sentence"), parquet_texts=("question", "sentence"),
              labels=_ENTAILMENT, tsv_labels=_ENTAILMENT),
    Benchmark("rte", ("RTE", "rte"), labels=_ENTAILMENT, tsv_labels=_ENTAILMENT, num_epochs=10),
    Benchmark("wnli", ("WNLI", "wnli"), labels=("not_entailment", "entailment")),
)  # fmt: skip
GLUE_TASKS: dict[str, Benchmark] = {task.name: task for task in _TASKS}
SQUAD_TASKS = {"squad_v1": _squad("squad_v1", "1.1", "squad"), "squad_v2": _squad("squad_v2", "2.0", "squad_v2")}
BENCHMARKS = GLUE_TASKS | SQUAD_TASKS
PAPER_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")  # the paper's GLUE score is their mean


def read_glue(task: Benchmark, data_dir: str | os.PathLike[str], split: str) -> Examples:
    """Reads a split of a task of GLUE that has labels.

    Args:
        data_dir: has a folder for each task, with the official TSV files (the folder is named as on GLUE's site or in
            the authors' code) or with the parquet files of nyu-mll/glue.
        split: one of `task.files`.
    Raises: UserError: there is no such file, it cannot be read, or a label is missing.
    """
    table, texts, label = _glue_table(task, task.find(data_dir, split), _MAX_WRONG_ROWS)
    return read_examples(table, texts, label, _labels_in(task))


def read_glue_texts(
    task: Benchmark, path: DataFile, text_columns: Sequence[str] | None, label_column: str | None = None
) -> Examples:
    """Reads texts to predict from a TSV or parquet file, with their labels if it has them.

    As in GLUE's files, quotes in a TSV file are ordinary characters.

    Args:
        path: a `Table` is read as a parquet file.
        text_columns: None for the columns of the task's parquet files if the file has them, else of its TSV files.
        label_column: None for that of the task's own files.
    Raises: UserError: see `read_glue`; a column is missing.
    """
    table, texts, label = _glue_table(task, path)
    if set(task.parquet_texts) <= set(table.columns):
        texts = task.parquet_texts
    return read_examples(table, text_columns or texts, label_column or label, _labels_in(task), label_column is None)


def _glue_table(task: Benchmark, path: DataFile, max_wrong_rows: int = 0) -> tuple[Table, tuple[str, ...], str]:
    if isinstance(path, Table) or os.fspath(path).lower().endswith(".parquet"):
        table = read_table(path)
        return replace(table, class_names={"label": task.labels, **table.class_names}), task.parquet_texts, "label"
    header = None
    if task.name == "cola":  # only the files with labels have no header
        first = read_existing(path).partition(b"\n")[0].split(b"\t")
        header = _COLA_HEADER if len(first) == len(_COLA_HEADER) and b"sentence" not in first else None
    table = read_separated(os.fspath(path), "\t", has_quotes=False, header=header, max_wrong_rows=max_wrong_rows)
    if task.label_column in table.columns:  # not in test splits
        name_of = dict(zip(task.tsv_labels, task.labels, strict=False))
        labels = [name_of.get(value, value) for value in table.columns[task.label_column]]
        table = replace(table, columns={**table.columns, task.label_column: labels})
    return table, task.text_columns, task.label_column


def _labels_in(task: Benchmark) -> Callable[[Table, str], list[Any]]:
    return functools.partial(class_labels if task.labels else numbers, known=task.labels)
