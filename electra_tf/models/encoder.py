"""The transformer encoder of BERT, with LayerNorm after each residual sum, as ELECTRA uses it."""

import functools
import math
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.context import INFERENCE, ForwardContext
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.layers import Dense, LayerNorm, glorot_uniform, product, truncated_normal


class EncoderOutput(NamedTuple):
    """What an encoder computes.

    Attributes:
        sequence_output: [B, S, H], the last layer's output.
        pooled_output: [B, H], the vector of [CLS] as it is: ELECTRA has no pooler layer.
        embedding_output: [B, S, H], the input of the first layer.
        all_layer_outputs: L tensors [B, S, H].
        attention_probs: L tensors [B, A, S, S], rows sum to 1, before dropout; for inspection, without gradient in
            training. float32 in inference. None where layers are rematerialised.
    """

    sequence_output: tf.Tensor
    pooled_output: tf.Tensor
    embedding_output: tf.Tensor
    all_layer_outputs: tuple[tf.Tensor, ...]
    attention_probs: tuple[tf.Tensor, ...]


class _EncoderPart(tf_keras.layers.Layer):
    """What the parts of an encoder share: the configuration and how they make their sub-layers."""

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(**layer_options)
        self.config = config

    def dense(self, units: int, name: str) -> tf_keras.layers.Dense:
        return tf_keras.layers.Dense(
            units,
            kernel_initializer=truncated_normal(self.config.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )

    def layer_norm_layer(self) -> LayerNorm:
        return LayerNorm(epsilon=self.config.layer_norm_epsilon, name="LayerNorm")


def _build(layer: tf_keras.layers.Layer, input_size: int) -> None:
    """Creates a layer's variables under its own name, for a layer whose product is taken by the layer above it."""
    with tf.name_scope(layer.name):
        layer.build([None, None, input_size])


class SelfAttention(_EncoderPart):
    """Multi-head self-attention, without the output projection.

    Args:
        attention_mask: which keys a query sees, see `ReferenceOps.attention_probs`.
    Call:
        hidden: [B, S, H].        key_mask: [B, S] int32, 1 for keys that may be attended to; all queries are computed.
    Returns: ([B, S, H] context vectors, [B, A, S, S] probabilities before dropout).
    """

    def __init__(self, config: EncoderConfig, attention_mask: str = "bidirectional", **layer_options):
        super().__init__(config, **layer_options)
        self.attention_mask = attention_mask
        self.query = self.dense(config.hidden_size, "query")
        self.key = self.dense(config.hidden_size, "key")
        self.value = self.dense(config.hidden_size, "value")

    def build(self, input_shape):
        for layer in (self.query, self.key, self.value):
            _build(layer, input_shape[-1])
        super().build(input_shape)

    def call(self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE):
        query, key, value = self._heads(hidden, context)
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, S, S]
        draw = context.draw(self.config.attention_dropout, "probs")
        probs, dropped = context.ops.attention_probs(
            scores, key_mask, rate=self.config.attention_dropout, draw=draw, attention_mask=self.attention_mask
        )
        mixed = tf.transpose(tf.matmul(dropped, value), [0, 2, 1, 3])  # [B, S, A, D]
        return tf.reshape(mixed, tf.shape(hidden)), probs

    def _heads(self, hidden: tf.Tensor, context: ForwardContext) -> tuple[tf.Tensor, ...]:
        """[B, A, S, D] each: queries, keys and values from one product; queries are scaled, through their kernel."""
        scale = tf.cast(1.0 / math.sqrt(self.config.hidden_size // self.config.num_heads), hidden.dtype)
        query, key, value = self.query, self.key, self.value
        kernel = tf.concat([query.kernel * scale, key.kernel, value.kernel], axis=1)
        bias = tf.concat([query.bias * scale, key.bias, value.bias], axis=0)
        return context.ops.split_heads(product(hidden, kernel), bias, self.config.num_heads)


class _ResidualOutput(_EncoderPart):
    """A projection to the hidden size, dropout, and LayerNorm of the sum with the residual."""

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(config, **layer_options)
        self.projection = self.dense(config.hidden_size, "dense")
        self.layer_norm = self.layer_norm_layer()

    def build(self, input_shape):
        _build(self.projection, input_shape[-1])
        _build(self.layer_norm, self.config.hidden_size)
        super().build(input_shape)

    def call(self, values: tf.Tensor, residual: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        return context.ops.dropout_add_layer_norm(
            product(values, self.projection.kernel),
            self.projection.bias,
            residual,
            self.layer_norm.gamma,
            self.layer_norm.beta,
            epsilon=self.config.layer_norm_epsilon,
            rate=self.config.hidden_dropout,
            draw=context.draw(self.config.hidden_dropout, "output"),
        )


class TransformerLayer(_EncoderPart):
    """One encoder layer: self-attention, then the feed-forward network, each with residual and LayerNorm.

    Args:
        attention_mask: see `ReferenceOps.attention_probs`.
    Call:
        hidden: [B, S, H].        key_mask: [B, S] int32.
    Returns: ([B, S, H], [B, A, S, S] attention probabilities before dropout).
    """

    def __init__(self, config: EncoderConfig, attention_mask: str = "bidirectional", **layer_options):
        super().__init__(config, **layer_options)
        options = {"dtype": self.dtype_policy}
        self.attention = SelfAttention(config, attention_mask, name="attention_self", **options)
        self.attention_output = _ResidualOutput(config, name="attention_output", **options)
        self.intermediate = self.dense(config.intermediate_size, "intermediate")
        self.feed_forward_output = _ResidualOutput(config, name="output", **options)

    def build(self, input_shape):
        _build(self.intermediate, input_shape[-1])
        super().build(input_shape)

    def call(self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE):
        attended, probs = self.attention(hidden, key_mask=key_mask, context=context.scope("attention"))
        hidden = self.attention_output(attended, residual=hidden, context=context.scope("attention_output"))
        expanded = product(hidden, self.intermediate.kernel)  # [B, S, F]
        expanded = context.ops.bias_gelu(expanded, self.intermediate.bias)
        return self.feed_forward_output(expanded, residual=hidden, context=context.scope("output")), probs


class Encoder(_EncoderPart):
    """Embeddings, projected where their size is not the hidden size, and the transformer layers.

    Args:
        config: the encoder's sizes.
        embeddings: the embedding layer; passing the same object to two encoders ties them.
        attention_mask: see `ReferenceOps.attention_probs`.
    Call:
        input_ids, input_mask, segment_ids: [B, S] int32; `input_mask` is 1 for real tokens.
    Returns: `EncoderOutput`.
    """

    def __init__(
        self, config: EncoderConfig, embeddings: Embeddings, attention_mask: str = "bidirectional", **layer_options
    ):
        super().__init__(config, **layer_options)
        self.embeddings = embeddings
        self.embeddings_project = None
        if embeddings.config.embedding_size != config.hidden_size:
            self.embeddings_project = Dense(
                config.hidden_size,
                kernel_initializer=glorot_uniform(),
                dtype=self.dtype_policy,
                name="embeddings_project",
            )
        self.transformer_layers = [
            TransformerLayer(config, attention_mask, dtype=self.dtype_policy, name=f"layer_{index}")
            for index in range(config.num_layers)
        ]

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        context: ForwardContext = INFERENCE,
    ) -> EncoderOutput:
        hidden = self.embeddings(input_ids, segment_ids=segment_ids, context=context)
        hidden = context.dropout(hidden, self.config.hidden_dropout, "embeddings")
        if self.embeddings_project is not None:
            hidden = self.embeddings_project(hidden, context=context)
        embedding_output, layer_outputs, attention_probs = hidden, [], []
        for layer in self.transformer_layers:
            run = functools.partial(layer, key_mask=input_mask, context=context.scope(layer.name))
            if context.rematerialize:
                hidden = tf.recompute_grad(lambda values, run=run: run(values)[0])(hidden)
            else:
                hidden, probs = run(hidden)
                attention_probs.append(probs)
            layer_outputs.append(hidden)
        return EncoderOutput(hidden, hidden[:, 0], embedding_output, tuple(layer_outputs), tuple(attention_probs))
