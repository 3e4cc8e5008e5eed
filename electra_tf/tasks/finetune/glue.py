"""The tasks of GLUE and their files: the official TSV folders, or the parquet files of nyu-mll/glue."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table, read_bytes, read_separated, read_table
from electra_tf.files import exists
from electra_tf.tasks.finetune.text_examples import TextExamples, examples_of, has_labels, warn_about_oddities

_MAX_WRONG_ROWS = 10  # QQP's training file has a few incomplete rows; more of them mean that a file is damaged
_FILES = {"train": ("train.tsv",), "validation": ("dev.tsv",), "test": ("test.tsv",)}
_MNLI_FILES = {
    "train": ("train.tsv",),
    "validation_matched": ("dev_matched.tsv",),
    "validation_mismatched": ("dev_mismatched.tsv",),
    "test_matched": ("test_matched.tsv",),
    "test_mismatched": ("test_mismatched.tsv",),
}
_SENTENCES = ("sentence1", "sentence2")
_PREMISE = ("premise", "hypothesis")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("entailment", "neutral", "contradiction")
_BINARY = ("0", "1")
# Only CoLA's files with labels have no header.
_COLA_HEADER = ("source", "label", "mark", "sentence")


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE.

    Attributes:
        folders: possible names of the folder with the TSV files: the official name, the authors', and others in use.
        text_columns, label_column: columns of the TSV files.
        labels: in Hugging Face's order, named as in the TSV files and on the leaderboard; empty for regression.
        leaderboard: for each test split, the name of the file for GLUE's site and its number of rows.
        parquet_texts: the text columns of the parquet files, whose labels are in `label`.
        parquet_labels: the class names in the parquet files.
        files: for each split, the possible names of its TSV file.
        smallest, largest: the range of the labels of a regression.
        num_epochs: the number of epochs in the authors' code.
        paper_metric: the metric that the paper reports.
        metrics: the metrics that the leaderboard and Hugging Face report.
        unordered: True if the order of the two texts has no meaning, so that training uses both orders.
    """

    name: str
    folders: tuple[str, ...]
    leaderboard: Mapping[str, tuple[str, int]]
    parquet_labels: tuple[str, ...]
    text_columns: tuple[str, ...] = _SENTENCES
    labels: tuple[str, ...] = _BINARY
    parquet_texts: tuple[str, ...] = _SENTENCES
    label_column: str = "label"
    files: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _FILES)
    problem: Literal["classification", "regression"] = "classification"
    smallest: float = 0.0
    largest: float = 1.0
    num_epochs: int = 3
    paper_metric: str = "accuracy"
    metrics: tuple[str, ...] = ("accuracy",)
    unordered: bool = False

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, as in nyu-mll/glue."""
        return tuple(self.files)


_TASKS = (
    GlueTask(
        "cola",
        folders=("CoLA", "cola"),
        text_columns=("sentence",),
        leaderboard={"test": ("CoLA.tsv", 1063)},
        parquet_texts=("sentence",),
        parquet_labels=("unacceptable", "acceptable"),
        paper_metric="matthews_correlation",
        metrics=("matthews_correlation",),
    ),
    GlueTask(
        "sst2",
        folders=("SST-2", "sst", "sst-2", "sst2"),
        text_columns=("sentence",),
        leaderboard={"test": ("SST-2.tsv", 1821)},
        parquet_texts=("sentence",),
        parquet_labels=("negative", "positive"),
    ),
    GlueTask(
        "mrpc",
        folders=("MRPC", "mrpc"),
        text_columns=("#1 String", "#2 String"),
        leaderboard={"test": ("MRPC.tsv", 1725)},
        parquet_labels=("not_equivalent", "equivalent"),
        label_column="Quality",
        metrics=("accuracy", "f1", "combined_score"),
        unordered=True,
    ),
    GlueTask(
        "stsb",
        folders=("STS-B", "sts", "sts-b", "stsb"),
        labels=(),
        leaderboard={"test": ("STS-B.tsv", 1379)},
        parquet_labels=(),
        label_column="score",
        problem="regression",
        largest=5.0,
        num_epochs=10,
        paper_metric="spearmanr",
        metrics=("pearson", "spearmanr", "combined_score"),
        unordered=True,
    ),
    GlueTask(
        "qqp",
        folders=("QQP", "qqp"),
        text_columns=("question1", "question2"),
        leaderboard={"test": ("QQP.tsv", 390965)},
        parquet_texts=("question1", "question2"),
        parquet_labels=("not_duplicate", "duplicate"),
        label_column="is_duplicate",
        metrics=("accuracy", "f1", "combined_score"),
    ),
    GlueTask(
        "mnli",
        folders=("MNLI", "mnli"),
        labels=_INFERENCE,
        leaderboard={"test_matched": ("MNLI-m.tsv", 9796), "test_mismatched": ("MNLI-mm.tsv", 9847)},
        parquet_texts=_PREMISE,
        parquet_labels=_INFERENCE,
        label_column="gold_label",
        files=_MNLI_FILES,
    ),
    GlueTask(
        "qnli",
        folders=("QNLI", "qnli"),
        text_columns=("question", "sentence"),
        labels=_ENTAILMENT,
        leaderboard={"test": ("QNLI.tsv", 5463)},
        parquet_texts=("question", "sentence"),
        parquet_labels=_ENTAILMENT,
    ),
    GlueTask(
        "rte",
        folders=("RTE", "rte"),
        labels=_ENTAILMENT,
        leaderboard={"test": ("RTE.tsv", 3000)},
        parquet_labels=_ENTAILMENT,
        num_epochs=10,
    ),
    GlueTask(
        "wnli",
        folders=("WNLI", "wnli"),
        leaderboard={"test": ("WNLI.tsv", 146)},
        parquet_labels=("not_entailment", "entailment"),
    ),
    # The diagnostic set, which MNLI's model predicts. Only GLUE's site has its labels. The authors' folder is mnli/.
    GlueTask(
        "ax",
        folders=("diagnostic", "AX", "ax", "MNLI", "mnli"),
        labels=_INFERENCE,
        leaderboard={"test": ("AX.tsv", 1104)},
        parquet_texts=_PREMISE,
        parquet_labels=_INFERENCE,
        files={"test": ("diagnostic.tsv", "AX.tsv")},
        paper_metric="matthews_correlation",
        metrics=("matthews_correlation",),
    ),
)
GLUE_TASKS: dict[str, GlueTask] = {task.name: task for task in _TASKS}
PAPER_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")  # the paper's GLUE score is their mean


def read_glue(task: GlueTask, data_dir: str | os.PathLike, split: str) -> TextExamples:
    """Reads a split of a task. Test splits have no labels.

    Args:
        data_dir: has a folder for each task, with the official TSV files (the folder is named as on GLUE's site or in
            the authors' code) or with the parquet files of nyu-mll/glue.
        split: one of `task.splits`.
    Raises: UserError: there is no such file, it cannot be read, a label is missing or wrong, or a parquet file has
        other classes.
    """
    tsv_files = [f"{folder}/{file}" for folder in task.folders for file in task.files[split]]
    parquet_files = _parquet_files(task, split)
    for file in (*tsv_files, *parquet_files):
        path = os.path.join(data_dir, file)
        if exists(path):
            return (_read_parquet if file in parquet_files else _read_tsv)(task, path, split)
    looked_for = ", ".join([*tsv_files, *parquet_files])
    raise UserError(f"--data_dir={data_dir} has no {split} split of {task.name}; looked for {looked_for}")


def _parquet_files(task: GlueTask, split: str) -> list[str]:
    names = [f"{task.name}/{split}"]
    kind, _, part = split.partition("_")
    if part:  # mnli's validation_matched is also the validation split of mnli_matched
        names.append(f"{task.name}_{part}/{kind}")
    return [f"{name}-00000-of-00001.parquet" for name in names]


def read_glue_texts(
    task: GlueTask, path: str, text_columns: Sequence[str] | None, label_column: str | None = None
) -> TextExamples:
    """Reads texts to predict from a TSV or parquet file, with their labels if it has them.

    As in GLUE's files, quotes in a TSV file are ordinary characters.

    Args:
        path: a `Table` is read as a parquet file.
        text_columns: None for the columns of the task's parquet files if the file has them, else of its TSV files.
        label_column: None for that of the task's own files.
    Raises: UserError: see `read_glue`; a column is missing.
    """
    is_parquet = isinstance(path, Table) or path.lower().endswith(".parquet")
    table = _with_tsv_labels(task, read_table(path)) if is_parquet else _tsv_to_predict(task, path)
    own = task.parquet_texts if set(task.parquet_texts) <= set(table.columns) else task.text_columns
    if label_column is None:
        usual = "label" if is_parquet else task.label_column
        label_column = usual if has_labels(table, usual) else None
    examples = examples_of(table, text_columns or own, label_column, task.problem)
    warn_about_oddities(examples)
    return examples


def _tsv_to_predict(task: GlueTask, path: str) -> Table:
    first = read_bytes(path).partition(b"\n")[0].split(b"\t")
    has_no_header = task.name == "cola" and len(first) == len(_COLA_HEADER) and b"sentence" not in first
    return _tsv_table(path, _COLA_HEADER if has_no_header else None)


def _read_tsv(task: GlueTask, path: str, split: str) -> TextExamples:
    if split.startswith("test"):  # the leaderboard needs a prediction for every row
        return examples_of(_tsv_table(path), task.text_columns, None, task.problem)
    table = _tsv_table(path, _COLA_HEADER if task.name == "cola" else None, _MAX_WRONG_ROWS)
    return examples_of(table, task.text_columns, task.label_column, task.problem)


def _tsv_table(path: str, header: Sequence[str] | None = None, max_wrong_rows: int = 0) -> Table:
    return read_separated(path, "\t", quote_char=False, header=header, max_wrong_rows=max_wrong_rows)


def _read_parquet(task: GlueTask, path: str, split: str) -> TextExamples:
    is_test = split.startswith("test")  # the labels of test splits are all -1
    table = _with_tsv_labels(task, read_table(path))
    return examples_of(table, task.parquet_texts, None if is_test else "label", task.problem)


def _with_tsv_labels(task: GlueTask, table: Table) -> Table:
    """A table in which the class ids of a parquet file stand for the names in the TSV files."""
    names = table.class_names.get("label", task.parquet_labels)
    if names != task.parquet_labels:
        expected = ", ".join(task.parquet_labels)
        raise UserError(f"{table.source} has the classes {', '.join(names)}, expected {expected} as in nyu-mll/glue")
    return Table(table.source, table.columns, table.rows, {"label": task.labels} if task.labels else {})
