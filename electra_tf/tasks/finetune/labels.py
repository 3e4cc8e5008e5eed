"""The labels of a split: what the cells of their column mean, which of them are learnt, and their ids and weights."""

import ast
import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.examples import Examples, is_missing, text_of

_MINUS_ONE = frozenset({"-1", "-1.0"})
NO_LABEL = frozenset({None, "-", "nan", "NaN", "null", "NULL"}) | _MINUS_ONE  # see `no_label_marks`
# A list as text, or 0 and 1 for each label; a name may be in brackets, too.
_LIST = re.compile(r"""\[(['"\d].*)?\]|[\s()\[]*(0|1|True|False)([\s,]+(0|1|True|False))+[\s()\]]*""", re.DOTALL)
_WITHOUT_COMMAS = re.compile(r"""['"]\s+['"]""")  # as NumPy writes texts; Python would join them
_ZERO_AND_ONE = frozenset({"0", "0.0", "1", "1.0", "+1", "+1.0"})
_NEGATIVE_OR_FRACTION = re.compile(r"-\d.*|\d*\.\d*[1-9]\d*")


def class_labels(table: Table, column: str, known: Sequence[str] = ()) -> list[str | None]:
    """The label of each row, None for no label. Args: known: see `no_label_marks`. Raises: UserError: one is a list."""
    labels = [class_label(value, table.where(row), column) for row, value in enumerate(table.labels(column))]
    marks = no_label_marks(table, column, labels, known)
    return [None if label in marks else label for label in labels]


def no_label_marks(
    table: Table, column: str, used: Iterable[str | None], known: Sequence[str]
) -> frozenset[str | None]:
    """Returns those of `NO_LABEL` that mean so among the labels used in a column.

    Args: known: the labels of the task, which are labels whatever they are. Without them, or names in the file, `-` is
        a label beside `+`, and -1 on a scale: where the other is 0 or 1, or one is negative or a fraction.
    Raises: UserError: -1 stands beside 0 and 1, where it may mean either.
    """
    if known := table.class_names.get(column, known):
        return NO_LABEL - {*known}
    used = {*used}
    others = {label for label in used if label is not None} - NO_LABEL
    are_binary = others <= _ZERO_AND_ONE and len({float(label) for label in others}) == 2
    if are_binary and used & _MINUS_ONE:
        raise UserError(
            f"{table.source} has -1 beside 0 and 1 in {column!r}; give labels 0 1 if it means no label, or "
            "labels -1 0 1 if it is a label"
        )
    is_scale = others and (others <= _ZERO_AND_ONE or any(map(_NEGATIVE_OR_FRACTION.fullmatch, others)))
    return NO_LABEL - (_MINUS_ONE if is_scale else set()) - ({"-"} if "+" in used else set())


def numbers(table: Table, column: str, known: Sequence[str] = ()) -> list[float | None]:
    """The number of each row, None for no label; -1 is a number, but means no label where it stands alone.

    Raises: UserError: one is not finite, or a list.
    """
    values, found = table.labels(column), []
    texts = [None if is_missing(value) else text_of(value).strip() for value in values]
    marks = NO_LABEL - _MINUS_ONE if {*texts} - NO_LABEL else NO_LABEL
    for row, (value, text) in enumerate(zip(values, texts, strict=True)):
        try:
            number = None if text in marks else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if number is not None and not math.isfinite(number):
            raise UserError(
                f"{table.where(row)} has {value!r} as {column!r}, expected a number; for names, give "
                "task=classification"
            )
        found.append(number)
    return found


def listed(text: str) -> list[Any] | None:
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
            f"{where} has {value!r:.80} in {column!r}, expected the name of a label (for lists: task=multi_label)"
        )
    return None if is_missing(value) else text_of(value).strip()


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


def label_set(examples: Examples, given: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the labels to learn, in the order of their ids.

    Args:
        examples: the training split, with labels of `classification` or `multi_label`.
        given: the labels in the user's order; empty for those of the examples, sorted by value if all are numbers.
    Raises: UserError: the examples have no label, or only one class.
    """
    used = {name for each in examples.gold for name in ([each] if isinstance(each, str) else each)}
    if len(used) > 1 and all(not isinstance(each, str) and used == set(each) for each in examples.gold):
        raise UserError(
            f"{examples.source}: every example has all labels, {list_briefly(sorted(used))}; give the names of the "
            "labels that an example has, not a 0 or 1 for each label"
        )
    least = 2 if isinstance(examples.gold[0], str) else 1
    if len(used) < least:
        found = f"only the label {min(used)!r}" if used else "no labels"
        raise UserError(f"{examples.source} has {found}; training needs {least} or more")
    try:
        values = {label: float(label) for label in used}
        are_numbers = all(map(math.isfinite, values.values()))
    except ValueError:
        are_numbers = False
    return tuple(given or sorted(used, key=(lambda label: (values[label], label)) if are_numbers else str))


def class_weights(
    used: Sequence[str], labels: Sequence[str], setting: Literal["balanced"] | Mapping[str, float] | tuple[float, ...]
) -> npt.NDArray[np.float32]:
    """Returns the weight of each class in the loss: [C] float32.

    Args:
        used: the label of each example of the training split; only read for "balanced".
        setting: `SentenceConfig.class_weights`, which are positive: "balanced" for N / (C * number of examples of
            the class), as in scikit-learn; or weights by label, 1 for labels without one; or the weight of each label.
    Raises: UserError: an unknown label, or "balanced" and a class without examples.
    """
    if setting == "balanced":
        counts = Counter(used)
        if without := [label for label in labels if label not in counts]:
            raise UserError(
                f"class_weights=balanced needs task=classification and examples of each label; {without[0]!r} has none"
            )
        return np.array([len(used) / (len(labels) * counts[label]) for label in labels], np.float32)
    if isinstance(setting, Mapping):
        label_ids((("class_weights", label) for label in setting), labels, str)
        setting = tuple(setting.get(label, 1.0) for label in labels)
    return np.array(setting, np.float32)
