"""Similarity of two texts: the model, its data and its predictions.

Each text is encoded alone, so its vector can be stored and compared with those of any other texts.
"""

import math
from dataclasses import replace

import numpy as np
import tensorflow as tf

from electra_tf.data.batch import Batch
from electra_tf.data.tables import tsv
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.finetune.config import FinetuningConfig, SimilarityConfig
from electra_tf.tasks.finetune.data import Outputs, TaskData
from electra_tf.tasks.finetune.metrics import sentence_scores
from electra_tf.tasks.finetune.task import FinetuningTask, sequences_as_rows
from electra_tf.tasks.finetune.text_examples import TextExamples, scaled_targets
from electra_tf.tasks.finetune.text_features import TextFeatures, text_features
from electra_tf.text.tokenizer import Tokenizer

_NEVER = -1e9  # the logit of padding among the candidates
_PAIRS_AT_ONCE = 4096  # first texts that are compared with all second ones at the same time


class SimilarityTask(FinetuningTask):
    """Vectors of both texts of a pair, [B, 2, H] float32: the mean of the vectors of all tokens, [CLS] and [SEP] too.

    The loss of a pair with a score is the squared difference of the cosine and the score, scaled to [0, 1]. Where pairs
    have no scores, each first text chooses its own second text among those of `num_candidates` pairs that follow each
    other in a batch: the cross-entropy over cosines, divided by `temperature`. A group of candidates is always of one
    replica and one micro-batch, so their number does not change the loss.
    Source: Reimers and Gurevych 2019, "Sentence-BERT"; Henderson et al. 2017, "Efficient Natural Language Response
    Suggestion for Smart Reply", section 4.4.
    """

    target_tensors = {"targets": ("", tf.float32)}
    text_axes, num_texts = "CS", 2

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, 2, H] float32."""
        rows, context = sequences_as_rows(batch, context)
        vectors = mean_vectors(self.encode(rows, context).sequence_output, rows["input_mask"])
        return tf.reshape(vectors, [-1, 2, vectors.shape[1]])

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        task = self.config.task
        directions = tf.math.l2_normalize(forward, axis=-1)
        if not task.is_contrastive:
            cosines = tf.reduce_sum(directions[:, 0] * directions[:, 1], axis=-1)
            return tf.square(cosines - batch["targets"])
        num_candidates = tf.minimum(task.num_candidates, tf.shape(directions)[0])  # an empty batch has one row
        groups = tf.reshape(directions, [-1, num_candidates, 2, directions.shape[2]])
        cosines = tf.matmul(groups[:, :, 0], groups[:, :, 1], transpose_b=True)  # [groups, candidates, candidates]
        is_real = tf.reshape(batch["row_weights"], [-1, 1, num_candidates]) > 0
        logits = tf.where(is_real, cosines / task.temperature, _NEVER)
        own = tf.broadcast_to(tf.range(num_candidates), tf.shape(logits)[:2])
        return tf.reshape(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=own, logits=logits), [-1])

    def predictions(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"vectors": forward}


def mean_vectors(sequence_output: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
    """The mean of the vectors of real tokens: [B, S, H] and [B, S] int32 -> [B, H] float32; 0 without any."""
    weights = tf.cast(input_mask, tf.float32)
    sums = tf.einsum("bsh,bs->bh", tf.cast(sequence_output, tf.float32), weights)
    return tf.math.divide_no_nan(sums, tf.reduce_sum(weights, axis=1, keepdims=True))


class SimilarityData(TaskData):
    """Pairs of texts with a score, or pairs that belong together.

    Args:
        train: the training split; None if the data is only predicted.
        evaluated: the evaluated split.
        split: its name, for the name of its predictions; None: pairs without scores may not belong together.
    """

    def __init__(
        self,
        config: FinetuningConfig,
        tokenizer: Tokenizer,
        train: TextExamples | None,
        evaluated: TextExamples,
        split: str | None = "validation",
    ):
        self._task: SimilarityConfig = config.task
        self._evaluated, self._split = evaluated, split
        self.has_labels = split is not None if self._task.is_contrastive else evaluated.labels is not None
        self.primary_metric = "accuracy" if self._task.is_contrastive else "spearmanr"
        self.source, self.num_evaluated = (train or evaluated).source, len(evaluated)
        number_of: dict[str, int] = {}
        # Equal texts have the same number: a first text that is nearest to any of them has found its own.
        self._second_texts = np.array([number_of.setdefault(text, len(number_of)) for text in evaluated.texts[1]])

        def features_of(examples: TextExamples, has_targets: bool = True) -> TextFeatures:
            targets = self._targets(examples) if has_targets else None
            return pair_features(examples, targets, tokenizer, config.data.max_seq_length)

        of_train = features_of(train) if train is not None else None
        self.set_features(of_train, features_of(evaluated, self.has_labels))

    def _targets(self, examples: TextExamples) -> np.ndarray:
        if self._task.is_contrastive:
            return np.ones(len(examples), np.float32)
        return scaled_targets(examples, self._task.min_value, self._task.max_value)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return *(("accuracy",) if self._task.is_contrastive else ("spearmanr", "pearson")), "loss"

    def metrics(self, outputs: Outputs) -> dict[str, float]:
        """`spearmanr` and `pearson` of cosines and scores; without scores `accuracy`, the share of first texts whose
        own second text is the nearest of the split's."""
        loss = {"loss": float(np.mean(outputs["loss"], dtype=np.float64))}
        if self._task.is_contrastive:
            return {"accuracy": _share_found(outputs["vectors"], self._second_texts), **loss}
        scores = np.asarray(self._evaluated.labels, np.float64)
        return {**sentence_scores(("spearmanr", "pearson"), cosines_of(outputs["vectors"]), scores), **loss}

    def prediction_files(self, outputs: Outputs) -> dict[str, bytes]:
        """The predictions as TSV: id, score (if known), cosine."""
        labels = self._evaluated.labels
        table = [["id", *([] if labels is None else ["label"]), "prediction"]]
        for index, cosine in enumerate(cosines_of(outputs["vectors"])):
            known = [] if labels is None else [labels[index]]
            table.append([self._evaluated.ids[index], *known, f"{cosine:.6f}"])
        return {f"predictions_{self._split}.tsv": tsv(table)}

    def problem(self, outputs: Outputs) -> str | None:
        score = self.metrics(outputs)[self.primary_metric]
        if self._task.is_contrastive:
            chance = np.bincount(self._second_texts).max() / len(self._evaluated)  # of one vector for all texts
            return f"the accuracy {score:.4f} is that of chance" if score <= chance < 1.0 else None
        return None if score > 0.0 else f"the cosines' rank correlation with the scores is {score:.4f}"


def pair_features(
    examples: TextExamples, targets: np.ndarray | None, tokenizer: Tokenizer, max_seq_length: int
) -> TextFeatures:
    """Features with two sequences a row, [CLS] text [SEP] each. A text that is too long loses its end.

    Args:
        targets: [N] float32; None for prediction.
    """
    texts = [text for pair in zip(*examples.texts, strict=True) for text in pair]
    single = text_features([texts], {}, tokenizer, max_seq_length, None)
    numbers = np.arange(len(examples), dtype=np.int32)
    splits = single.features.row_splits
    changes = {"row_splits": splits[::2], "choice_splits": splits, "example_index": numbers}
    row_targets = {} if targets is None else {"targets": targets}
    return replace(single, features=replace(single.features, **changes, row_targets=row_targets))


def cosines_of(vectors: np.ndarray) -> np.ndarray:
    """The cosine of each pair: [N, 2, H] -> [N] float64."""
    first, second = _directions(vectors[:, 0]), _directions(vectors[:, 1])
    return np.sum(first * second, axis=1)


def _share_found(vectors: np.ndarray, second_texts: np.ndarray) -> float:
    """The share of first vectors whose nearest second vector is that of their own second text: in [0, 1].

    Of equal second vectors, the first counts.

    Args:
        vectors: [N, 2, H].        second_texts: [N] int64, a number for each text.
    """
    first, second = _directions(vectors[:, 0]), _directions(vectors[:, 1])
    found = 0
    for begin in range(0, len(first), _PAIRS_AT_ONCE):
        part = first[begin : begin + _PAIRS_AT_ONCE]
        nearest = second_texts[(part @ second.T).argmax(axis=1)]
        found += np.count_nonzero(nearest == second_texts[begin : begin + len(part)])
    return found / len(first) if len(first) else math.nan


def _directions(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
