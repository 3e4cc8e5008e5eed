"""Classification of a text or a pair of texts: with one label, or with several or none."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.data.batch import Batch
from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.examples import (
    Examples,
    class_label,
    class_labels,
    label_ids,
    listed,
    no_label_marks,
)
from electra_tf.tasks.finetune.scores import class_report, multi_label_report
from electra_tf.tasks.finetune.sentence import Sentence, SentenceConfig, SentenceTask

_BINARY = (0, 1, "0", "1", "True", "False")
_COMMAS = ("><", *"|;\t\n，、；،؛")  # what other files have in place of commas
_PERHAPS_COMMAS = tuple("/&+#:~^•·\\ ")  # also parts of names


class ClassificationTask(SentenceTask):
    """Classifies with one label for each example."""

    target_tensors = {"label_ids": ("", tf.int32)}

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        weights, label_ids = self.label_weights(), batch["label_ids"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_ids, logits=forward)
        return losses * tf.gather(weights, label_ids)


class Classification(Sentence):
    """One label for each example."""

    name, model = "classification", ClassificationTask
    metrics = ("accuracy", "f1_macro", "matthews_correlation")
    has_one_label = True
    labels_in = staticmethod(class_labels)

    def derive(self, train, task):
        return derive_labels(train, task)

    def targets(self, examples, task):
        return class_targets(examples, task.labels)

    def decisions(self, logits, task):
        return logits.argmax(axis=1).astype(np.int32)

    def named(self, decisions, task):
        return [task.labels[index] for index in decisions]

    def report(self, split, logits):
        predicted = self.named(self.decisions(logits, split.task), split.task)
        return class_report(split.task.labels, predicted, split.examples.labels)


class MultiLabelTask(SentenceTask):
    """Classifies with any number of labels for each example."""

    target_tensors = {"label_ids": ("C", tf.int32)}

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        weights, labels = self.label_weights(), tf.cast(batch["label_ids"], tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=forward)
        return tf.reduce_mean(losses * weights, axis=1)


def label_tuples(table: Table, column: str, known: Sequence[str] = ()) -> list[tuple[str, ...] | None]:
    """The labels of each row, none of them for an empty list or text; None for no label, see `no_label_marks`.

    A cell is a list, a list as JSON or Python write it, or names with commas between them.
    """
    values, found = table.labels(column), []
    _require_commas(table, column, values, known)
    for row, value in enumerate(values):
        where = table.where(row)
        labels = _label_list(value, where, column)
        has_shares = any(isinstance(label, float | Decimal) and float(label) % 1 for label in labels)
        if has_shares or (all(label in _BINARY for label in labels) and len(set(labels)) < len(labels)):
            raise UserError(
                f"{where} has {labels!r:.80} as {column!r}, numbers that stand for all labels in their order; give the "
                "names of the labels that the example has"
            )
        found.append(tuple(dict.fromkeys(class_label(label, where, column) for label in labels)))
    marks = no_label_marks(table, column, [name for names in found for name in names], known)
    return [None if names and marks.issuperset(names) else tuple(n for n in names if n not in marks) for names in found]


class MultiLabel(Sentence):
    """Any number of labels for each example."""

    name, model = "multi_label", MultiLabelTask
    metrics = ("f1", "f1_macro", "accuracy")
    labels_in = staticmethod(label_tuples)

    def derive(self, train, task):
        if task.class_weights == "balanced":
            raise UserError("--class_weights=balanced needs --task=classification; give a weight for each label")
        return derive_labels(train, task)

    def targets(self, examples, task):
        return multi_label_targets(examples, task.labels)

    def decisions(self, logits, task):
        return (logits > 0).astype(np.int32)

    def named(self, decisions, task):
        return [[task.labels[index] for index in np.flatnonzero(row)] for row in decisions]

    def report(self, split, logits):
        task = split.task
        return multi_label_report(task.labels, self.decisions(logits, task), self.targets(split.examples, task))


def class_targets(examples: Examples, labels: Sequence[str]) -> np.ndarray:
    """Returns the id of each example's label: [N] int32. Raises: UserError: a label is not in `labels`."""
    return np.array(label_ids(enumerate(examples.labels), labels, examples.where), np.int32)


def derive_labels(train: Examples, task: SentenceConfig) -> dict[str, Any]:
    """Returns the settings that follow from the training examples and from `labels` and `class_weights`."""
    labels, weights = label_set(train, task.labels or None), task.class_weights
    if not weights:
        return {"labels": list(labels)}
    targets = class_targets(train, labels) if weights == "balanced" else None
    return {"labels": list(labels), "class_weights": class_weights(targets, labels, weights).tolist()}


def label_set(examples: Examples, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """Returns the labels to learn, in the order of their ids.

    Args:
        examples: the training split, with labels of `classification` or `multi_label`.
        given: the labels in the user's order; None for those of the examples, sorted by value if all are numbers.
    Raises: UserError: a label is given twice; the examples have no label, or only one class.
    """
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


def class_weights(
    targets: np.ndarray, labels: Sequence[str], setting: Literal["balanced"] | Mapping[str, float] | tuple[float, ...]
) -> np.ndarray:
    """Returns the weight of each class in the loss: [C] float32.

    Args:
        targets: [N] int32, the class ids of the training split; only read for "balanced".
        setting: `SentenceConfig.class_weights`, which are positive: "balanced" for N / (C * number of examples of
            the class), as in scikit-learn; or weights by label, 1 for labels without one; or the weight of each label.
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


def multi_label_targets(examples: Examples, labels: Sequence[str]) -> np.ndarray:
    """Returns [N, C] int32, 1 where an example has a label. Raises: UserError: a label is not in `labels`."""
    targets = np.zeros((len(examples), len(labels)), np.int32)
    pairs = [(index, name) for index, names in enumerate(examples.labels) for name in names]
    targets[[index for index, _ in pairs], label_ids(pairs, labels, examples.where)] = 1
    return targets


def _label_list(value: Any, where: str, column: str) -> Sequence:
    """The labels in a cell, [None] for no label. Raises: UserError: it is no list, or a comma cuts something else."""
    if value is None or value != value or value == -1:
        return [None]
    labels = listed(value) if isinstance(value, str) else value
    if labels is None:
        labels = list(filter(None, map(str.strip, value.split(","))))
        if faulty := next(filter(_is_cut, [*labels, value.strip()] if labels else []), None):
            raise UserError(
                f"{where} has {value!r:.80} as {column!r}, of which {faulty!r:.80} is no name; give names with commas "
                'between them, or a list as JSON writes it, ["a", "b"]'
            )
    if not isinstance(labels, list | tuple):
        raise UserError(f"{where} has {value!r} as {column!r}, expected a list of labels, as JSON in a text")
    return labels


def _is_cut(text: str) -> bool:
    """Whether a text has a bracket or quote of a list at an edge; `Mercury (planet)` and `'90s` are names."""
    ends = text[0] + text[-1]
    is_open = text.count("(") != text.count(")") and not {*"()"}.isdisjoint(ends)
    return is_open or ends in ("<>", "''", "‘’", "()") or not {*'[]{}"`«»“”'}.isdisjoint(ends)


def _require_commas(table: Table, column: str, values: Sequence[Any], known: Sequence[str]) -> None:
    """Raises: UserError: no cell has a comma, and at least a tenth have another mark between labels.

    A mark that may be part of names stands between labels if there are fewer of these than different cells.
    """
    texts = (value.strip() for value in values if isinstance(value, str))
    cells = Counter(text for text in texts if text and text not in known and listed(text) is None)
    if any("," in cell for cell in cells):
        return
    for mark in (*_COMMAS, *_PERHAPS_COMMAS):
        having = [cell for cell in cells if mark in cell]
        labels = {label.strip() for cell in cells for label in cell.split(mark)} - {""}
        is_certain = mark in _COMMAS or len(labels) < len(cells)
        if having and is_certain and 10 * sum(map(cells.get, having)) >= cells.total():
            raise UserError(
                f"{table.source} has {having[0]!r:.80} in {column!r}, where no cell has a comma; if {mark!r} stands "
                "between labels, put a comma in its place; if not, give lists as JSON writes them"
            )
