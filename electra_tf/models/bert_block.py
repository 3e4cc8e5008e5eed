"""BERT's encoder layer, as ELECTRA uses it: LayerNorm after each residual sum."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.layers import INFERENCE, EncoderPart, ForwardContext, LayerNorm, Shape, product
from electra_tf.ops.random import DropoutKey
from electra_tf.ops.reference import REFERENCE, AttentionOptions, ReferenceOps, float32, gelu, masked_scores

# By the part of a layer: kernel and bias of its product, and if it ends with a LayerNorm, gamma and beta.
Weights = dict[str, tuple[tf.Tensor, ...]]


# Two layers that only hold weights: by their paths (`attention/query/kernel`) checkpoints name the variables.
class _SelfAttention(EncoderPart):
    """The weights of multi-head self-attention, without the output projection."""

    def __init__(self, config: EncoderConfig, **layer_options: Any) -> None:
        super().__init__(config, **layer_options)
        self.query = self.dense(config.hidden_size, "query")
        self.key = self.dense(config.hidden_size, "key")
        self.value = self.dense(config.hidden_size, "value")

    def build(self, input_shape: Shape) -> None:
        for layer in (self.query, self.key, self.value):
            layer.build((None, input_shape[-1]))


class _ResidualOutput(EncoderPart):
    """The weights of a projection to the hidden size and of the LayerNorm after the residual sum."""

    def __init__(self, config: EncoderConfig, **layer_options: Any) -> None:
        super().__init__(config, **layer_options)
        self.projection = self.dense(config.hidden_size, "dense")
        self.layer_norm = LayerNorm(epsilon=config.layer_norm_epsilon, name="LayerNorm")

    def build(self, input_shape: Shape) -> None:
        self.projection.build((None, input_shape[-1]))
        self.layer_norm.build((None, self.config.hidden_size))


class TransformerLayer(EncoderPart):
    """One encoder layer: self-attention, then the feed-forward network, each with residual and LayerNorm.

    Args: index: the number of the layer, from 0; all layers are alike.        attention_mask: see `AttentionOptions`.
    Call: hidden: [B, S, H].        key_mask: [B, S], see `electra_tf.ops.reference.key_mask_of`.
    Returns: [B, S, H]; and [B, A, S, S], the attention probabilities, or None in training.
    """

    def __init__(
        self, config: EncoderConfig, index: int, attention_mask: str = "bidirectional", **layer_options: Any
    ) -> None:
        super().__init__(config, **layer_options)
        options = {"dtype": self.dtype_policy}
        self.attention_mask = attention_mask
        self.attention = _SelfAttention(config, name="attention_self", **options)
        self.attention_output = _ResidualOutput(config, name="attention_output", **options)
        self.intermediate = self.dense(config.intermediate_size, "intermediate")
        self.feed_forward_output = _ResidualOutput(config, name="output", **options)

    def build(self, input_shape: Shape) -> None:
        # The order determines the initial values that a seed gives.
        for layer in (self.intermediate, self.attention, self.attention_output):
            layer.build((None, self.config.hidden_size))
        self.feed_forward_output.build((None, self.config.intermediate_size))

    def call(
        self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        config, options = self.config, {"attention_mask": self.attention_mask}
        if not context.training:
            shape, rows = tf.shape(hidden), tf.reshape(hidden, [-1, config.hidden_size])
            (rows,), (probs,) = inference_layer([rows], [shape[1]], key_mask, self.joined_weights(), config, **options)
            return tf.reshape(rows, shape), probs
        weights = self._weights()
        dropout_keys = {
            "attention": context.fold_in("attention").dropout_key(config.attention_dropout, "probs"),
            "attention_output": context.fold_in("attention_output").dropout_key(config.hidden_dropout, "output"),
            "output": context.fold_in("output").dropout_key(config.hidden_dropout, "output"),
        }
        compute = context.ops.shared(_training_layer, config=config, ops=context.ops, **options)
        return compute(hidden, key_mask, weights, dropout_keys), None

    def joined_weights(self, dtype: str | None = None) -> Weights:
        """As `_weights`, with those of queries, keys and values side by side, as `qkv`."""
        weights = self._weights(dtype)
        others = {name: weights[name] for name in ("intermediate", "attention_output", "output")}
        return {"qkv": _joined_qkv(weights, self.config), **others}

    def _weights(self, dtype: str | None = None) -> Weights:
        """The weights as tensors, in the dtype of `Linear.tensors`."""
        attention, outputs = self.attention, (self.attention_output, self.feed_forward_output)
        dense = (attention.query, attention.key, attention.value, self.intermediate)
        weights: Weights = {layer.name: layer.tensors(dtype) for layer in dense}
        for part in outputs:
            weights[part.name] = (*part.projection.tensors(dtype), *part.layer_norm.tensors())
        return weights


def inference_layer(
    parts: Sequence[tf.Tensor],
    lengths: Sequence[int | tf.Tensor],
    key_mask: tf.Tensor,
    weights: Weights,
    config: EncoderConfig,
    attention_mask: str,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The formula of `TransformerLayer` in inference, with its `joined_weights`; results are those of the layer.

    It multiplies matrices of two axes and adds the bias by `BiasAdd`; TensorFlow's graph optimizer fuses both, and a
    GELU by erf, into one oneDNN operation. A sequence in several parts, which depend on each other's keys and values
    alone, is computed on as many cores.

    Args:
        parts: the positions of each sequence in order: [B*S', H] for the S' positions of each part.
        lengths: S' of each part.        attention_mask: "bidirectional" if there are several parts.
    Returns: the output of each part, [B*S', H], and its attention probabilities, [B, A, S', S] float32.
    """
    batch_size, heads = tf.shape(key_mask)[0], [config.num_heads, config.hidden_size // config.num_heads]
    kernel, bias = weights["qkv"]
    qkv = [
        tf.reshape(tf.nn.bias_add(tf.matmul(rows, kernel), bias), [batch_size, length, 3, *heads])
        for rows, length in zip(parts, lengths, strict=True)
    ]
    qkv = [tf.transpose(values, [2, 0, 3, 1, 4]) for values in qkv]  # [3, B, A, S', D]
    key, value = tf.unstack(tf.concat([values[1:] for values in qkv], axis=3))  # [B, A, S, D]
    options = AttentionOptions(attention_mask=attention_mask)

    def add_layer_norm(values: tf.Tensor, residual: tf.Tensor, weights: tuple[tf.Tensor, ...]) -> tf.Tensor:
        kernel, bias, gamma, beta = weights
        summed = float32(tf.nn.bias_add(tf.matmul(values, kernel), bias)) + float32(residual)
        return tf.cast(REFERENCE.layer_norm(summed, gamma, beta, epsilon=config.layer_norm_epsilon), values.dtype)

    outputs, all_probs = [], []
    for rows, values in zip(parts, qkv, strict=True):
        probs = tf.nn.softmax(masked_scores(tf.matmul(values[0], key, transpose_b=True), key_mask, options))
        mixed = tf.transpose(tf.matmul(tf.cast(probs, value.dtype), value), [0, 2, 1, 3])  # [B, S', A, D]
        attended = add_layer_norm(tf.reshape(mixed, tf.shape(rows)), rows, weights["attention_output"])
        kernel, bias = weights["intermediate"]
        expanded = gelu(tf.nn.bias_add(tf.matmul(attended, kernel), bias))  # [B*S', F]
        outputs.append(add_layer_norm(expanded, attended, weights["output"]))
        all_probs.append(probs)
    return outputs, all_probs


def _joined_qkv(weights: Weights, config: EncoderConfig) -> tuple[tf.Tensor, tf.Tensor]:
    """Kernel and bias of one product for queries, keys and values; queries are scaled, through their kernel."""
    kernels, biases = zip(*(weights[name] for name in ("query", "key", "value")), strict=True)
    scale = tf.cast(1.0 / math.sqrt(config.hidden_size // config.num_heads), kernels[0].dtype)
    return tf.concat([kernels[0] * scale, *kernels[1:]], axis=1), tf.concat([biases[0] * scale, *biases[1:]], axis=0)


def _training_layer(
    hidden: tf.Tensor,
    key_mask: tf.Tensor,
    weights: Weights,
    dropout_keys: dict[str, DropoutKey | None],
    *,
    config: EncoderConfig,
    attention_mask: str,
    ops: ReferenceOps,
) -> tf.Tensor:
    """The formula of `TransformerLayer` in training, on tensors alone: all layers of an encoder share one function."""
    dropout_keys = ops.drawn_keys(dropout_keys, hidden)
    with tf.name_scope("attention_self"):
        kernel, bias = _joined_qkv(weights, config)
        query, key, value = ops.split_heads(product(hidden, kernel), bias, config.num_heads)  # [B, A, S, D]
        options = AttentionOptions(dropout_keys["attention"], attention_mask)
        mixed = ops.attention(query, key, value, key_mask, options)
        attended = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), tf.shape(hidden))

    def add_to_residual(values: tf.Tensor, residual: tf.Tensor, part: str) -> tf.Tensor:
        kernel, bias, gamma, beta = weights[part]
        with tf.name_scope(part):
            return ops.dropout_add_layer_norm(
                product(values, kernel),
                bias,
                residual,
                gamma,
                beta,
                epsilon=config.layer_norm_epsilon,
                dropout_key=dropout_keys[part],
            )

    hidden = add_to_residual(attended, hidden, "attention_output")
    kernel, bias = weights["intermediate"]
    with tf.name_scope("intermediate"):
        expanded = ops.bias_gelu(product(hidden, kernel), bias)  # [B, S, F]
    return add_to_residual(expanded, hidden, "output")
