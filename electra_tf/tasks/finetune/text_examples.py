"""A user's tables, CSV, TSV, JSON lines or parquet, as examples: texts, labels, and where each one stands."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.data.table_files import Table, listed, read_table

Problem = Literal["classification", "multi_label", "regression"]

ID_COLUMNS = ("id", "idx", "index")  # the first of these that a file has names its examples


@dataclass(frozen=True)
class TextExamples:
    """The examples of a split, N of them, as they were read.

    Attributes:
        texts: one or two columns of N texts.
        labels: N labels: str, for regression float, with several labels an example tuple[str, ...]; None if not read.
        ids: what a prediction is called by: the file's own id, else the number of the row from 0.
        source, lines: the file and, for each example, its line from 1.
    """

    texts: tuple[list[str], ...]
    labels: list | None
    ids: list[str]
    source: str
    lines: list[int]

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, index: int) -> str:
        """`file:line` of an example, for messages."""
        return f"{self.source}:{self.lines[index]}"


def read_examples(
    path: str | os.PathLike, text_columns: Sequence[str], label_column: str | None, problem: Problem
) -> TextExamples:
    """Reads one or two columns of text and their labels from a file of a user's own.

    Args:
        path: `.csv`, `.tsv` (both quoted as csv quotes, with a header), `.jsonl` or `.json` (one object a line), or
            `.parquet`; a file or a URL that TensorFlow reads, such as `gs://`.
        label_column: None to read no labels, for prediction. Several labels of an example are a list, in CSV and TSV a
            JSON list or names with commas between them.
    Raises: UserError: unreadable or empty file, a row of another width, broken JSON, a missing column, text or label;
        each names the line.
    """
    return examples_of(read_table(path), text_columns, label_column, problem)


def examples_of(table: Table, text_columns: Sequence[str], label_column: str | None, problem: Problem) -> TextExamples:
    """The examples in a table's columns; see `read_examples`."""
    if not 1 <= len(text_columns) <= 2:
        raise UserError(f"{len(text_columns)} text columns are given ({listed(text_columns)}), expected one or two")
    used = [*text_columns, *([label_column] if label_column else [])]
    texts = tuple(_texts(table, name) for name in text_columns)
    labels = None
    if label_column:
        values = _class_texts(table, label_column)
        labels = [_LABEL_READERS[problem](value, table.where(row), label_column) for row, value in enumerate(values)]
    return TextExamples(texts, labels, _ids(table, used), table.source, table.lines)


def _class_texts(table: Table, name: str) -> list:
    """The values of a column of labels, with the names of classes for their numbers where the file has names."""
    names = table.class_names.get(name)
    if names is None:
        return table.column(name)
    for row, value in enumerate(table.column(name)):
        if value is not None and (not isinstance(value, int) or value >= len(names)):
            raise UserError(
                f"{table.where(row)} has {value!r} as {name!r}, expected the number of one of the file's {len(names)} "
                f"classes, {listed(names)}; correct it"
            )
    return [names[value] if value is not None and value >= 0 else None for value in table.column(name)]


def _texts(table: Table, name: str) -> list[str]:
    values = table.column(name)
    for row, value in enumerate(values):
        if not isinstance(value, str):
            found = f"no {name!r}" if value is None else f"{value!r} as {name!r}"
            raise UserError(f"{table.where(row)} has {found}, expected a text")
    return values


def _ids(table: Table, used: Sequence[str]) -> list[str]:
    for name in ID_COLUMNS:
        if name in table.columns and name not in used and None not in table.columns[name]:
            return [str(value) for value in table.columns[name]]
    return [str(row) for row in range(len(table.lines))]


def _class_label(value: Any, where: str, column: str) -> str:
    if isinstance(value, list):
        raise UserError(f"{where} has several labels as {column!r}; --task=multi_label takes such files")
    if value is None or value == "" or value != value:  # NaN, by which pandas means none
        raise UserError(f"{where} has no {column!r}, expected a label")
    if not isinstance(value, str | int | float):
        raise UserError(f"{where} has {str(value)[:40]!r} as {column!r}, expected a text or a number")
    # pandas makes numbers with a gap among them floats.
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _label_tuple(value: Any, where: str, column: str) -> tuple[str, ...]:
    if isinstance(value, str):
        if value.startswith("["):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise UserError(f"{where} has {value!r} as {column!r}, which is no JSON list: {error.msg}") from None
        else:
            value = [label for label in map(str.strip, value.split(",")) if label]
    if not isinstance(value, list):
        raise UserError(f"{where} has {value!r} as {column!r}, expected a list of labels")
    return tuple(dict.fromkeys(_class_label(label, where, column) for label in value))


def _number(value: Any, where: str, column: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{where} has {value!r} as {column!r}, expected a number; --task=classification takes names")
    return number


_LABEL_READERS: dict[str, Callable[[Any, str, str], Any]] = {
    "classification": _class_label,
    "multi_label": _label_tuple,
    "regression": _number,
}


def with_swapped_pairs(examples: TextExamples) -> TextExamples:
    """The examples, then all of them again with their two texts exchanged, for tasks in which the order says nothing.

    Source: google-research/electra, `double_unordered`, which does so for MRPC and STS-B.
    """
    first, second = examples.texts
    return TextExamples(
        texts=(first + second, second + first),
        labels=None if examples.labels is None else examples.labels * 2,
        ids=examples.ids * 2,
        source=examples.source,
        lines=examples.lines * 2,
    )


def label_set(examples: TextExamples, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """The labels to learn, in the order of their numbers.

    Args:
        examples: of the training split, with labels of classification or `multi_label`.
        given: the labels in an order of the user's; None takes those of the examples in sorted order, as numbers if
            all of them are numbers.
    Raises: UserError: a label given twice or not given, no label, or one class only.
    """
    names = [[label] if isinstance(label, str) else label for label in examples.labels]
    flat = [name for each in names for name in each]
    labels = tuple(given) if given is not None else tuple(sorted(set(flat), key=_sort_key(set(flat))))
    if len(set(labels)) < len(labels):
        raise UserError(f"the labels {listed(labels)} hold one twice; give each once")
    known = set(labels)
    for index, each in enumerate(names):
        if unknown := [name for name in each if name not in known]:
            message = f"has the label {unknown[0]!r}, expected one of --labels: {listed(labels)}; add it there"
            raise UserError(f"{examples.where(index)} {message}")
    if not labels:
        raise UserError(f"{examples.source} has no labels; training needs at least one")
    if isinstance(examples.labels[0], str) and len(set(flat)) < 2:
        raise UserError(
            f"{examples.source} has one class only, {flat[0]!r} in all {len(flat)} examples; training needs two or more"
        )
    return labels


def _sort_key(labels: set[str]) -> Callable[[str], Any]:
    try:
        numbers = {label: float(label) for label in labels}
    except ValueError:
        return str
    return (lambda label: (numbers[label], label)) if all(map(math.isfinite, numbers.values())) else str


def class_targets(examples: TextExamples, labels: Sequence[str]) -> np.ndarray:
    """The number of each example's label: [N] int32. Raises: UserError: a label that is not among `labels`."""
    number_of = {label: number for number, label in enumerate(labels)}
    for index, label in enumerate(examples.labels):
        if label not in number_of:
            raise _unknown_label(examples.where(index), label, labels)
    return np.array([number_of[label] for label in examples.labels], np.int32)


def multi_label_targets(examples: TextExamples, labels: Sequence[str]) -> np.ndarray:
    """1 where an example has a label: [N, C] int32. Raises: UserError: a label that is not among `labels`."""
    number_of = {label: number for number, label in enumerate(labels)}
    targets = np.zeros((len(examples), len(labels)), np.int32)
    for index, names in enumerate(examples.labels):
        for name in names:
            if name not in number_of:
                raise _unknown_label(examples.where(index), name, labels)
            targets[index, number_of[name]] = 1
    return targets


def _unknown_label(where: str, label: str, labels: Sequence[str]) -> UserError:
    return UserError(
        f"{where} has the label {label!r}, expected one of the training file's: {listed(labels)}; correct it or train "
        "with that label"
    )


def target_range(examples: TextExamples) -> tuple[float, float]:
    """The smallest and largest number of a training split. Raises: UserError: all are the same."""
    smallest, largest = min(examples.labels), max(examples.labels)
    if smallest == largest:
        raise UserError(f"{examples.source} has {smallest} as every label; regression needs different numbers")
    return smallest, largest


def scaled_targets(examples: TextExamples, smallest: float, largest: float) -> np.ndarray:
    """The numbers, `smallest` as 0 and `largest` as 1: [N] float32."""
    return ((np.array(examples.labels, np.float64) - smallest) / (largest - smallest)).astype(np.float32)


def class_weights(
    targets: np.ndarray, labels: Sequence[str], setting: Literal["balanced"] | Mapping[str, float]
) -> np.ndarray:
    """The weight of each class in the loss: [C] float32.

    Args:
        targets: [N] int32, of the training split.
        setting: "balanced" weighs a class by N / (C * its examples), as scikit-learn does; else weights by label, 1 for
            a label that is not named.
    Raises: UserError: a weight of an unknown label, or a class without an example where "balanced".
    """
    if setting == "balanced":
        counts = np.bincount(targets, minlength=len(labels))
        if not counts.all():
            missing = labels[int(np.argmin(counts))]
            raise UserError(f"class weights 'balanced': no training example has the label {missing!r}; give weights")
        return (len(targets) / (len(labels) * counts)).astype(np.float32)
    if unknown := [label for label in setting if label not in labels]:
        raise UserError(f"class weights name the label {unknown[0]!r}, expected one of {listed(labels)}")
    return np.array([setting.get(label, 1.0) for label in labels], np.float32)
