"""Classification of a text or a pair of texts with one label."""

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.data.batch import Batch
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.kind import Split
from electra_tf.tasks.finetune.kinds.sentence import ONE_LABEL, Sentence, SentenceConfig, SentenceHead, SentenceTask
from electra_tf.tasks.finetune.labels import class_labels, label_ids
from electra_tf.tasks.finetune.scores import Report, class_report
from electra_tf.tasks.served import ServedOutputs


class ClassificationTask(SentenceTask):
    """Classifies with one label for each example."""

    target_tensors = {"label_ids": ("", tf.int32)}

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        weights, label_ids = self.label_weights(), batch["label_ids"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_ids, logits=forward)
        return losses * tf.gather(weights, label_ids)

    def predictions(self, logits: tf.Tensor) -> ServedOutputs:
        label = tf.gather(tf.constant(self.config.task.labels), tf.argmax(logits, axis=1))
        return {"label": label, "labels": self.all_labels(logits), "probabilities": tf.nn.softmax(logits)}


class Classification(Sentence):
    """One label for each example."""

    name, model = "classification", ClassificationTask
    transformers = SentenceHead(ONE_LABEL)
    metrics = ("accuracy", "f1_macro", "matthews_correlation")
    has_one_label = True
    labels_in = staticmethod(class_labels)

    def targets(self, examples: Examples, task: SentenceConfig) -> npt.NDArray[np.int32]:
        """Returns the id of each label: [N] int32. Raises: UserError: a label is not in `task.labels`."""
        return np.array(label_ids(enumerate(examples.gold), task.labels, examples.where), np.int32)

    def decisions(self, logits: npt.NDArray[np.float32], task: SentenceConfig) -> npt.NDArray[np.int32]:
        return logits.argmax(axis=1).astype(np.int32)

    def named(self, logits: npt.NDArray[np.float32], task: SentenceConfig) -> list[Any]:
        return [task.labels[index] for index in self.decisions(logits, task)]

    def report(self, split: Split, logits: npt.NDArray[np.float32]) -> Report:
        return class_report(split.task.labels, self.named(logits, split.task), split.examples.gold)
