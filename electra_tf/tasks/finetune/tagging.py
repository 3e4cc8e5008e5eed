"""Tagging: the model, its data and its predictions."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import tensorflow as tf

from electra_tf.data.batch import Batch
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.finetune.class_report import Report, class_report, span_report
from electra_tf.tasks.finetune.config import FinetuningConfig, TaggingConfig
from electra_tf.tasks.finetune.data import Outputs, TaskData
from electra_tf.tasks.finetune.metrics import tagging_scores
from electra_tf.tasks.finetune.tagged import TaggedExamples, tag_targets
from electra_tf.tasks.finetune.task import FinetuningTask, head_layer
from electra_tf.tasks.finetune.text_features import TextFeatures, tagging_features, values_of_words
from electra_tf.text.tokenizer import Tokenizer


class TaggingTask(FinetuningTask):
    """Tags words at their first piece: logits [B, S, C] float32 of a dense layer, as in ElectraForTokenClassification.

    With the modern block and `head: huggingface` other layers are below it, as in ModernBertForTokenClassification.
    The loss of a sentence is the sum over its words.
    Source: finetune/tagging/tagging_tasks.py of the authors' code.
    """

    target_tensors = {"label_ids": ("S", tf.int32), "label_weights": ("S", tf.float32)}

    def __init__(self, config: FinetuningConfig, **model_options):
        super().__init__(config, **model_options)
        self.output_layer = head_layer(len(config.task.labels), "classifier")
        self.add_hidden_layers()

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, S, C] float32 logits."""
        return self.output_layer(self.head_input(self.encode(batch, context).sequence_output, context))

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label_ids"], logits=forward)
        return tf.reduce_sum(losses * batch["label_weights"], axis=1)

    def predictions(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(forward)
        return {
            "label_ids": tf.argmax(forward, axis=-1, output_type=tf.int32),
            "probabilities": tf.reduce_max(probabilities, axis=-1),
        }


class TaggingData(TaskData):
    """Sentences whose words have tags.

    Args:
        train: the training split; None if the data is only predicted.
        evaluated: the evaluated split; without tags it is only predicted.
        split: its name.
    """

    def __init__(
        self,
        config: FinetuningConfig,
        tokenizer: Tokenizer,
        train: TaggedExamples | None,
        evaluated: TaggedExamples,
        split: str = "validation",
    ):
        self._task: TaggingConfig = config.task
        self._evaluated, self._split, self.has_labels = evaluated, split, evaluated.tags is not None
        self.primary_metric = "accuracy" if self._task.scheme == "plain" else "f1"
        self.source, self.num_evaluated = (train or evaluated).source, len(evaluated)

        def features_of(examples: TaggedExamples) -> TextFeatures:
            targets = None if examples.tags is None else tag_targets(examples, self._task.labels)
            return tagging_features(examples.words, targets, tokenizer, config.data.max_seq_length)

        self.set_features(features_of(train) if train is not None else None, features_of(evaluated))

    def gold(self) -> object:
        return self._evaluated.tags

    @property
    def metric_names(self) -> tuple[str, ...]:
        spans = () if self._task.scheme == "plain" else ("f1", "precision", "recall")
        return *spans, "accuracy", "loss"

    def metrics(self, outputs: Outputs) -> dict[str, float]:
        loss = float(np.mean(outputs["loss"], dtype=np.float64))
        scores = tagging_scores(self._scored_tags(outputs), self._evaluated.tags, self._task.scheme)
        return {**scores, "loss": loss}

    def reports(self, outputs: Outputs) -> dict[str, Report]:
        predicted, tags = self._scored_tags(outputs), self._evaluated.tags
        if self._task.scheme == "plain":
            report = class_report(self._task.labels, *(list(chain.from_iterable(each)) for each in (predicted, tags)))
        else:
            report = span_report(predicted, tags)
        return {self._split: report}

    def prediction_files(self, outputs: Outputs) -> dict[str, bytes]:
        """One word a line: the word, its tag (if known), the predicted tag and its probability."""
        probabilities = values_of_words(self.evaluation, outputs["probabilities"])
        lines = []
        for index, (words, tags) in enumerate(zip(self._evaluated.words, self._tags(outputs), strict=True)):
            predicted, shares = _filled(tags, len(words), ""), probabilities[index]
            for number, word in enumerate(words):
                known = [] if self._evaluated.tags is None else [self._evaluated.tags[index][number]]
                share = f"{shares[number]:.6f}" if number < len(shares) else ""
                lines.append("\t".join([word, *known, predicted[number], share]))
            lines.append("")
        return {f"predictions_{self._split}.tsv": ("\n".join(lines) + "\n").encode()}

    def problem(self, outputs: Outputs) -> str | None:
        predicted = {tag for sentence in self._tags(outputs) for tag in sentence}
        if len(predicted) == 1:
            return f"all words of the dev set are tagged {predicted.pop()!r}"
        return None

    def _scored_tags(self, outputs: Outputs) -> list[list[str]]:
        """A tag for each word: a truncated one counts as outside of all spans or, with plain tags, as wrong."""
        missing = "" if self._task.scheme == "plain" else "O"
        pairs = zip(self._tags(outputs), self._evaluated.words, strict=True)
        return [_filled(tags, len(words), missing) for tags, words in pairs]

    def _tags(self, outputs: Outputs) -> list[list[str]]:
        """The predicted tags of each sentence's words; truncated words have none."""
        labels = self._task.labels
        return [[labels[i] for i in ids] for ids in values_of_words(self.evaluation, outputs["label_ids"])]


def _filled(tags: Sequence[str], num_words: int, missing: str) -> list[str]:
    return [*tags, *[missing] * (num_words - len(tags))]
