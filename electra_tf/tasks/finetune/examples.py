"""The examples of a split, and how texts and their labels are read from the columns of a table."""

import itertools
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.data.tables import Table, read_table

logger = logging.getLogger(__name__)

DataFile = str | os.PathLike[str] | Table  # a path, or data in memory
UNSTATED_COLUMNS = ("text", "text_pair")  # of a model whose source names no columns of text; the second one may lack
ID_COLUMNS = ("id", "idx", "index")  # the first of these columns in a file has its ids


@dataclass(frozen=True)
class Examples:
    """The N examples of a split.

    Attributes:
        inputs: columns of N values, what the model reads: one or two columns of texts; of tagging, lists of words; of
            multiple choice, contexts and lists of choices; of question answering, `Question`s.
        labels: N labels: str, for regression float, for `multi_label` tuple[str, ...], for tagging a list with a tag
            for each word, for multiple choice the index of the right one, for question answering tuple[Answer, ...];
            None for an example without a label. None in place of the list if no example has one.
        ids: the names of the examples: the file's own ids, or else numbers from 0.
        source, rows: the file, and the row of each example in it, see `electra_tf.data.tables.Table`; of tagging, the
            line or row of each word.
    """

    inputs: tuple[list[Any], ...]
    labels: list[Any] | None
    ids: list[str]
    source: str
    rows: Sequence[Any]

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, index: int) -> str:
        """`file:row` of an example, for messages."""
        return f"{self.source}:{self.rows[index]}"

    @property
    def gold(self) -> list[Any]:
        """The labels of examples that have some."""
        assert self.labels is not None
        return self.labels

    @property
    def unlabelled(self) -> list[int]:
        """The indices of the examples without a label, where others have one."""
        return [index for index, label in enumerate(self.labels or ()) if label is None]

    def labelled(self) -> "Examples":
        """The examples that have a label. Raises: UserError: there are none."""
        if self.labels is None:
            raise UserError(f"{self.source} has no labels: all are empty, null, NaN, - or -1")
        if not self.unlabelled:
            return self
        is_kept = [label is not None for label in self.labels]
        columns = (self.labels, self.ids, self.rows, *self.inputs)
        labels, ids, rows, *inputs = (list(itertools.compress(column, is_kept)) for column in columns)
        return replace(self, inputs=tuple(inputs), labels=labels, ids=ids, rows=rows)

    def known(self, index: int) -> dict[str, Any]:
        """The first columns of a prediction: the id of an example and, if it has one, its label."""
        label = None if self.labels is None else self.labels[index]
        label = list(label) if isinstance(label, tuple) else label
        return {"id": self.ids[index], **({} if self.labels is None else {"label": label})}


class NewColumns(NamedTuple):
    """The columns of a file to predict; None: those of the training, of which the labels may be missing."""

    text: tuple[str, ...] | None = None
    label: str | None = None


def read_examples(
    path: DataFile,
    text_columns: Sequence[str],
    label_column: str | None,
    labels_in: Callable[[Table, str], list[Any]] | None,
    may_lack_labels: bool = False,
) -> Examples:
    """Reads one or two columns of text and their labels from a file of `electra_tf.data.tables.read_table`.

    Args:
        label_column: None to read no labels.
        labels_in: reads the labels in a column of a table, None for a row without a label; None to read no labels.
        may_lack_labels: True to read no labels if the column is missing.
    Raises: UserError: the file cannot be read; a column or a text is missing.
    """
    table = read_table(path)
    if may_lack_labels and label_column not in table.columns:
        label_column = None
    texts = tuple(table.texts(name) for name in text_columns)
    labels = labels_or_none(labels_in(table, label_column), table) if labels_in and label_column else None
    return Examples(texts, labels, ids_of(table, (*text_columns, label_column)), table.source, table.rows)


def labels_or_none(labels: list[Any], table: Table) -> list[Any] | None:
    """Returns the labels of a table's rows, None in place of the list if all are None; logs how many are."""
    rows = [str(table.rows[row]) for row, label in enumerate(labels) if label is None]
    if len(rows) == len(labels):
        return None
    if rows:
        found = f"{len(rows)} of {len(labels)} examples have no label (empty, null, NaN, - or -1)"
        logger.info("%s: %s and do not count: rows %s", table.source, found, list_briefly(rows, most=5))
    return labels


def ids_of(table: Table, used: Sequence[str | None] = ()) -> list[str]:
    """Returns the ids of a table's rows, or else numbers from 0. Columns in `used` hold no ids."""
    names = [name for name in ID_COLUMNS if name in table.columns and name not in used]
    values = table.columns[names[0]] if names else [None] * len(table.rows)
    return [text_of(row if value is None or value != value else value) for row, value in enumerate(values)]


def is_missing(value: Any) -> bool:
    """Whether a value is empty, null or NaN, which is how pandas writes a missing number."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def text_of(value: Any) -> str:
    """A label or id as text. A column of integers with a missing value becomes floats in pandas."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def with_swapped_pairs(examples: Examples) -> Examples:
    """Returns the examples, followed by the same examples with their two texts swapped.

    Source: `double_unordered` of google-research/electra, for tasks in which the order of the texts has no meaning.
    """
    first, second = examples.inputs
    inputs, labels = (first + second, second + first), examples.labels and examples.labels * 2
    return replace(examples, inputs=inputs, labels=labels, ids=examples.ids * 2, rows=[*examples.rows] * 2)


def read_texts(
    path: DataFile, task: Any, new: NewColumns | None, labels_in: Callable[[Table, str], list[Any]] | None
) -> Examples:
    """Reads texts.

    Args:
        task: the settings, with the columns of the training; without them, those usual for texts are predicted.
        new: see `Kind.read`.
        labels_in: see `read_examples`; None to read no labels.
    """
    table = read_table(path)
    if new is None:
        return read_examples(table, task.text_columns, task.label_column, labels_in)
    unstated = tuple(name for name in UNSTATED_COLUMNS if name == "text" or name in table.columns)
    has_one_output = len(getattr(task, "labels", ())) == 1  # a file may have any numbers for it
    label = (new.label or task.label_column) if labels_in and not has_one_output else None
    return read_examples(table, new.text or task.text_columns or unstated, label, labels_in, new.label is None)
