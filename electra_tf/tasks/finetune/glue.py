"""The GLUE tasks, and their files: the official TSV folders and the parquet files of nyu-mll/glue."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.table_files import Table, read_table, read_text
from electra_tf.tasks.finetune.text_examples import TextExamples, examples_of

MAX_WRONG_ROWS = 10  # QQP's training file has a few rows without all columns; more means a damaged file

logger = logging.getLogger(__name__)

_FILES = {"train": ("train.tsv",), "validation": ("dev.tsv",), "test": ("test.tsv",)}
_MNLI_FILES = {
    "train": ("train.tsv",),
    "validation_matched": ("dev_matched.tsv",),
    "validation_mismatched": ("dev_mismatched.tsv",),
    "test_matched": ("test_matched.tsv",),
    "test_mismatched": ("test_mismatched.tsv",),
}
# CoLA's files with labels are the only ones without a header.
_COLA_HEADER = ("source", "label", "mark", "sentence")


@dataclass(frozen=True)
class GlueTask:
    """What there is to know of a task.

    Attributes:
        folders: names of the folder with its TSV files: the official one, the authors', and others in use.
        text_columns: of the TSV files.
        labels: in Hugging Face's order, as the TSV files and the leaderboard write them; empty for regression.
        leaderboard: by test split, the file that GLUE's site wants, and the number of its rows.
        parquet_texts: the text columns of the parquet files; their labels are in `label`.
        parquet_labels: what the parquet files call the labels.
        label_column: of the TSV files.
        files: by split, the names that its TSV file may have.
        smallest, largest: the range of a regression.
        num_epochs: the authors'.
        paper_metric: what the paper reports.
        metrics: what the leaderboard and Hugging Face report.
        unordered: whether the order of the two texts says nothing; the authors train on both orders then.
    """

    name: str
    folders: tuple[str, ...]
    text_columns: tuple[str, ...]
    labels: tuple[str, ...]
    leaderboard: Mapping[str, tuple[str, int]]
    parquet_texts: tuple[str, ...]
    parquet_labels: tuple[str, ...]
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
        """The splits, named as in nyu-mll/glue."""
        return tuple(self.files)


_SENTENCES = ("sentence1", "sentence2")
_PREMISE = ("premise", "hypothesis")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("entailment", "neutral", "contradiction")
_BINARY = ("0", "1")

_TASKS = (
    GlueTask(
        "cola",
        folders=("CoLA", "cola"),
        text_columns=("sentence",),
        labels=_BINARY,
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
        labels=_BINARY,
        leaderboard={"test": ("SST-2.tsv", 1821)},
        parquet_texts=("sentence",),
        parquet_labels=("negative", "positive"),
    ),
    GlueTask(
        "mrpc",
        folders=("MRPC", "mrpc"),
        text_columns=("#1 String", "#2 String"),
        labels=_BINARY,
        leaderboard={"test": ("MRPC.tsv", 1725)},
        parquet_texts=_SENTENCES,
        parquet_labels=("not_equivalent", "equivalent"),
        label_column="Quality",
        metrics=("accuracy", "f1"),
        unordered=True,
    ),
    GlueTask(
        "stsb",
        folders=("STS-B", "sts", "sts-b", "stsb"),
        text_columns=_SENTENCES,
        labels=(),
        leaderboard={"test": ("STS-B.tsv", 1379)},
        parquet_texts=_SENTENCES,
        parquet_labels=(),
        label_column="score",
        problem="regression",
        largest=5.0,
        num_epochs=10,
        paper_metric="spearmanr",
        metrics=("pearson", "spearmanr"),
        unordered=True,
    ),
    GlueTask(
        "qqp",
        folders=("QQP", "qqp"),
        text_columns=("question1", "question2"),
        labels=_BINARY,
        leaderboard={"test": ("QQP.tsv", 390965)},
        parquet_texts=("question1", "question2"),
        parquet_labels=("not_duplicate", "duplicate"),
        label_column="is_duplicate",
        metrics=("accuracy", "f1"),
    ),
    GlueTask(
        "mnli",
        folders=("MNLI", "mnli"),
        text_columns=_SENTENCES,
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
        text_columns=_SENTENCES,
        labels=_ENTAILMENT,
        leaderboard={"test": ("RTE.tsv", 3000)},
        parquet_texts=_SENTENCES,
        parquet_labels=_ENTAILMENT,
        num_epochs=10,
    ),
    GlueTask(
        "wnli",
        folders=("WNLI", "wnli"),
        text_columns=_SENTENCES,
        labels=_BINARY,
        leaderboard={"test": ("WNLI.tsv", 146)},
        parquet_texts=_SENTENCES,
        parquet_labels=("not_entailment", "entailment"),
    ),
    # The diagnostic set: the MNLI model predicts it, and its labels are the site's secret. The authors put it in mnli/.
    GlueTask(
        "ax",
        folders=("diagnostic", "AX", "ax", "MNLI", "mnli"),
        text_columns=_SENTENCES,
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
        data_dir: holds a folder for each task: the official TSV files, in folders named as on GLUE's site or as by the
            authors, or the parquet files of nyu-mll/glue.
        split: one of `task.splits`.
    Raises: UserError: no such file, a file without examples, more than a handful of rows of a wrong width, a missing
        label or one that is no number, parquet files with other classes.
    """
    directory = os.fspath(data_dir)
    tsv_files = [f"{folder}/{file}" for folder in task.folders for file in task.files[split]]
    parquet_files = _parquet_files(task, split)
    for file in (*tsv_files, *parquet_files):
        path = os.path.join(directory, file)
        if tf.io.gfile.exists(path):
            return (_read_parquet if file in parquet_files else _read_tsv)(task, path, split)
    raise UserError(
        f"{directory} has no {split} split of {task.name}; looked for {', '.join([*tsv_files, *parquet_files])}; give "
        "--data_dir the folder that holds the folders of the tasks"
    )


def _parquet_files(task: GlueTask, split: str) -> list[str]:
    names = [f"{task.name}/{split}"]
    kind, _, part = split.partition("_")
    if part:  # validation_matched of mnli is also the validation split of mnli_matched
        names.append(f"{task.name}_{part}/{kind}")
    return [f"{name}-00000-of-00001.parquet" for name in names]


def read_glue_texts(task: GlueTask, path: str, text_columns: Sequence[str] | None) -> TextExamples:
    """Reads the texts of a TSV file, which has quotes like GLUE's own, for the model of a task to predict.

    Args:
        text_columns: None for those of the task's TSV files or, where the file lacks these, of its parquet files.
    Raises: UserError: as `read_glue`; a column that is not there.
    """
    text = read_text(path)
    first = text.partition("\n")[0].split("\t")
    has_no_header = task.name == "cola" and len(first) == len(_COLA_HEADER) and task.text_columns[0] not in first
    table = _tsv_table(path, text, _COLA_HEADER if has_no_header else None, keeps_all=True)
    its_own = task.parquet_texts if set(task.parquet_texts) <= set(table.columns) else task.text_columns
    return examples_of(table, text_columns or its_own, None, task.problem)


def _read_tsv(task: GlueTask, path: str, split: str) -> TextExamples:
    is_test = split.startswith("test")
    header = _COLA_HEADER if task.name == "cola" and not is_test else None
    table = _tsv_table(path, read_text(path), header, keeps_all=is_test)
    return examples_of(table, task.text_columns, None if is_test else task.label_column, task.problem)


def _tsv_table(path: str, text: str, header: Sequence[str] | None, keeps_all: bool) -> Table:
    """The columns of a file with this text; without a `header` its first line is one."""
    # Not by csv: a quote is a character like any other here, and csv would join the rows between two of them.
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, start=1) if line]
    if header is None:
        header = rows.pop(0)[1] if rows else ()
    if not rows:
        raise UserError(f"{path} has no examples; expected at least one row")
    rows = _rows_of_width(rows, len(header), path, keeps_all)
    columns = dict(zip(header, map(list, zip(*(row for _, row in rows), strict=True)), strict=True))
    return Table(path, columns, [line for line, _ in rows])


def _rows_of_width(rows: list, width: int, path: str, keeps_all: bool) -> list:
    """The rows of a width, or with `keeps_all` the others too: the leaderboard wants a prediction for each."""
    wrong = [line for line, row in rows if len(row) != width]
    if not wrong:
        return rows
    shown = ", ".join(map(str, wrong[:MAX_WRONG_ROWS])) + (", ..." if len(wrong) > MAX_WRONG_ROWS else "")
    found = f"{path}: {len(wrong)} of {len(rows)} rows have not the {width} columns of the header, lines {shown}"
    if len(wrong) > MAX_WRONG_ROWS or len(wrong) == len(rows):
        raise UserError(f"{found}; expected {MAX_WRONG_ROWS} such rows at most; fetch the file again")
    if keeps_all:
        logger.warning("%s; texts that they lack are empty", found)
        return [(line, [*row, *[""] * width][:width]) for line, row in rows]
    logger.warning("%s; they are left out", found)
    return [(line, row) for line, row in rows if len(row) == width]


def _read_parquet(task: GlueTask, path: str, split: str) -> TextExamples:
    table = read_table(path)
    is_test = split.startswith("test")  # its labels are all -1
    names = table.class_names.get("label", task.parquet_labels)
    if names != task.parquet_labels:
        raise UserError(
            f"{path} has the classes {', '.join(names)}, expected {', '.join(task.parquet_labels)}; give the parquet "
            f"files of {task.name} in nyu-mll/glue"
        )
    # Classes are numbers in the file; here they are called what the TSV files call them.
    table = Table(table.source, table.columns, table.lines, {"label": task.labels} if task.labels else {})
    return examples_of(table, task.parquet_texts, None if is_test else "label", task.problem)
