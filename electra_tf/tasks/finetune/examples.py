"""The examples of a split, texts with labels from the columns of a table, and the ids of labels."""

import ast
import contextlib
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.data.tables import Table, read_table

logger = logging.getLogger(__name__)

UNSTATED_COLUMNS = ("text", "text_pair")  # of a model whose source names no columns of text; the second one may lack
ID_COLUMNS = ("id", "idx", "index")  # the first of these columns in a file has its ids
# A list as text, or 0 and 1 for each label; a name may be in brackets, too.
_LIST = re.compile(r"""\[(['"\d].*)?\]|[\s()\[]*(0|1|True|False)([\s,]+(0|1|True|False))+[\s()\]]*""", re.DOTALL)
_WITHOUT_COMMAS = re.compile(r"""['"]\s+['"]""")  # as NumPy writes texts; Python would join them
NO_LABEL = frozenset({None, "-", "-1", "-1.0", "nan", "NaN", "null", "NULL"})  # see `no_label_marks`

_ZERO_AND_ONE = frozenset({"0", "0.0", "1", "1.0", "+1", "+1.0"})
_NEGATIVE_OR_FRACTION = re.compile(r"-\d.*|\d*\.\d*[1-9]\d*")


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
        kept = [index for index, label in enumerate(self.labels) if label is not None]
        columns = ([each[index] for index in kept] for each in (self.labels, self.ids, self.rows, *self.inputs))
        labels, ids, rows, *inputs = columns
        return replace(self, inputs=tuple(inputs), labels=labels, ids=ids, rows=rows)

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
        label_column: None to read no labels.
        labels_in: reads the labels in a column of a table, None for a row without a label.
        may_lack_labels: True to read no labels if the column is missing.
    Raises: UserError: the file cannot be read; a column or a text is missing.
    """
    table = read_table(path)
    if may_lack_labels and label_column not in table.columns:
        label_column = None
    if not 1 <= len(text_columns) <= 2:
        raise UserError(f"--text_columns {' '.join(text_columns)}: expected one or two columns")
    texts = tuple(table.texts(name) for name in text_columns)
    labels = labels_or_none(labels_in(table, label_column), table) if label_column else None
    return Examples(texts, labels, ids_of(table, (*text_columns, label_column)), table.source, table.rows)


def labels_or_none(labels: list, table: Table) -> list | None:
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


def class_labels(table: Table, column: str, known: Sequence[str] = ()) -> list[str | None]:
    """The label of each row, None for no label. Args: known: see `no_label_marks`. Raises: UserError: one is a list."""
    labels = [class_label(value, table.where(row), column) for row, value in enumerate(table.labels(column))]
    marks = no_label_marks(table, column, labels, known)
    return [None if label in marks else label for label in labels]


def no_label_marks(table: Table, column: str, used: Iterable[str | None], known: Sequence[str]) -> frozenset[str]:
    """Returns those of `NO_LABEL` that mean so among the labels used in a column.

    Args: known: the labels of the task, which are labels whatever they are. Without them, or names in the file, `-` is
        a label beside `+`, and -1 on a scale: where the other is 0 or 1, or one is negative or a fraction.
    Raises: UserError: -1 stands beside 0 and 1, where it may mean either.
    """
    if known := table.class_names.get(column, known):
        return NO_LABEL - {*known}
    used = {*used}
    others = used - NO_LABEL
    are_binary = others <= _ZERO_AND_ONE and len({float(label) for label in others}) == 2
    if are_binary and used & {"-1", "-1.0"}:
        raise UserError(
            f"{table.source} has -1 beside 0 and 1 in {column!r}; give --labels 0 1 if it means no label, or "
            "--labels -1 0 1 if it is a label"
        )
    is_scale = others and (others <= _ZERO_AND_ONE or any(map(_NEGATIVE_OR_FRACTION.fullmatch, others)))
    return NO_LABEL - ({"-1", "-1.0"} if is_scale else set()) - ({"-"} if "+" in used else set())


def numbers(table: Table, column: str, known: Sequence[str] = ()) -> list[float | None]:
    """The number of each row, None for no label; -1 is a number, but means no label where it stands alone.

    Raises: UserError: one is not finite, or a list.
    """
    found = [_number(value, table.where(row), column) for row, value in enumerate(table.labels(column))]
    return found if any(number not in (None, -1) for number in found) else [None] * len(found)


def is_missing(value: Any) -> bool:
    """Whether a value is empty, null or NaN, which is how pandas writes a missing number."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def listed(text: str) -> list | None:
    """The values of a list, tuple or set as JSON or Python write it, of a set sorted; None for any other text."""
    text = text.strip().removeprefix("frozenset")
    if text.startswith(("[", "(", "{", "set()")) and not _WITHOUT_COMMAS.search(text):
        for parse in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                if isinstance(values := parse(text), list | tuple | set):
                    return sorted(values, key=str) if isinstance(values, set) else list(values)
    return None


def class_label(value: Any, where: str, column: str) -> str | None:
    """The name of a label in a file, None if it is missing.

    Raises: UserError: it is a list; `where` and `column` name it.
    """
    is_list = isinstance(value, list | tuple | set | frozenset | dict | bytes)
    if is_list or (isinstance(value, str) and (_LIST.fullmatch(value) or listed(value) is not None)):
        raise UserError(
            f"{where} has {value!r:.80} in {column!r}, expected the name of a label (for lists: --task=multi_label)"
        )
    return None if is_missing(value) else text_of(value).strip()


def text_of(value: Any) -> str:
    """A label or id as text. A column of integers with a missing value becomes floats in pandas."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _number(value: Any, where: str, column: str) -> float | None:
    if is_missing(value) or (isinstance(value, str) and value.strip() in NO_LABEL - {"-1", "-1.0"}):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
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
