"""Similarity of two texts: the pairs, the model, its features, scores and predictions.

Each text is encoded alone, so its vector can be stored and compared with those of any other texts.
"""

import logging
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from pydantic import Field

from electra_tf.config.errors import UserError
from electra_tf.config.settings import Count, MayChange, Positive, Real, Settings
from electra_tf.data.batch import Batch
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.finetune.examples import DataFile, Examples, NewColumns, read_examples, read_texts
from electra_tf.tasks.finetune.features import text_features, with_choices
from electra_tf.tasks.finetune.kind import EncodedExamples, Kind, Outputs, Split
from electra_tf.tasks.finetune.kinds.regression import scaled_targets, target_range
from electra_tf.tasks.finetune.labels import numbers
from electra_tf.tasks.finetune.scores import sentence_scores
from electra_tf.tasks.finetune.settings import FinetuningRunConfig
from electra_tf.tasks.finetune.task import FinetuningTask, sequences_as_rows
from electra_tf.tasks.finetune.transformers_head import NoClass
from electra_tf.tasks.served import Served, ServedModel, ServedOutputs
from electra_tf.text.packing import Rows
from electra_tf.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_LABEL_COLUMN = "label"  # which pairs may lack
_NEVER = -1e9  # the logit of padding among the candidates
_PAIRS_AT_ONCE = 4096  # first texts that are compared with all second ones at the same time


class SimilarityConfig(Settings):
    """Vectors of texts whose cosines are scores of similarity, or are largest for texts that belong together."""

    kind: Literal["similarity"]
    text_columns: tuple[str, ...] = ()  # two names
    label_column: MayChange[str] = _LABEL_COLUMN  # --predict scores an input that has this column
    # Pairs have no scores; the other pairs of a batch are the wrong answers. Follows from the training file.
    is_contrastive: bool = False
    # Scores are scaled from this range to [0, 1].
    min_value: Real = 0.0
    max_value: Real = 1.0  # the upper end of that range
    num_candidates: Annotated[Count, Field(ge=2)] = 32  # without scores: pairs among which a text finds its own
    temperature: Positive = 0.05  # without scores: divides the cosines

    @property
    def rows_together(self) -> int:
        return self.num_candidates if self.is_contrastive else 1


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

    def outputs(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"vectors": forward}


class ServedSimilarity(ServedModel):
    """Serves a model of similarity: `sentence_embed`, `similarity` and `embed`."""

    default = "sentence_embed"

    def served(self) -> dict[str, Served]:
        return {
            "sentence_embed": self.for_texts(self._sentence_vectors),
            "sentence_embed_ids": self.for_ids(self._sentence_vectors),
            "similarity": (self._similarity, self.texts("text", "text_pair")),
            **super().served(),
        }

    def _similarity(self, text: tf.Tensor, text_pair: tf.Tensor) -> ServedOutputs:
        """The similarity of two texts, [N] string, UTF-8.

        Returns:
            cosine: [N] float32.        truncated: [N] bool, whether one of the texts was cut.
        """
        rows, truncated = self.rows(self.pairs(text, text_pair))
        directions = tf.math.l2_normalize(self._sentence_vectors(rows)["sentence_vector"], axis=1)
        first, second = tf.split(directions, 2)
        truncated = tf.reduce_any(tf.reshape(truncated, [2, -1]), axis=0)
        return {"cosine": tf.reduce_sum(first * second, axis=1), "truncated": truncated}

    def _sentence_vectors(self, rows: Rows) -> ServedOutputs:
        """A vector for each text, whose cosines with other texts' vectors are similarities.

        Returns:
            sentence_vector: [N, H] float32, the mean of the vectors of all tokens, [CLS] and [SEP] included.
        """
        output = self.get_task().encoder(**rows._asdict())
        return {"sentence_vector": mean_vectors(output.sequence_output, rows.input_mask)}


class Similarity(Kind):
    """P is the directions of both texts' vectors: [N, 2, H] float64, of length 1."""

    name, settings, model, served = "similarity", SimilarityConfig, SimilarityTask, ServedSimilarity
    transformers = NoClass(
        "A text's vector is the mean of its tokens' vectors; --to=sentence_transformers writes a folder that computes "
        "it.",
        noted=("text_columns", "label_column"),
    )
    glue_task, number_format = "stsb", ".6f"

    def read(self, path: DataFile, config: FinetuningRunConfig, new: NewColumns | None = None) -> Examples:
        """Reads pairs with scores, or without: then their label is True, because they belong together.

        Without the column of the default name, pairs have no scores; a column that was named must be there. Of new
        pairs for a model without scores no label is read.
        """
        task = config.task
        if new is not None:
            return read_texts(path, task, new, None if task.is_contrastive else numbers)
        columns, label = task.text_columns, task.label_column
        if len(columns) != 2:
            raise UserError(f"text_columns {' '.join(columns)}: task=similarity needs two columns")
        examples = read_examples(path, columns, label, numbers, may_lack_labels=label == _LABEL_COLUMN)
        is_contrastive = examples.labels is None and label == _LABEL_COLUMN
        return replace(examples, labels=[True] * len(examples)) if is_contrastive else examples

    def derive(self, train: Examples, task: Any) -> dict[str, Any]:
        if train.gold[0] is True:
            found = f"{train.source} has no scores in {task.label_column!r}"
            what = "a text learns to find its own among other pairs"
            logger.info("%s: %s; for scores in another column, name it as label_column", found, what)
            return {"is_contrastive": True}
        return {"is_contrastive": False, **target_range(train)}

    def encode(
        self, examples: Examples, config: FinetuningRunConfig, tokenizer: Tokenizer, is_training: bool
    ) -> EncodedExamples:
        """Returns features with two sequences a row, [CLS] text [SEP] each. A text that is too long loses its end."""
        task = config.task
        targets = {}
        if examples.labels is not None:
            if (examples.labels[0] is True) != task.is_contrastive:
                has, trained = ("scores", "none") if task.is_contrastive else ("no scores", "some")
                raise UserError(
                    f"{examples.source} has {has} in {task.label_column!r}, the training file has {trained}; give "
                    "scores in all files, or in none"
                )
            ends = (0.0, 1.0) if task.is_contrastive else (task.min_value, task.max_value)
            targets["targets"] = scaled_targets(examples, *ends)
        texts = [text for pair in zip(*examples.inputs, strict=True) for text in pair]
        single = text_features([texts], {}, tokenizer, config.data.max_seq_length, None, texts_per_example=2)
        return replace(single, features=with_choices(single.features, [2] * len(examples), targets))

    def metric_names(self, split: Split) -> tuple[str, ...]:
        return ("accuracy",) if split.task.is_contrastive else ("spearmanr", "pearson")

    def predict(self, split: Split, outputs: Outputs) -> npt.NDArray[np.float64]:
        exact = outputs["vectors"].astype(np.float64)
        return exact / np.maximum(np.linalg.norm(exact, axis=2, keepdims=True), 1e-12)

    def scores(self, split: Split, directions: npt.NDArray[np.float64]) -> dict[str, float]:
        """`spearmanr` and `pearson` of cosines and scores.

        Without scores `accuracy`, the share of first texts whose own second text is the nearest of the split's.
        """
        if not split.task.is_contrastive:
            gold = np.asarray(split.examples.gold, np.float64)
            return sentence_scores(self.metric_names(split), _cosines(directions), gold)
        texts, found = split.examples.inputs[1], 0  # a first text may find any of equal second texts
        first, second = np.ascontiguousarray(directions.swapaxes(0, 1))
        for begin in range(0, len(texts), _PAIRS_AT_ONCE):
            part = slice(begin, begin + _PAIRS_AT_ONCE)
            nearest = (first[part] @ second.T).argmax(axis=1)  # of equal second vectors, the first counts
            found += sum(texts[index] == own for index, own in zip(nearest, texts[part], strict=True))
        return {"accuracy": found / len(texts)}

    def rows(self, split: Split, directions: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
        """The prediction for each pair: id, score (if known), cosine."""
        examples = replace(split.examples, labels=None) if split.task.is_contrastive else split.examples
        cosines = _cosines(directions).tolist()
        return [{**examples.known(row), "prediction": cosine} for row, cosine in enumerate(cosines)]


def mean_vectors(sequence_output: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
    """The mean of the vectors of real tokens: [B, S, H] and [B, S] int32 -> [B, H] float32; 0 without any."""
    weights = tf.cast(input_mask, tf.float32)
    sums = tf.einsum("bsh,bs->bh", tf.cast(sequence_output, tf.float32), weights)
    return tf.math.divide_no_nan(sums, tf.reduce_sum(weights, axis=1, keepdims=True))


def _cosines(directions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The cosine of each pair: [N, 2, H] -> [N]."""
    return np.sum(directions[:, 0] * directions[:, 1], axis=1)
