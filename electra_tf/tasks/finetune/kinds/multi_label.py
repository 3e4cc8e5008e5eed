"""Classification of a text or a pair of texts with several labels or none."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.batch import Batch
from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.kind import Split
from electra_tf.tasks.finetune.kinds.sentence import (
    SEVERAL_LABELS,
    Sentence,
    SentenceConfig,
    SentenceHead,
    SentenceTask,
)
from electra_tf.tasks.finetune.labels import class_label, label_ids, listed, no_label_marks
from electra_tf.tasks.finetune.scores import Report, multi_label_report
from electra_tf.tasks.served import ServedOutputs

_BINARY = (0, 1, "0", "1", "True", "False")
_COMMAS = ("><", *"|;\t\n，、；،؛")  # what other files have in place of commas
_PERHAPS_COMMAS = tuple("/&+#:~^•·\\ ")  # also parts of names


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
    return [
        None if names and marks.issuperset(names) else tuple(str(name) for name in names if name not in marks)
        for names in found
    ]


class MultiLabelTask(SentenceTask):
    """Classifies with any number of labels for each example."""

    target_tensors = {"label_ids": ("C", tf.int32)}

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        weights, labels = self.label_weights(), tf.cast(batch["label_ids"], tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=forward)
        return tf.reduce_mean(losses * weights, axis=1)

    def predictions(self, logits: tf.Tensor) -> ServedOutputs:
        return {"predicted": logits > 0, "labels": self.all_labels(logits), "probabilities": tf.sigmoid(logits)}


class MultiLabel(Sentence):
    """Any number of labels for each example."""

    name, model = "multi_label", MultiLabelTask
    note = "A label is predicted where its logit is above 0."
    transformers = SentenceHead(SEVERAL_LABELS, "torch.nn.modules.activation.Sigmoid", (note,))
    metrics = ("f1", "f1_macro", "accuracy")
    labels_in = staticmethod(label_tuples)

    def targets(self, examples: Examples, task: SentenceConfig) -> npt.NDArray[np.int32]:
        """Returns [N, C] int32, 1 where an example has a label. Raises: UserError: a label is not in `task.labels`."""
        targets = np.zeros((len(examples), len(task.labels)), np.int32)
        pairs = [(index, name) for index, names in enumerate(examples.gold) for name in names]
        targets[[index for index, _ in pairs], label_ids(pairs, task.labels, examples.where)] = 1
        return targets

    def decisions(self, logits: npt.NDArray[np.float32], task: SentenceConfig) -> npt.NDArray[np.int32]:
        return (logits > 0).astype(np.int32)

    def named(self, logits: npt.NDArray[np.float32], task: SentenceConfig) -> list[Any]:
        return [[task.labels[index] for index in np.flatnonzero(row)] for row in self.decisions(logits, task)]

    def report(self, split: Split, logits: npt.NDArray[np.float32]) -> Report:
        task = split.task
        return multi_label_report(task.labels, self.decisions(logits, task), self.targets(split.examples, task))


def _label_list(value: Any, where: str, column: str) -> Sequence[Any]:
    """The labels in a cell, [None] for no label. Raises: UserError: it is no list, or a comma cuts something else."""
    if value is None or value != value or value == -1:
        return [None]
    labels = listed(value) if isinstance(value, str) else value
    if labels is None:
        labels = [label for part in value.split(",") if (label := part.strip())]
        labels = None if any(map(_is_cut, [*labels, value.strip()] if labels else [])) else labels
    if not isinstance(labels, list | tuple):
        raise UserError(
            f"{where} has {value!r:.80} as {column!r}, expected names with commas between them, or a list as JSON "
            'writes it, ["a", "b"]'
        )
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
        if having and is_certain and 10 * sum(cells[cell] for cell in having) >= cells.total():
            raise UserError(
                f"{table.source} has {having[0]!r:.80} in {column!r}, where no cell has a comma; if {mark!r} stands "
                "between labels, put a comma in its place; if not, give lists as JSON writes them"
            )
