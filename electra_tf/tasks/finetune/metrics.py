"""Scores by scikit-learn, scipy and seqeval, under the names that Hugging Face prints.

Fractions, not percent. All predictions of a split are needed at once, because these scores are not sums over examples.
Without predictions every score is NaN, and so is a correlation of predictions that are all equal.
"""

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from electra_tf.tasks.finetune.config import TagScheme

# The metrics of a user's own task, by kind. The first one selects the best epoch and the best seed.
OWN_METRICS = {
    "classification": ("accuracy", "f1_macro", "matthews_correlation"),
    "multi_label": ("f1", "f1_macro", "accuracy"),
    "regression": ("spearmanr", "pearson", "mse"),
}
TAGGING_METRICS = ("f1", "precision", "recall", "accuracy")
PLAIN_TAGGING_METRICS = ("accuracy",)


def sentence_scores(names: Sequence[str], predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """The scores with these names: keys of `_SCORES`, or `combined_score`, the mean of those before it.

    Args:
        predictions, targets: [N] int32 class numbers; [N, C] int32, 0 or 1 for each label, where `f1` is over all
            labels and `accuracy` the fraction of examples with all labels right; or [N] float32 numbers.
    """
    assert predictions.shape == targets.shape, (predictions.shape, targets.shape)
    scores: dict[str, float] = {}
    with warnings.catch_warnings():  # scipy warns of equal predictions, for which it returns NaN
        warnings.simplefilter("ignore")
        for name in names:
            if name == "combined_score":
                scores[name] = sum(scores.values()) / len(scores)
            else:
                scores[name] = float(_SCORES[name](predictions, targets)) if len(targets) else math.nan
    return scores


def tagging_scores(
    predictions: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], scheme: TagScheme
) -> dict[str, float]:
    """Precision, recall and F1 of spans as conlleval counts them, and the accuracy of tags; of plain tags only this.

    Conlleval begins a span at B, S or U, and at any tag after O, after another type, or after E, S, L or U. So every
    sequence that a model may predict has spans.

    Args:
        predictions, tags: N sentences, a tag for each word.
    """
    right = [ours == gold for pair in zip(predictions, tags, strict=True) for ours, gold in zip(*pair, strict=True)]
    accuracy = {"accuracy": sum(right) / len(right) if right else math.nan}
    if scheme == "plain":
        return accuracy
    if not right:
        return dict.fromkeys(TAGGING_METRICS, math.nan)
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    pair = [[[_as_bioes(tag) for tag in sentence] for sentence in sentences] for sentences in (tags, predictions)]
    precision, recall, f1, _ = precision_recall_fscore_support(*pair, average="micro", zero_division=0)
    return {"f1": float(f1), "precision": float(precision), "recall": float(recall)} | accuracy


def _as_bioes(tag: str) -> str:
    """seqeval's version of conlleval knows E and S, but not their other names L and U."""
    return {"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:]


# The imports stand in the functions, because they take one to two seconds of a program's start.


def _accuracy(predictions: np.ndarray, targets: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score

    return accuracy_score(targets, predictions)


def _f1(predictions: np.ndarray, targets: np.ndarray) -> float:
    """F1 of class 1, or with several labels over all of them."""
    from sklearn.metrics import f1_score

    return f1_score(targets, predictions, average="binary" if targets.ndim == 1 else "micro", zero_division=0)


def _f1_macro(predictions: np.ndarray, targets: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    return f1_score(targets, predictions, average="macro", zero_division=0)


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


_SCORES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "f1_macro": _f1_macro,
    "matthews_correlation": _matthews_correlation,
    "pearson": _pearson,
    "spearmanr": _spearman,
    "mse": _mean_squared_error,
}
