"""Scores of each class, and which classes were mistaken for which, as JSON values and as a table for the terminal.

A report has `classes`: precision, recall, f1 and support (the number of true examples) of each class, by name; 0 where
a score is not defined. With one class for each example it also has `confusion_matrix`: by true class, the number of
examples by predicted class, without zeros. The sum of a row is the support of its class.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from electra_tf.tasks.finetune.metrics import as_bioes
from electra_tf.tasks.finetune.summary import aligned

_MOST_CLASSES = 10  # in a table that names the file with all
_MOST_MISTAKES = 2
_LONGEST_NAME = 28
_SCORES = ("precision", "recall", "f1")

Report = dict[str, dict]


def class_report(labels: Sequence[str], predictions: Sequence[str], targets: Sequence[str]) -> Report:
    """Returns the report of examples with one class each.

    Args:
        labels: all classes.
        predictions, targets: the predicted and the true class of N examples; a prediction may be "" for none.
    """
    from sklearn.metrics import precision_recall_fscore_support

    scores = precision_recall_fscore_support(targets, predictions, labels=labels, zero_division=0)
    counts = Counter(zip(targets, predictions, strict=True))
    matrix = {
        target: {label: counts[target, label] for label in (*labels, "") if (target, label) in counts}
        for target in labels
    }
    return {"classes": _by_name(labels, scores), "confusion_matrix": matrix}


def multi_label_report(labels: Sequence[str], predictions: np.ndarray, targets: np.ndarray) -> Report:
    """Returns the report of examples with several labels each: [N, C] int32, 0 or 1 for each label."""
    right, predicted, support = (counts.sum(axis=0) for counts in (predictions * targets, predictions, targets))
    precision, recall, f1 = (right / np.maximum(total, 1) for total in (predicted, support, (predicted + support) / 2))
    return {"classes": _by_name(labels, (precision, recall, f1, support))}


def span_report(predictions: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> Report:
    """Returns the report of the types of spans; args and counts as in `tagging_scores`."""
    from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

    pair = as_bioes(tags), as_bioes(predictions)
    names = sorted({name for sentences in pair for name, _, _ in get_entities(sentences)})
    return {"classes": _by_name(names, precision_recall_fscore_support(*pair, zero_division=0) if names else ())}


def class_table(report: Report, title: str, all_in: str | None = None) -> str:
    """Returns a line for each class, in percent: first the class with the lowest F1, last those without examples.

    Of classes with equal F1, the one with the most examples is first.

    Args:
        title: the beginning of the first line.
        all_in: the file with the whole report; then the table has 10 classes at most.
    """
    classes = report["classes"]
    ranked = sorted(
        classes, key=lambda name: (classes[name]["support"] == 0, classes[name]["f1"], -classes[name]["support"])
    )
    shown = ranked if all_in is None else ranked[:_MOST_CLASSES]
    what = f"{len(ranked)} classes, the lowest F1 first"
    if len(shown) < len(ranked):
        what = f"the {len(shown)} of {len(ranked)} classes with the lowest F1; all: {all_in}"
    matrix, rows = report.get("confusion_matrix"), [["class", "precision", "recall", "F1", "support"]]
    for name in shown:
        scores = (f"{100 * classes[name][score]:.2f}" for score in _SCORES)
        rows.append([_cut(name), *scores, str(classes[name]["support"])])
    notes = ["mistaken for", *(_mistakes(matrix[name], name) for name in shown)] if matrix else [""] * len(rows)
    lines = zip(aligned(rows, 1).split("\n"), notes, strict=True)
    return "\n".join([f"{title}: {what}", *(f"{line}  {note}".rstrip() for line, note in lines)])


def _by_name(names: Sequence[str], scores: Sequence[Sequence[float]]) -> dict[str, dict]:
    """Args: scores: precision, recall, F1 and support of the classes."""
    return {
        name: {**dict(zip(_SCORES, map(float, row), strict=True)), "support": int(support)}
        for name, *row, support in zip(names, *scores, strict=True)
    }


def _mistakes(row: Mapping[str, int], name: str) -> str:
    """The most frequent wrong predictions of a class."""
    wrong = sorted((-count, label) for label, count in row.items() if label != name)
    return ", ".join(f"{_cut(label) or '(truncated)'} {-count}" for count, label in wrong[:_MOST_MISTAKES])


def _cut(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
