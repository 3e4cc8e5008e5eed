"""Scores computed by scikit-learn, scipy and seqeval, under the names that Hugging Face uses.

All scores are fractions, not percent. They cannot be summed over batches, so they are computed from all predictions of
a split at once. A correlation is NaN if all predictions are equal.
"""

import math
import warnings
from collections.abc import Sequence

import numpy as np

from electra_tf.tasks.finetune.config import TagScheme

# The metrics of a task on the user's own data, by kind. The first one selects the best epoch and the best seed.
OWN_METRICS = {
    "classification": ("accuracy", "f1_macro", "matthews_correlation"),
    "multi_label": ("f1", "f1_macro", "accuracy"),
    "regression": ("spearmanr", "pearson", "mse"),
}


def sentence_scores(names: Sequence[str], predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Returns the scores with these names.

    Args:
        names: metrics of `OWN_METRICS`, or `combined_score`, the mean of the scores before it.
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
        predictions, tags: N sentences, a tag for each word.
    """
    from seqeval.metrics.sequence_labeling import accuracy_score, precision_recall_fscore_support

    accuracy = {"accuracy": accuracy_score(tags, predictions)}
    if scheme == "plain":
        return accuracy
    pair = as_bioes(tags), as_bioes(predictions)
    precision, recall, f1, _ = precision_recall_fscore_support(*pair, average="micro", zero_division=0)
    return {"f1": float(f1), "precision": float(precision), "recall": float(recall)} | accuracy


def as_bioes(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns the tags of sentences with L and U renamed to E and S, as seqeval's version of conlleval expects."""
    return [[{"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:] for tag in sentence] for sentence in sentences]


def _score(name: str, predictions: np.ndarray, targets: np.ndarray) -> float:
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
