"""The examples of a split, texts with labels from the columns of a table, and the ids of labels."""

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.data.tables import Table, read_table

UNSTATED_COLUMNS = ("text", "text_pair")  # of a model whose source names no columns of text; the second one may lack
ID_COLUMNS = ("id", "idx", "index")  # the first of these columns in a file has its ids
# A list as text, or 0 and 1 for each label; a name may be in brackets, too.
_LIST = re.compile(r"""\[(['"\d].*)?\]|[\s()\[]*(0|1|True|False)([\s,]+(0|1|True|False))+[\s()\]]*""", re.DOTALL)


@dataclass(frozen=True)
class Examples:
    """The N examples of a split.

    Attributes:
        inputs: columns of N values, what the model reads: one or two columns of texts; of tagging, lists of words; of
            multiple choice, contexts and lists of choices; of question answering, `Question`s.
        labels: N labels: str, for regression float, for `multi_label` tuple[str, ...], for tagging a list with a tag
            for each word, for multiple choice the index of the right one, for question answering tuple[Answer, ...];
            None for unlabelled examples.
        ids: the names of the examples: the file's own ids, or else numbers from 0.
        source, rows: the file, and the row of each example in it, see `electra_tf.data.tables.Table`; of tagging, the
            line or row of each word.
    """

    inputs: tuple[list, ...]
    labels: list | None
    ids: list[str]
    source: str
    rows: Sequence

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, index: int) -> str:
        """`file:row` of an example, for messages."""
        return f"{self.source}:{self.rows[index]}"

    def known(self, index: int) -> dict[str, Any]:
        """The first columns of a prediction: the id of an example and, if it has one, its label."""
        label = None if self.labels is None else self.labels[index]
        label = list(label) if isinstance(label, tuple) else label
        return {"id": self.ids[index], **({} if self.labels is None else {"label": label})}


def read_examples(
    path: str | os.PathLike,
    text_columns: Sequence[str],
    label_column: str | None,
    labels_in: Callable[[Table, str], list],
    may_lack_labels: bool = False,
) -> Examples:
    """Reads one or two columns of text and their labels from a file of `electra_tf.data.tables.read_table`.

    Args:
        label_column: None to read no labels.        labels_in: reads the labels in a column of a table.
        may_lack_labels: True to read no labels if the column is missing or empty; see `has_labels`.
    Raises: UserError: the file cannot be read; a column, a text or a label is missing.
    """
    table = read_table(path)
    if may_lack_labels and label_column and not has_labels(table, label_column):
        label_column = None
    return examples_of(table, text_columns, label_column, labels_in)


def examples_of(
    table: Table, text_columns: Sequence[str], label_column: str | None, labels_in: Callable[[Table, str], list]
) -> Examples:
    """Returns the examples in a table's columns, see `read_examples`; without `label_column` they have no labels."""
    if not 1 <= len(text_columns) <= 2:
        raise UserError(f"--text_columns {' '.join(text_columns)}: expected one or two columns")
    texts = tuple(table.texts(name) for name in text_columns)
    labels = labels_in(table, label_column) if label_column else None
    return Examples(texts, labels, ids_of(table, (*text_columns, label_column)), table.source, table.rows)


def has_labels(table: Table, column: str) -> bool:
    """Returns True if a table has a column with a label. In files to predict it may be empty, or hold -1 alone."""
    values = table.labels(column) if column in table.columns else []
    return any(value not in (None, "", -1, "-1") and value == value for value in values)  # NaN: see `class_label`


def ids_of(table: Table, used: Sequence[str | None] = ()) -> list[str]:
    """Returns the ids of a table's rows, or else numbers from 0. Columns in `used` hold no ids."""
    names = [name for name in ID_COLUMNS if name in table.columns and name not in used]
    values = table.columns[names[0]] if names else [None] * len(table.rows)
    return [text_of(row if value is None or value != value else value) for row, value in enumerate(values)]


def class_labels(table: Table, column: str) -> list[str]:
    """The label of each row. Raises: UserError: one is missing, or is a list."""
    return [class_label(value, table.where(row), column) for row, value in enumerate(table.labels(column))]


def numbers(table: Table, column: str) -> list[float]:
    """The number of each row. Raises: UserError: one is missing, not finite, or a list."""
    return [_number(value, table.where(row), column) for row, value in enumerate(table.labels(column))]


def class_label(value: Any, where: str, column: str) -> str:
    """The name of a label in a file. Raises: UserError: it is missing or a list; `where` and `column` name it."""
    if isinstance(value, list | dict | bytes) or (isinstance(value, str) and _LIST.fullmatch(value)):
        raise UserError(
            f"{where} has {value!r:.80} in {column!r}, expected the name of a label (for lists: --task=multi_label)"
        )
    if value is None or value == "" or value != value:  # NaN is how pandas writes a missing value
        raise UserError(f"{where} has no label in {column!r}")
    return text_of(value)


def text_of(value: Any) -> str:
    """A label or id as text. A column of integers with a missing value becomes floats in pandas."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


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


def with_swapped_pairs(examples: Examples) -> Examples:
    """Returns the examples, followed by the same examples with their two texts swapped.

    Source: `double_unordered` of google-research/electra, for tasks in which the order of the texts has no meaning.
    """
    first, second = examples.inputs
    labels, ids, rows = (
        None if each is None else [*each] * 2 for each in (examples.labels, examples.ids, examples.rows)
    )
    return replace(examples, inputs=(first + second, second + first), labels=labels, ids=ids, rows=rows)


def label_ids(
    pairs: Iterable[tuple[Any, str]], labels: Sequence[str], where: Callable[[Any], str], kind: str = "label"
) -> list[int]:
    """Returns the ids of labels, each with the place that `where` names. Raises: UserError: one is not in `labels`."""
    ids, number_of = [], {label: number for number, label in enumerate(labels)}
    for place, label in pairs:
        if label not in number_of:
            raise UserError(f"{where(place)} has the {kind} {label!r}, expected one of: {list_briefly(labels)}")
        ids.append(number_of[label])
    return ids
