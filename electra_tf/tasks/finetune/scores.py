"""Scores and the scores of each class, by scikit-learn, scipy and seqeval, under the names that Hugging Face uses.

All scores are fractions, not percent. They cannot be summed over batches, so they are computed from all predictions of
a split at once. A correlation is NaN if all predictions are equal.

A report has `classes`: precision, recall, f1 and support (the number of true examples) of each class, by name; 0 where
a score is not defined. With one class for each example it also has `confusion_matrix`: by true class, the number of
examples by predicted class, without zeros. The sum of a row is the support of its class.
"""

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from electra_tf.data.tables import markdown_table
from electra_tf.tasks.finetune.tag_schemes import TagScheme, as_bioes

_MOST_CLASSES = 10  # in a table that names the file with all
_MOST_MISTAKES = 2
_LONGEST_NAME = 28
_SCORES = ("precision", "recall", "f1")

Report = dict[str, dict[str, Any]]


def sentence_scores(names: Sequence[str], predictions: npt.NDArray[Any], targets: npt.NDArray[Any]) -> dict[str, float]:
    """Returns the scores with these names.

    Args:
        names: `accuracy`, `f1`, `f1_macro`, `matthews_correlation`, `pearson`, `spearmanr`, `mse`; `combined_score` is
            the mean of the scores before it.
        predictions, targets: [N] int32, class ids; [N] float32, numbers; or for several labels [N, C] int32, 0 or 1
            for each. Then `f1` counts all labels together, and `accuracy` is the share of examples with all right.
    """
    assert predictions.shape == targets.shape, (predictions.shape, targets.shape)
    scores: dict[str, float] = {}
    with warnings.catch_warnings():  # scipy warns where it returns NaN
        warnings.simplefilter("ignore")
        for name in names:
            if name == "combined_score":
                scores[name] = sum(scores.values()) / len(scores)
            else:
                scores[name] = float(_score(name, predictions, targets))
    return scores


def tagging_scores(
    predictions: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], scheme: TagScheme
) -> dict[str, float]:
    """Returns F1, precision and recall of spans, counted as conlleval does, and the accuracy of tags.

    Conlleval begins a span at B, S or U, and at any tag after O, after another type, or after E, S, L or U. So it finds
    spans also where a model's tags break the scheme. Tags of the scheme `plain` have only the accuracy.

    Args:
        predictions, tags: N sentences, a tag for each word; a prediction may be "" for none, which is never right.
    """
    from seqeval.metrics.sequence_labeling import accuracy_score, precision_recall_fscore_support

    accuracy = {"accuracy": accuracy_score(tags, predictions)}
    if scheme == "plain":
        return accuracy
    pair = as_bioes(tags), as_bioes(predictions)
    precision, recall, f1, _ = precision_recall_fscore_support(*pair, average="micro", zero_division=0)
    return {"f1": float(f1), "precision": float(precision), "recall": float(recall)} | accuracy


def _score(name: str, predictions: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    """One score of `sentence_scores`. The libraries are imported here, because that takes one to two seconds."""
    if name == "mse":
        return np.mean(np.square(predictions - targets))
    if name in ("pearson", "spearmanr"):
        if len(targets) < 2:
            return math.nan
        from scipy import stats

        correlation = stats.pearsonr if name == "pearson" else stats.spearmanr
        return correlation(np.float64(predictions), np.float64(targets)).statistic
    from sklearn import metrics

    if name == "accuracy":
        return metrics.accuracy_score(targets, predictions)
    if name == "matthews_correlation":
        return metrics.matthews_corrcoef(targets, predictions)
    if targets.shape[1:] == (1,):  # of one label alone scikit-learn would count "without it" as a class
        predictions, targets, name = predictions[:, 0], targets[:, 0], "f1"
    average = "macro" if name == "f1_macro" else "binary" if targets.ndim == 1 else "micro"
    return metrics.f1_score(targets, predictions, average=average, zero_division=0)


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


def multi_label_report(
    labels: Sequence[str], predictions: npt.NDArray[np.int32], targets: npt.NDArray[np.int32]
) -> Report:
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
    matrix, headings, rows = report.get("confusion_matrix"), ["class", "precision", "recall", "F1", "support"], []
    for name in shown:
        scores = (f"{100 * classes[name][score]:.2f}" for score in _SCORES)
        rows.append([_cut(name), *scores, str(classes[name]["support"])])
        if matrix:
            wrong = sorted((-count, label) for label, count in matrix[name].items() if label != name)[:_MOST_MISTAKES]
            rows[-1].append(", ".join(f"{_cut(label) or '(truncated)'} {-count}" for count, label in wrong))
    return f"{title}: {what}\n\n{markdown_table([*headings, *(['mistaken for'] if matrix else [])], rows)}"


def _by_name(names: Sequence[str], scores: Sequence[Sequence[float]]) -> dict[str, dict[str, float | int]]:
    """Args: scores: precision, recall, F1 and support of the classes."""
    return {
        name: {**dict(zip(_SCORES, map(float, row), strict=True)), "support": int(support)}
        for name, *row, support in zip(names, *scores, strict=True)
    }


def _cut(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
