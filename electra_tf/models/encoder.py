"""The transformer encoder of BERT, with LayerNorm after each residual sum, as ELECTRA uses it."""

import math
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from electra_tf.config.schema import EncoderConfig
from electra_tf.models.context import INFERENCE, ForwardContext
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.initializers import glorot_uniform, truncated_normal

# Added to the scores of padded keys before the softmax (modeling.py of the authors' code).
_MASKED_SCORE = -10000.0


class EncoderOutput(NamedTuple):
    """What an encoder computes.

    Attributes:
        sequence_output: [B, S, H], the last layer's output.
        pooled_output: [B, H], the vector of [CLS] as it is: ELECTRA has no pooler layer.
        embedding_output: [B, S, H], the input of the first layer.
        all_layer_outputs: L tensors [B, S, H].
        attention_probs: L tensors [B, A, S, S] float32, rows sum to 1, before dropout.
    """

    sequence_output: tf.Tensor
    pooled_output: tf.Tensor
    embedding_output: tf.Tensor
    all_layer_outputs: tuple[tf.Tensor, ...]
    attention_probs: tuple[tf.Tensor, ...]


def gelu(values: tf.Tensor) -> tf.Tensor:
    """The exact Gaussian error linear unit, by erf and not by the tanh approximation."""
    return tf.nn.gelu(values, approximate=False)


def sequence_length(values: tf.Tensor) -> tf.Tensor | int:
    """S of [B, S, ...]: a number where it is static, as in training; a scalar tensor where serving leaves it open."""
    return values.shape[1] or tf.shape(values)[1]


class _EncoderPart(tf_keras.layers.Layer):
    """What the parts of an encoder share: the configuration and how they make their sub-layers."""

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(**layer_options)
        self.config = config

    def dense(self, units: int, name: str, activation=None) -> tf_keras.layers.Layer:
        return tf_keras.layers.Dense(
            units,
            activation=activation,
            kernel_initializer=truncated_normal(self.config.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )

    def layer_normalization(self) -> tf_keras.layers.Layer:
        return tf_keras.layers.LayerNormalization(
            epsilon=self.config.layer_norm_epsilon, dtype=self.dtype_policy, name="LayerNorm"
        )


class SelfAttention(_EncoderPart):
    """Multi-head self-attention, without the output projection.

    Call:
        hidden: [B, S, H].        key_mask: [B, S] int32, 1 for keys that may be attended to; all queries are computed.
    Returns: ([B, S, H] context vectors, [B, A, S, S] float32 probabilities before dropout).
    """

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(config, **layer_options)
        self.query = self.dense(config.hidden_size, "query")
        self.key = self.dense(config.hidden_size, "key")
        self.value = self.dense(config.hidden_size, "value")

    def call(self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE):
        query, key, value = (self._split_heads(layer(hidden)) for layer in (self.query, self.key, self.value))
        scale = 1.0 / math.sqrt(self.config.hidden_size // self.config.num_heads)
        scores = tf.matmul(query * tf.cast(scale, query.dtype), key, transpose_b=True)  # [B, A, S, S]
        padding = (1.0 - tf.cast(key_mask, tf.float32))[:, tf.newaxis, tf.newaxis, :] * _MASKED_SCORE
        probs = tf.nn.softmax(tf.cast(scores, tf.float32) + padding)
        dropped = context.dropout(tf.cast(probs, value.dtype), self.config.attention_dropout, "probs")
        mixed = tf.transpose(tf.matmul(dropped, value), [0, 2, 1, 3])  # [B, S, A, D]
        return tf.reshape(mixed, tf.shape(hidden)), probs

    def _split_heads(self, projected: tf.Tensor) -> tf.Tensor:
        length, heads = sequence_length(projected), self.config.num_heads
        split = tf.reshape(projected, [-1, length, heads, self.config.hidden_size // heads])  # [B, S, A, D]
        return tf.transpose(split, [0, 2, 1, 3])  # [B, A, S, D]


class _ResidualOutput(_EncoderPart):
    """A projection to the hidden size, dropout, and LayerNorm of the sum with the residual."""

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(config, **layer_options)
        self.projection = self.dense(config.hidden_size, "dense")
        self.layer_norm = self.layer_normalization()

    def call(self, values: tf.Tensor, residual: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        projected = context.dropout(self.projection(values), self.config.hidden_dropout, "output")
        return self.layer_norm(projected + residual)


class TransformerLayer(_EncoderPart):
    """One encoder layer: self-attention, then the feed-forward network, each with residual and LayerNorm.

    Call:
        hidden: [B, S, H].        key_mask: [B, S] int32.
    Returns: ([B, S, H], [B, A, S, S] float32 attention probabilities).
    """

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(config, **layer_options)
        options = {"dtype": self.dtype_policy}
        self.attention = SelfAttention(config, name="attention_self", **options)
        self.attention_output = _ResidualOutput(config, name="attention_output", **options)
        self.intermediate = self.dense(config.intermediate_size, "intermediate", activation=gelu)
        self.feed_forward_output = _ResidualOutput(config, name="output", **options)

    def call(self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE):
        attended, probs = self.attention(hidden, key_mask=key_mask, context=context.scope("attention"))
        hidden = self.attention_output(attended, residual=hidden, context=context.scope("attention_output"))
        expanded = self.intermediate(hidden)  # [B, S, F]
        return self.feed_forward_output(expanded, residual=hidden, context=context.scope("output")), probs


class Encoder(_EncoderPart):
    """Embeddings, projected where their size is not the hidden size, and the transformer layers.

    Args:
        config: the encoder's sizes.
        embeddings: the embedding layer; passing the same object to two encoders ties them.
    Call:
        input_ids, input_mask, segment_ids: [B, S] int32; `input_mask` is 1 for real tokens.
    Returns: `EncoderOutput`.
    """

    def __init__(self, config: EncoderConfig, embeddings: Embeddings, **layer_options):
        super().__init__(config, **layer_options)
        self.embeddings = embeddings
        self.embeddings_project = None
        if embeddings.config.embedding_size != config.hidden_size:
            self.embeddings_project = tf_keras.layers.Dense(
                config.hidden_size,
                kernel_initializer=glorot_uniform(),
                dtype=self.dtype_policy,
                name="embeddings_project",
            )
        self.transformer_layers = [
            TransformerLayer(config, dtype=self.dtype_policy, name=f"layer_{index}")
            for index in range(config.num_layers)
        ]

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        context: ForwardContext = INFERENCE,
    ) -> EncoderOutput:
        hidden = self.embeddings(input_ids, segment_ids=segment_ids)
        hidden = context.dropout(hidden, self.config.hidden_dropout, "embeddings")
        if self.embeddings_project is not None:
            hidden = self.embeddings_project(hidden)
        embedding_output, layer_outputs, attention_probs = hidden, [], []
        for layer in self.transformer_layers:
            hidden, probs = layer(hidden, key_mask=input_mask, context=context.scope(layer.name))
            layer_outputs.append(hidden)
            attention_probs.append(probs)
        return EncoderOutput(hidden, hidden[:, 0], embedding_output, tuple(layer_outputs), tuple(attention_probs))
