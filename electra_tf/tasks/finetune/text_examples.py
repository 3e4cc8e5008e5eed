"""Texts with labels, read from the columns of a table, and the ids of labels."""

import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table, listed, read_table

logger = logging.getLogger(__name__)

Problem = Literal["classification", "multi_label", "regression"]

ID_COLUMNS = ("id", "idx", "index")  # the first of these columns in a file has its ids


@dataclass(frozen=True)
class TextExamples:
    """The N examples of a split.

    Attributes:
        texts: one or two columns of N texts.
        labels: N labels: str, for regression float, for `multi_label` tuple[str, ...]; None for unlabelled text.
        ids: the names of the examples: the file's own ids, or else numbers from 0.
        source, rows: the file, and the row of each example in it, see `electra_tf.data.tables.Table`.
    """

    texts: tuple[list[str], ...]
    labels: list | None
    ids: list[str]
    source: str
    rows: Sequence[int]

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, index: int) -> str:
        """`file:row` of an example, for messages."""
        return f"{self.source}:{self.rows[index]}"


def read_examples(
    path: str | os.PathLike,
    text_columns: Sequence[str],
    label_column: str | None,
    problem: Problem,
    may_lack_labels: bool = False,
) -> TextExamples:
    """Reads one or two columns of text and their labels from a file of `electra_tf.data.tables.read_table`.

    Args:
        label_column: None to read no labels. The labels of a `multi_label` example are a list; in CSV and TSV a JSON
            list, or names with commas between them.
        may_lack_labels: True to read no labels if the column is missing or empty.
    Raises: UserError: the file cannot be read; a column, a text or a label is missing. A warning is logged about empty
        texts and repeated ids.
    """
    table = read_table(path)
    if may_lack_labels and label_column and not has_values(table, label_column):
        label_column = None
    examples = examples_of(table, text_columns, label_column, problem)
    warn_about_oddities(examples)
    return examples


def warn_about_oddities(examples: TextExamples) -> None:
    """Logs a warning about empty texts and repeated ids."""
    rows = range(len(examples))
    empty = [row for row in rows if not all(column[row].strip() for column in examples.texts)]
    known: set[str] = set()
    repeated = [row for row in rows if examples.ids[row] in known or known.add(examples.ids[row])]
    found = [
        f"{len(those)} of {len(examples)} {name}, first in {examples.where(those[0])}"
        for those, name in ((empty, "examples have an empty text"), (repeated, "ids repeat an earlier one"))
        if those
    ]
    if found:
        logger.warning("warning: %s", "; ".join(found))


def examples_of(table: Table, text_columns: Sequence[str], label_column: str | None, problem: Problem) -> TextExamples:
    """Returns the examples in a table's columns, see `read_examples`; without `label_column` they have no labels."""
    if not 1 <= len(text_columns) <= 2:
        raise UserError(f"--text_columns {' '.join(text_columns)}: expected one or two columns")
    texts = tuple(table.texts(name) for name in text_columns)
    labels = None
    if label_column:
        values = _with_class_names(table, label_column)
        labels = [_LABEL_READERS[problem](value, table.where(row), label_column) for row, value in enumerate(values)]
    return TextExamples(texts, labels, ids_of(table, (*text_columns, label_column)), table.source, table.rows)


def has_values(table: Table, column: str) -> bool:
    """Returns True if a table has a column of labels with a value: in files to predict it may be there, but empty."""
    values = _with_class_names(table, column) if column in table.columns else []
    return any(value not in (None, "") and value == value for value in values)  # NaN: see `_class_label`


def ids_of(table: Table, used: Sequence[str | None] = ()) -> list[str]:
    """Returns the ids of a table's rows, or else numbers from 0. Columns in `used` hold no ids."""
    names = [name for name in ID_COLUMNS if name in table.columns and name not in used]
    values = table.columns[names[0]] if names else [None] * len(table.rows)
    return [text_of(row if value is None or value != value else value) for row, value in enumerate(values)]


def _with_class_names(table: Table, column: str) -> list:
    """The values of a column of labels; class ids are replaced by the names, if the file has these."""
    values, names = table.column(column), table.class_names.get(column)
    if names is None:
        return values
    for row, value in enumerate(values):
        if value is not None and value not in names and (not isinstance(value, int) or value >= len(names)):
            raise UserError(
                f"{table.where(row)} has {value!r} as {column!r}, expected the id of one of: {listed(names)}"
            )
    return [value if value in names else names[value] if value is not None and value >= 0 else None for value in values]


def _class_label(value: Any, where: str, column: str) -> str:
    if isinstance(value, list):
        raise UserError(f"{where} has several labels in {column!r}; give --task=multi_label")
    if value is None or value == "" or value != value:  # NaN is how pandas writes a missing value
        raise UserError(f"{where} has no label in {column!r}")
    return text_of(value)


def text_of(value: Any) -> str:
    """A label or id as text. A column of integers with a missing value becomes floats in pandas."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _label_tuple(value: Any, where: str, column: str) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.startswith("[") else list(filter(None, map(str.strip, value.split(","))))
        except json.JSONDecodeError as error:
            raise UserError(f"{where} has {value!r} as {column!r}, which is not a JSON list: {error.msg}") from None
    if not isinstance(value, list):
        raise UserError(f"{where} has {value!r} as {column!r}, expected a list of labels")
    return tuple(dict.fromkeys(_class_label(label, where, column) for label in value))


def _number(value: Any, where: str, column: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(
            f"{where} has {value!r} as {column!r}, expected a number; for names, give --task=classification"
        )
    return number


_LABEL_READERS: dict[str, Callable[[Any, str, str], Any]] = {
    "classification": _class_label,
    "multi_label": _label_tuple,
    "regression": _number,
}


def with_swapped_pairs(examples: TextExamples) -> TextExamples:
    """Returns the examples, followed by the same examples with their two texts swapped.

    Source: `double_unordered` of google-research/electra, for tasks in which the order of the texts has no meaning.
    """
    first, second = examples.texts
    return TextExamples(
        texts=(first + second, second + first),
        labels=None if examples.labels is None else examples.labels * 2,
        ids=examples.ids * 2,
        source=examples.source,
        rows=[*examples.rows] * 2,
    )


def label_set(examples: TextExamples, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """Returns the labels to learn, in the order of their ids.

    Args:
        examples: the training split, with labels of `classification` or `multi_label`.
        given: the labels in the user's order; None for those of the examples, sorted by value if all are numbers.
    Raises: UserError: a label is given twice; the examples have no label, or only one class.
    """
    used = {name for each in examples.labels for name in ([each] if isinstance(each, str) else each)}
    if not used:
        raise UserError(f"{examples.source} has no labels; training needs at least one")
    if isinstance(examples.labels[0], str) and len(used) < 2:
        raise UserError(f"{examples.source} has only the label {min(used)!r}; training needs two or more")
    labels = tuple(given) if given is not None else tuple(sorted(used, key=_sort_key(used)))
    if len(set(labels)) < len(labels):
        raise UserError(f"--labels {listed(labels)} has a label twice; give each label once")
    return labels


def _sort_key(labels: set[str]) -> Callable[[str], Any]:
    try:
        numbers = {label: float(label) for label in labels}
    except ValueError:
        return str
    return (lambda label: (numbers[label], label)) if all(map(math.isfinite, numbers.values())) else str


def class_targets(examples: TextExamples, labels: Sequence[str]) -> np.ndarray:
    """Returns the id of each example's label: [N] int32. Raises: UserError: a label is not in `labels`."""
    number_of = {label: number for number, label in enumerate(labels)}
    targets = [number_of.get(label, -1) for label in examples.labels]
    if -1 in targets:
        raise _unknown_label(examples, targets.index(-1), examples.labels[targets.index(-1)], labels)
    return np.array(targets, np.int32)


def multi_label_targets(examples: TextExamples, labels: Sequence[str]) -> np.ndarray:
    """Returns [N, C] int32, 1 where an example has a label. Raises: UserError: a label is not in `labels`."""
    number_of = {label: number for number, label in enumerate(labels)}
    targets = np.zeros((len(examples), len(labels)), np.int32)
    for index, names in enumerate(examples.labels):
        for name in names:
            if name not in number_of:
                raise _unknown_label(examples, index, name, labels)
            targets[index, number_of[name]] = 1
    return targets


def _unknown_label(examples: TextExamples, index: int, label: str, labels: Sequence[str]) -> UserError:
    return UserError(f"{examples.where(index)} has the label {label!r}, expected one of: {listed(labels)}")


def target_range(examples: TextExamples) -> tuple[float, float]:
    """Returns the smallest and the largest label of a training split. Raises: UserError: they are equal."""
    smallest, largest = min(examples.labels), max(examples.labels)
    if smallest == largest:
        raise UserError(f"{examples.source} has only the label {smallest}; regression needs different numbers")
    return smallest, largest


def scaled_targets(examples: TextExamples, smallest: float, largest: float) -> np.ndarray:
    """Returns the labels, scaled so that `smallest` becomes 0 and `largest` becomes 1: [N] float32."""
    return ((np.array(examples.labels, np.float64) - smallest) / (largest - smallest)).astype(np.float32)


def class_weights(
    targets: np.ndarray, labels: Sequence[str], setting: Literal["balanced"] | Mapping[str, float]
) -> np.ndarray:
    """Returns the weight of each class in the loss: [C] float32.

    Args:
        targets: [N] int32, the class ids of the training split; only read for "balanced".
        setting: "balanced" for N / (C * number of examples of the class), as in scikit-learn; or weights by label, 1
            for labels without one.
    Raises: UserError: a weight for an unknown label, or one that is not positive; "balanced" and a class without
        examples; another text.
    """
    if setting == "balanced":
        counts = np.bincount(targets, minlength=len(labels))
        if not counts.all():
            raise UserError(
                f"--class_weights balanced: no training example has the label {labels[int(np.argmin(counts))]!r}"
            )
        return (len(targets) / (len(labels) * counts)).astype(np.float32)
    if not isinstance(setting, Mapping):
        raise UserError(f"--class_weights {setting!r}: expected weights by label, or balanced")
    setting = {text_of(label): weight for label, weight in setting.items()}
    if unknown := [label for label in setting if label not in labels]:
        raise UserError(f"--class_weights: the label {unknown[0]!r} is unknown, expected one of {listed(labels)}")
    if wrong := [weight for weight in setting.values() if not (isinstance(weight, Real) and 0 < weight < math.inf)]:
        raise UserError(f"--class_weights: the weight {wrong[0]!r} is not a positive number")
    return np.array([setting.get(label, 1.0) for label in labels], np.float32)
