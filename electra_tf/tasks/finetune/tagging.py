"""Tagging: a label for each word, read off its first word piece."""

import tensorflow as tf
import tf_keras

from electra_tf.data.batch import Batch
from electra_tf.models.context import ForwardContext
from electra_tf.models.layers import glorot_uniform
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.task import FinetuningTask


class TaggingTask(FinetuningTask):
    """Logits [B, S, C] float32 from one product, which is also the head of ElectraForTokenClassification.

    The loss of a sentence is the sum over its words.
    Source: finetune/tagging/tagging_tasks.py of the authors' code.
    """

    target_tensors = {"label_ids": ("S", tf.int32), "label_weights": ("S", tf.float32)}

    def __init__(self, config: FinetuningConfig, **model_options):
        super().__init__(config, **model_options)
        self.output_layer = tf_keras.layers.Dense(
            len(config.task.labels),
            kernel_initializer=glorot_uniform(),
            dtype="float32",
            name="classifier",
        )

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, S, C] float32 logits."""
        hidden = tf.cast(self.encode(batch, context).sequence_output, tf.float32)
        return self.output_layer(context.dropout(hidden, self.config.task.dropout, "head"))

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label_ids"], logits=forward)
        return tf.reduce_sum(losses * batch["label_weights"], axis=1)

    def predictions(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(forward)
        return {
            "label_ids": tf.argmax(forward, axis=-1, output_type=tf.int32),
            "probabilities": tf.reduce_max(probabilities, axis=-1),
        }
