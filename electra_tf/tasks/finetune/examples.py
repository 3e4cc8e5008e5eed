"""The examples of a split, texts with labels from the columns of a table, and the ids of labels."""

import contextlib
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.data.tables import Table, is_index, read_table

logger = logging.getLogger(__name__)

Problem = Literal["classification", "multi_label", "regression"]

UNSTATED_COLUMNS = ("text", "text_pair")  # of a model whose source names no columns of text; the second one may lack
ID_COLUMNS = ("id", "idx", "index")  # the first of these columns in a file has its ids
_BINARY = (0, 1, "0", "1", "True", "False")
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
    problem: Problem,
    may_lack_labels: bool = False,
    known_labels: Sequence[str] = (),
) -> Examples:
    """Reads one or two columns of text and their labels from a file of `electra_tf.data.tables.read_table`.

    Args:
        label_column: None to read no labels. The labels of a `multi_label` example are a list; in CSV and TSV a JSON
            list, or names with commas between them.
        may_lack_labels: True to read no labels if the column is missing or empty; see `has_labels`.
    Raises: UserError: the file cannot be read; a column, a text or a label is missing. A warning is logged about empty
        texts and repeated ids.
    """
    table = read_table(path)
    if may_lack_labels and label_column and not has_labels(table, label_column, known_labels):
        label_column = None
    examples = examples_of(table, text_columns, label_column, problem)
    warn_about_oddities(examples)
    return examples


def warn_about_oddities(examples: Examples) -> None:
    """Logs a warning about empty texts and repeated ids."""
    rows = range(len(examples))
    empty = [row for row in rows if not all(column[row].strip() for column in examples.inputs)]
    known: set[str] = set()
    repeated = [row for row in rows if examples.ids[row] in known or known.add(examples.ids[row])]
    found = [
        f"{len(those)} of {len(examples)} {name}, first in {examples.where(those[0])}"
        for those, name in ((empty, "examples have an empty text"), (repeated, "ids repeat an earlier one"))
        if those
    ]
    if found:
        logger.warning("warning: %s", "; ".join(found))


def examples_of(table: Table, text_columns: Sequence[str], label_column: str | None, problem: Problem) -> Examples:
    """Returns the examples in a table's columns, see `read_examples`; without `label_column` they have no labels."""
    if not 1 <= len(text_columns) <= 2:
        raise UserError(f"--text_columns {' '.join(text_columns)}: expected one or two columns")
    texts = tuple(table.texts(name) for name in text_columns)
    labels = _read_labels(table, label_column, problem) if label_column else None
    return Examples(texts, labels, ids_of(table, (*text_columns, label_column)), table.source, table.rows)


def has_labels(table: Table, column: str, known_labels: Sequence[str] = ()) -> bool:
    """Returns True if a table has a column with a label. In files to predict it may be empty, or hold -1 alone.

    Args:
        known_labels: of the model. If -1 is one of them, it is no mark of missing labels.
    """
    values = table.labels(column) if column in table.columns else []
    absent = (None, "") if "-1" in known_labels else (None, "", -1, "-1")
    return any(value not in absent and value == value for value in values)  # NaN: see `_class_label`


def ids_of(table: Table, used: Sequence[str | None] = ()) -> list[str]:
    """Returns the ids of a table's rows, or else numbers from 0. Columns in `used` hold no ids."""
    names = [name for name in ID_COLUMNS if name in table.columns and name not in used]
    values = table.columns[names[0]] if names else [None] * len(table.rows)
    return [text_of(row if value is None or value != value else value) for row, value in enumerate(values)]


def _read_labels(table: Table, column: str, problem: Problem) -> list:
    """The labels of a column. Raises: UserError: one is missing or of another kind, or a list has a 0 or 1 for each."""
    values = table.labels(column)
    if problem == "multi_label":
        values = [_label_list(value, table.where(row), column) for row, value in enumerate(values)]
    lists = {row: each for row, each in enumerate(values) if each and isinstance(each, list)}
    binary = [each for each in lists.values() if all(number in _BINARY for number in each)]
    has_repeats = any(len(set(each)) < len(each) for each in binary)
    has_shares = any(isinstance(number, float) and number % 1 for each in lists.values() for number in each)
    if has_repeats or has_shares or (binary and problem != "multi_label"):  # of which [0, 1] may be two ids
        row = next(iter(lists))
        raise UserError(
            f"{table.where(row)} has {values[row]!r:.80} as {column!r}, numbers that stand for all labels in their "
            "order; give the names of the labels that the example has"
        )
    return [_LABEL_READERS[problem](value, table.where(row), column) for row, value in enumerate(values)]


def _class_label(value: Any, where: str, column: str) -> str:
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


def _label_list(value: Any, where: str, column: str) -> list:
    if isinstance(value, str) and not value.startswith("["):
        return list(filter(None, map(str.strip, value.split(","))))
    if isinstance(value, str):
        for text in (value, value.replace("'", '"')):  # JSON, or as pandas writes a list
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(text)
    if not isinstance(value, list):
        raise UserError(f"{where} has {value!r} as {column!r}, expected a list of labels, as JSON in a text")
    return value


def _label_tuple(value: list, where: str, column: str) -> tuple[str, ...]:
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


def with_swapped_pairs(examples: Examples) -> Examples:
    """Returns the examples, followed by the same examples with their two texts swapped.

    Source: `double_unordered` of google-research/electra, for tasks in which the order of the texts has no meaning.
    """
    first, second = examples.inputs
    labels, ids, rows = (
        None if each is None else [*each] * 2 for each in (examples.labels, examples.ids, examples.rows)
    )
    return replace(examples, inputs=(first + second, second + first), labels=labels, ids=ids, rows=rows)


def require_no_index(examples: Examples) -> None:
    """Raises: UserError: a column of the training split counts the rows, as an index of another program does.

    Other splits are not checked: a model may have to predict the text "1", or ten examples of ten labels.
    """
    labels = [each[0] if isinstance(each, tuple) and len(each) == 1 else each for each in examples.labels]
    for values, kind, fewest in (*((texts, "texts", 3) for texts in examples.inputs), (labels, "labels", 10)):
        if is_index(values, fewest):
            raise UserError(f"{examples.source}: the column of {kind} counts the rows; give another column")


def label_set(examples: Examples, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """Returns the labels to learn, in the order of their ids.

    Args:
        examples: the training split, with labels of `classification` or `multi_label`.
        given: the labels in the user's order; None for those of the examples, sorted by value if all are numbers.
    Raises: UserError: a label is given twice; the examples have no label, or only one class.
    """
    require_no_index(examples)
    used = {name for each in examples.labels for name in ([each] if isinstance(each, str) else each)}
    if len(used) > 1 and all(not isinstance(each, str) and used == set(each) for each in examples.labels):
        raise UserError(
            f"{examples.source}: every example has all labels, {list_briefly(sorted(used))}; give the names of the "
            "labels that an example has, not a 0 or 1 for each label"
        )
    if not used:
        raise UserError(f"{examples.source} has no labels; training needs at least one")
    if isinstance(examples.labels[0], str) and len(used) < 2:
        raise UserError(f"{examples.source} has only the label {min(used)!r}; training needs two or more")
    labels = tuple(given) if given is not None else tuple(sorted(used, key=_sort_key(used)))
    if len(set(labels)) < len(labels):
        raise UserError(f"--labels {list_briefly(labels)} has a label twice; give each label once")
    return labels


def _sort_key(labels: set[str]) -> Callable[[str], Any]:
    try:
        numbers = {label: float(label) for label in labels}
    except ValueError:
        return str
    return (lambda label: (numbers[label], label)) if all(map(math.isfinite, numbers.values())) else str


def class_targets(examples: Examples, labels: Sequence[str]) -> np.ndarray:
    """Returns the id of each example's label: [N] int32. Raises: UserError: a label is not in `labels`."""
    return np.array(label_ids(enumerate(examples.labels), labels, examples.where), np.int32)


def multi_label_targets(examples: Examples, labels: Sequence[str]) -> np.ndarray:
    """Returns [N, C] int32, 1 where an example has a label. Raises: UserError: a label is not in `labels`."""
    targets = np.zeros((len(examples), len(labels)), np.int32)
    pairs = [(index, name) for index, names in enumerate(examples.labels) for name in names]
    targets[[index for index, _ in pairs], label_ids(pairs, labels, examples.where)] = 1
    return targets


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


def target_range(examples: Examples) -> tuple[float, float]:
    """Returns the smallest and the largest label of a training split.

    Raises: UserError: they are equal, or a column of the split counts the rows.
    """
    require_no_index(examples)
    smallest, largest = min(examples.labels), max(examples.labels)
    if smallest == largest:
        raise UserError(f"{examples.source} has only the label {smallest}; regression needs different numbers")
    return smallest, largest


def scaled_targets(examples: Examples, smallest: float, largest: float) -> np.ndarray:
    """Returns the labels, scaled so that `smallest` becomes 0 and `largest` becomes 1: [N] float32."""
    return ((np.array(examples.labels, np.float64) - smallest) / (largest - smallest)).astype(np.float32)


def class_weights(
    targets: np.ndarray, labels: Sequence[str], setting: Literal["balanced"] | Mapping[str, float] | tuple[float, ...]
) -> np.ndarray:
    """Returns the weight of each class in the loss: [C] float32.

    Args:
        targets: [N] int32, the class ids of the training split; only read for "balanced".
        setting: `SentenceConfig.class_weights`, which are positive: "balanced" for N / (C * number of examples of the
            class), as in scikit-learn; or weights by label, 1 for labels without one; or the weight of each label.
    Raises: UserError: an unknown label, "balanced" and a class without examples, or another number of weights.
    """
    if setting == "balanced":
        counts = np.bincount(targets, minlength=len(labels))
        if not counts.all():
            raise UserError(
                f"--class_weights balanced: no training example has the label {labels[int(np.argmin(counts))]!r}"
            )
        return (len(targets) / (len(labels) * counts)).astype(np.float32)
    if isinstance(setting, tuple) and len(setting) == len(labels):
        setting = dict(zip(labels, setting, strict=True))
    if not isinstance(setting, Mapping):
        expected = f"expected weights by label, one for each of {list_briefly(labels)}, or balanced"
        raise UserError(f"--class_weights {setting!r:.80}: {expected}")
    if unknown := [label for label in setting if label not in labels]:
        raise UserError(f"--class_weights: the label {unknown[0]!r} is unknown, expected one of {list_briefly(labels)}")
    return np.array([setting.get(label, 1.0) for label in labels], np.float32)
