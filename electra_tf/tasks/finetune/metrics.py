"""The scores of predictions, by scikit-learn, scipy and seqeval, under the names that Hugging Face prints.

Fractions, not percent; scores that are not sums over examples, so all predictions of a split are needed at once. Of no
predictions every score is NaN, and so are the correlations of predictions that are all equal.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from electra_tf.tasks.finetune.glue import GlueTask
from electra_tf.tasks.finetune.tagged import Scheme, in_scheme

Metric = Callable[[np.ndarray, np.ndarray], float]  # of predictions and targets

# By problem, what is reported of a user's own task. The first selects the best epoch and the best seed; of a GLUE task
# `GlueTask.paper_metric` does.
CLASSIFICATION_METRICS = ("accuracy", "f1_macro", "matthews_correlation")
MULTI_LABEL_METRICS = ("f1", "f1_macro", "accuracy")
REGRESSION_METRICS = ("spearmanr", "pearson", "mse")
TAGGING_METRICS = ("f1", "precision", "recall", "accuracy")
PLAIN_TAGGING_METRICS = ("accuracy",)


def classification_metrics(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Accuracy, mean F1 of the classes, and Matthews' correlation.

    Args:
        predictions, targets: [N] int32, numbers of classes.
    """
    return _scores(CLASSIFICATION_METRICS, _METRICS, predictions, targets)


def multi_label_metrics(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """F1 over all labels (`f1`), mean F1 of the labels, and the share of examples with all labels right (`accuracy`).

    Args:
        predictions, targets: [N, C] int32, 0 or 1.
    """
    return _scores(MULTI_LABEL_METRICS, _METRICS | {"f1": _f1("micro")}, predictions, targets)


def regression_metrics(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Spearman's and Pearson's correlation, and the mean squared error in the square of the unit given.

    Args:
        predictions, targets: [N] float32, in the same unit.
    """
    return _scores(REGRESSION_METRICS, _METRICS, predictions, targets)


def glue_metrics(task: GlueTask, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """What GLUE's site and Hugging Face report for a task; where that is two scores, also their mean, `combined_score`.

    The paper's is `task.paper_metric`.

    Args:
        predictions, targets: [N], int32 numbers of classes or, for STS-B, float32.
    """
    scores = _scores(task.metrics, _METRICS, predictions, targets)
    return scores | ({"combined_score": sum(scores.values()) / len(scores)} if len(scores) > 1 else {})


def tagging_metrics(
    predictions: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], scheme: Scheme
) -> dict[str, float]:
    """Precision, recall and F1 of spans as conlleval counts them, and the accuracy of tags; of plain tags only this.

    Args:
        predictions, tags: N sentences, a tag for each word. For a word that was cut away the prediction is O, or what
            else the caller counts it as.
    """
    right = [ours == gold for pair in zip(predictions, tags, strict=True) for ours, gold in zip(*pair, strict=True)]
    accuracy = {"accuracy": sum(right) / len(right) if right else math.nan}
    if scheme == "plain":
        return accuracy
    if not right:
        return dict.fromkeys(TAGGING_METRICS, math.nan)
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    spans = [[in_scheme(sentence, "iob2") for sentence in sentences] for sentences in (tags, predictions)]
    precision, recall, f1, _ = precision_recall_fscore_support(*spans, average="micro", zero_division=0)
    return {"f1": float(f1), "precision": float(precision), "recall": float(recall)} | accuracy


def _scores(
    names: Sequence[str], metrics: Mapping[str, Metric], predictions: np.ndarray, targets: np.ndarray
) -> dict[str, float]:
    assert predictions.shape == targets.shape, (predictions.shape, targets.shape)
    if not len(targets):
        return dict.fromkeys(names, math.nan)
    with warnings.catch_warnings():  # scipy warns of equal predictions; NaN says so
        warnings.simplefilter("ignore")
        return {name: float(metrics[name](predictions, targets)) for name in names}


# The imports stand in the functions: they take one to two seconds, which the start of a program must not.


def _accuracy(predictions: np.ndarray, targets: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score

    return accuracy_score(targets, predictions)


def _f1(average: Literal["binary", "micro", "macro"]) -> Metric:
    """F1; "binary" is that of class 1."""

    def score(predictions: np.ndarray, targets: np.ndarray) -> float:
        from sklearn.metrics import f1_score

        return f1_score(targets, predictions, average=average, zero_division=0)

    return score


def _matthews_correlation(predictions: np.ndarray, targets: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(targets, predictions)


def _pearson(predictions: np.ndarray, targets: np.ndarray) -> float:
    from scipy.stats import pearsonr

    return pearsonr(np.float64(predictions), np.float64(targets)).statistic if len(targets) > 1 else math.nan


def _spearman(predictions: np.ndarray, targets: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return spearmanr(np.float64(predictions), np.float64(targets)).statistic if len(targets) > 1 else math.nan


def _mean_squared_error(predictions: np.ndarray, targets: np.ndarray) -> float:
    return np.mean(np.square(predictions - targets))


_METRICS: dict[str, Metric] = {
    "accuracy": _accuracy,
    "f1": _f1("binary"),
    "f1_macro": _f1("macro"),
    "matthews_correlation": _matthews_correlation,
    "pearson": _pearson,
    "spearmanr": _spearman,
    "mse": _mean_squared_error,
}
