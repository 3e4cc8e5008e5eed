"""Classification with one label or several, and regression: a head on the vector of [CLS]."""

import tensorflow as tf
import tf_keras

from electra_tf.data.batch import Batch
from electra_tf.models.context import ForwardContext
from electra_tf.models.layers import glorot_uniform
from electra_tf.ops.reference import gelu
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.task import FinetuningTask

_TARGETS = {
    "classification": {"label_ids": ("", tf.int32)},
    "multi_label": {"label_ids": ("C", tf.int32)},
    "regression": {"targets": ("", tf.float32)},
}


class SentenceTask(FinetuningTask):
    """One text or a pair of them -> logits [B, C] float32; of regression [B, 1], in units of the scaled target.

    The head is the authors': dropout and one product; or that of Hugging Face's ElectraForSequenceClassification, which
    has a dense layer with GELU in between. It is computed in float32 whatever the precision of the encoder.
    Losses: cross-entropy; the mean over labels of binary cross-entropies; the squared error.
    Source: finetune/classification/classification_tasks.py of the authors' code.
    """

    def __init__(self, config: FinetuningConfig, **model_options):
        super().__init__(config, **model_options)
        self.target_tensors = _TARGETS[config.task.kind]
        self.output_layer = _dense(config.task.num_outputs, "classifier")
        self.hidden_layer = None
        if config.task.head == "huggingface":
            self.hidden_layer = _dense(config.encoder.hidden_size, "hidden")

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, C] float32 logits."""
        rate = self.config.task.dropout
        vector = tf.cast(self.encode(batch, context).pooled_output, tf.float32)
        vector = context.dropout(vector, rate, "head")
        if self.hidden_layer is not None:
            vector = context.dropout(gelu(self.hidden_layer(vector)), rate, "hidden")
        return self.output_layer(vector)

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        task = self.config.task
        if task.kind == "regression":
            return tf.square(forward[:, 0] - batch["targets"])
        weights = tf.constant(task.class_weights or (1.0,) * len(task.labels), tf.float32)
        label_ids = batch["label_ids"]
        if task.kind == "multi_label":
            labels = tf.cast(label_ids, tf.float32)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=forward)
            return tf.reduce_mean(losses * weights, axis=1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_ids, logits=forward)
        return losses * tf.gather(weights, label_ids)

    def predictions(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": forward}


def _dense(units: int, name: str) -> tf_keras.layers.Dense:
    return tf_keras.layers.Dense(units, kernel_initializer=glorot_uniform(), dtype="float32", name=name)
