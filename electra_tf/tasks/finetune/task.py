"""The base class of fine-tuning tasks: an encoder with a head, trained with layerwise learning rates."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import tensorflow as tf

from electra_tf.data.batch import TEXT_TENSORS, Batch, BatchSchema, mask_and_segments
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder, EncoderOutput
from electra_tf.models.layers import ForwardContext, LayerNorm, Linear, glorot_uniform
from electra_tf.ops.random import RandomStream
from electra_tf.ops.reference import gelu
from electra_tf.tasks.base import Task
from electra_tf.tasks.finetune.settings import FinetuningRunConfig
from electra_tf.tasks.terms import Term, Total

Head = Literal["linear", "huggingface"]

_ROW_TENSORS = {"row_weights": ("", tf.float32), "row_index": ("", tf.int32)}  # see `electra_tf.data.bucketing`
_LAYER = re.compile(r"electra/layer_(\d+)/")


def head_layer(units: int, name: str, use_bias: bool = True) -> Linear:
    """Returns a dense layer that computes in float32, whatever the precision of the encoder."""
    return Linear(units, kernel_initializer=glorot_uniform(), use_bias=use_bias, dtype="float32", name=name)


def sequences_as_rows(batch: Batch, context: ForwardContext) -> tuple[Batch, ForwardContext]:
    """The text of examples with C sequences, [B, C, S], as rows [B C, S], each with its own random numbers."""
    mask = batch["input_mask"]
    _, num_sequences, length = (size or tf.shape(mask)[axis] for axis, size in enumerate(mask.shape))
    rows = {name: tf.reshape(batch[name], [-1, length]) for name in TEXT_TENSORS}
    return rows, replace(context, random=context.random and context.random.of_rows(num_sequences))


class FinetuningTask(Task):
    """An encoder with a head, for batches of `electra_tf.data.bucketing`.

    A subclass defines `target_tensors`, `forward`, `row_losses` and `outputs`, and creates its head's layers in
    `__init__`: the last ones, and then those below them with `add_hidden_layers`. The loss is the sum over the examples
    of a batch, as in the authors' code, so `optimizer.clip_norm` limits the gradient of a sum.

    Attributes:
        seed: the seed of dropout; a variable, so that one traced step serves all seeds.
        hidden_layer, hidden_norm: the layers of Hugging Face's head below the last one; None where it has none.
    """

    config: FinetuningRunConfig
    target_tensors: dict[str, tuple[str, tf.DType]]  # the targets in a batch, see `electra_tf.data.batch.TEXT_TENSORS`
    text_axes = "S"  # the axes of a batch's text after the batch axis
    num_texts = 1  # C, where `text_axes` has it and it is the same for all examples
    reads_cls = False  # the head reads the vector of [CLS] alone
    drops_only_last = False  # Hugging Face's head has dropout before its last layer alone

    def __init__(self, config: FinetuningRunConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        dtype = self.layer_dtype
        embeddings = Embeddings(config.encoder, name="embeddings", dtype=dtype)
        self.electra = Encoder(config.encoder, embeddings, name="electra", dtype=dtype)
        self.hidden_layer: Linear | None = None
        self.hidden_norm: LayerNorm | None = None
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.seed = tf.Variable(config.train.seed, trainable=False, dtype=tf.int64, name="seed", aggregation=first)

    @property
    def encoder(self) -> Encoder:
        return self.electra

    @property
    def layer_names(self) -> Mapping[str, str]:
        """The names of the head's layers in checkpoints, by their attributes; by default the attribute's own."""
        return {"output_layer": "dense", "hidden_layer": "hidden", "hidden_norm": "LayerNorm"}

    def forward(self, batch: Batch, context: ForwardContext) -> Any:
        """Returns the head's outputs, the argument `forward` of `row_losses` and `outputs`."""
        raise NotImplementedError

    def row_losses(self, batch: Batch, forward: Any) -> tf.Tensor:
        """Returns the loss of each row: [B] float32."""
        raise NotImplementedError

    def outputs(self, batch: Batch, forward: Any) -> dict[str, tf.Tensor]:
        """Returns what metrics and predictions are computed from: [B, ...] by name."""
        raise NotImplementedError

    def encode(self, batch: Batch, context: ForwardContext) -> EncoderOutput:
        """Returns the encoder's output for the text of a batch."""
        return self.electra(batch["input_ids"], **mask_and_segments(batch), context=context.fold_in("electra"))

    def add_hidden_layers(self) -> None:
        """Creates the layers of a head `huggingface`: dense for texts, or dense and LayerNorm as in ModernBERT's.

        The dense layer ends with GELU, or with tanh where it is BERT's pooler.
        """
        task, encoder = self.config.task, self.config.encoder
        has_norm = encoder.traits.has_head_norm
        if task.head == "huggingface" and (has_norm or self.reads_cls):
            self.hidden_layer = head_layer(encoder.hidden_size, "hidden", use_bias=encoder.has_head_bias)
            if has_norm:
                self.hidden_norm = LayerNorm(encoder.layer_norm_epsilon, encoder.has_norm_bias, name="LayerNorm")

    def head_input(self, vectors: tf.Tensor, context: ForwardContext) -> tf.Tensor:
        """Returns the input of the last layers: the encoder's vectors [..., H] after the layers below, as float32.

        Dropout precedes each layer, but with a LayerNorm, BERT's pooler and in multiple choice only the last one, as in
        Hugging Face's models.
        """
        vectors, rate = tf.cast(vectors, tf.float32), getattr(self.config.task, "dropout", 0.0)
        has_pooler = self.config.encoder.has_pooler
        only_last = self.hidden_norm is not None or self.drops_only_last or has_pooler
        if self.hidden_layer is None or not only_last:
            vectors = context.dropout(vectors, rate, "head")
        if self.hidden_layer is None:
            return vectors
        vectors = (tf.tanh if has_pooler else gelu)(self.hidden_layer(vectors))
        if self.hidden_norm is not None:
            vectors = self.hidden_norm(vectors, context=context)
        return context.dropout(vectors, rate, "hidden")

    def call(self, inputs: Batch) -> Any:
        """Inference on `input_ids`, `input_mask` and `segment_ids`, [B, S] int32. Returns: see `forward`."""
        return self.forward(inputs, ForwardContext())

    @property
    def loss_weights(self) -> dict[str, float]:
        return {self.config.task.kind: float(self.config.train.batch_size)}

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        """`rows`: all rows of a batch, real or not, so that the mean times the batch size is the authors' sum."""
        return {"rows": tf.cast(tf.shape(batch["row_weights"])[0], tf.float32)}

    def training_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Total]:
        losses = self.row_losses(batch, self.forward(batch, context))
        return {self.config.task.kind: Total(tf.reduce_sum(losses * batch["row_weights"]), "rows")}

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        return {}  # all metrics are computed from `example_outputs`

    def example_outputs(self, batch: Batch, context: ForwardContext) -> dict[str, tf.Tensor]:
        forward = self.forward(batch, context)
        kept = self.outputs(batch, forward)
        if all(name in batch for name in self.target_tensors):  # new text has no targets
            kept["loss"] = self.row_losses(batch, forward)
        return {**kept, "row_index": batch["row_index"]}

    def empty_batch(self) -> Batch:
        texts = {name: (self.text_axes, dtype) for name, (_, dtype) in TEXT_TENSORS.items()}
        num_classes = len(getattr(self.config.task, "labels", ())) or self.num_texts
        tensors = BatchSchema({**texts, **self.target_tensors, **_ROW_TENSORS})
        return tensors.empty(1, S=self.config.data.max_seq_length, C=num_classes)

    def random_stream(self, step: tf.Tensor, first_example: tf.Tensor, name: str = "") -> RandomStream:
        # The seed fills the upper 32 of the 64 bits, which no step reaches.
        seeded = tf.cast(step, tf.int64) + self.seed * tf.constant(2**32, tf.int64)
        return RandomStream(0, seeded, first_example, name)

    def learning_rate_multiplier(self, variable: tf.Variable) -> float:
        """Returns decay ** (layers above), or one power more as in the authors' code (model/optimization.py)."""
        optimizer, num_layers = self.config.optimizer, self.config.encoder.num_layers
        name = variable.path
        if not name.startswith("electra/"):
            return 1.0
        layer = _LAYER.match(name)
        depth = int(layer[1]) + 1 if layer else num_layers if "/final_LayerNorm/" in name else 0
        above = num_layers + (2 if optimizer.layerwise_decay_top == "authors" else 1) - depth
        return optimizer.layerwise_decay**above


class LogitsTask(FinetuningTask):
    """A task whose head ends in one dense layer, which gives a logit for each label, or one.

    A subclass defines `target_tensors` and `row_losses`.
    """

    def __init__(self, config: FinetuningRunConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        self.num_outputs = len(getattr(config.task, "labels", ())) or 1
        self.output_layer = head_layer(self.num_outputs, "classifier")
        self.add_hidden_layers()

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """Logits: [B, C] float32 if the head reads [CLS], else [B, S, C]."""
        output = self.encode(batch, context)
        vectors = output.pooled_output if self.reads_cls else output.sequence_output
        return self.output_layer(self.head_input(vectors, context))

    def outputs(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": forward}
