"""The base of every fine-tuning task: an encoder with a head, learning rates by depth, and weights for each seed."""

import re
from typing import Any

import tensorflow as tf

from electra_tf.data.batch import TEXT_TENSORS, Batch, BatchSchema, mask_and_segments
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder, EncoderOutput
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.base import Task
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.terms import Term, Total

ROW_TENSORS = {
    "row_weights": ("", tf.float32),  # 0 in a row that fills a batch up
    "row_index": ("", tf.int32),
}
_LAYER = re.compile(r"electra/layer_(\d+)/")


class FinetuningTask(Task):
    """An encoder and a head on top of it. Its batches are those of `electra_tf.data.bucketing`.

    A subclass defines `target_tensors`, `forward`, `row_losses` and `predictions`, and creates its head's layers in
    `__init__`.

    The loss is the sum over the examples of a batch, as in the authors' code; so `optimizer.clip_norm` is of the
    gradient of a sum.

    Attributes:
        seed: of dropout, a variable: so one traced step serves all seeds.
        target_tensors: the targets in a batch, laid out as `electra_tf.data.batch.TEXT_TENSORS`.
    """

    config: FinetuningConfig
    target_tensors: dict[str, tuple[str, tf.DType]]

    def __init__(self, config: FinetuningConfig, **model_options):
        super().__init__(config, **model_options)
        dtype = self.layer_dtype
        embeddings = Embeddings(config.encoder, name="embeddings", dtype=dtype)
        self.electra = Encoder(config.encoder, embeddings, name="electra", dtype=dtype)
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.seed = tf.Variable(config.train.seed, trainable=False, dtype=tf.int64, name="seed", aggregation=first)

    @property
    def encoder(self) -> Encoder:
        return self.electra

    def forward(self, batch: Batch, context: ForwardContext) -> Any:
        """All that one forward pass computes: what the two methods below take."""
        raise NotImplementedError

    def row_losses(self, batch: Batch, forward: Any) -> tf.Tensor:
        """[B] float32: the loss of each row."""
        raise NotImplementedError

    def predictions(self, batch: Batch, forward: Any) -> dict[str, tf.Tensor]:
        """[B, ...] by name: what an evaluation keeps of each row."""
        raise NotImplementedError

    def encode(self, batch: Batch, context: ForwardContext) -> EncoderOutput:
        """The encoder's output for the text of a batch."""
        return self.electra(batch["input_ids"], **mask_and_segments(batch), context=context.scope("electra"))

    def call(self, inputs: Batch):
        """Inference on `input_ids`, `input_mask`, `segment_ids` ([B, S] int32): what `forward` gives."""
        return self.forward(inputs, ForwardContext())

    @property
    def loss_weights(self) -> dict[str, float]:
        return {self.config.task.kind: float(self.config.train.batch_size)}

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        """`rows`: all of a batch, real or not, so that mean times batch size is the authors' sum."""
        return {"rows": tf.cast(tf.shape(batch["row_weights"])[0], tf.float32)}

    def training_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Total]:
        losses = self.row_losses(batch, self.forward(batch, context))
        return {self.config.task.kind: Total(tf.reduce_sum(losses * batch["row_weights"]), "rows")}

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        return {}  # all follow from the outputs

    def example_outputs(self, batch: Batch, context: ForwardContext) -> dict[str, tf.Tensor]:
        forward = self.forward(batch, context)
        kept = self.predictions(batch, forward)
        if all(name in batch for name in self.target_tensors):  # not where nothing is known of new text
            kept["loss"] = self.row_losses(batch, forward)
        return {**kept, "row_index": batch["row_index"]}

    def empty_batch(self) -> Batch:
        tensors = BatchSchema({**TEXT_TENSORS, **self.target_tensors, **ROW_TENSORS})
        return tensors.empty(1, S=self.config.data.max_seq_length, C=self.num_labels)

    @property
    def num_labels(self) -> int:
        """C, the size of the axis of labels, for tasks that have one."""
        return len(getattr(self.config.task, "labels", ()))

    def random_stream(self, step: tf.Tensor, first_example: tf.Tensor, name: str = "") -> RandomStream:
        # The seed goes where a step never gets to: the upper half of the 64 bits.
        seeded = tf.cast(step, tf.int64) + self.seed * tf.constant(2**32, tf.int64)
        return RandomStream(0, seeded, first_example, name)

    def learning_rate_multiplier(self, variable: tf.Variable) -> float:
        """decay ** (number of layers above), with one more as in the authors' code (model/optimization.py)."""
        optimizer, num_layers = self.config.optimizer, self.config.encoder.num_layers
        if not variable.name.startswith("electra/"):
            return 1.0
        layer = _LAYER.match(variable.name)
        depth = int(layer[1]) + 1 if layer else 0
        above = num_layers + (2 if optimizer.layerwise_decay_top == "authors" else 1) - depth
        return optimizer.layerwise_decay**above
