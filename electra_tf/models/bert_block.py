"""BERT's encoder layer, as ELECTRA uses it: LayerNorm after each residual sum."""

import math
from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.layers import INFERENCE, EncoderPart, ForwardContext, LayerNorm, as_tensor, product
from electra_tf.ops.random import DropoutKey
from electra_tf.ops.reference import REFERENCE, float32, gelu, masked_scores


# Two layers that only hold weights: by their paths (`attention/query/kernel`) checkpoints name the variables.
class _SelfAttention(EncoderPart):
    """The weights of multi-head self-attention, without the output projection."""

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(config, **layer_options)
        self.query = self.dense(config.hidden_size, "query")
        self.key = self.dense(config.hidden_size, "key")
        self.value = self.dense(config.hidden_size, "value")

    def build(self, input_shape):
        for layer in (self.query, self.key, self.value):
            layer.build((None, input_shape[-1]))


class _ResidualOutput(EncoderPart):
    """The weights of a projection to the hidden size and of the LayerNorm after the residual sum."""

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(config, **layer_options)
        self.projection = self.dense(config.hidden_size, "dense")
        self.layer_norm = LayerNorm(epsilon=config.layer_norm_epsilon, name="LayerNorm")

    def build(self, input_shape):
        self.projection.build((None, input_shape[-1]))
        self.layer_norm.build((None, self.config.hidden_size))


class TransformerLayer(EncoderPart):
    """One encoder layer: self-attention, then the feed-forward network, each with residual and LayerNorm.

    Args:
        index: the number of the layer, from 0; all layers are alike.
        attention_mask: see `ReferenceOps.attention_probs`.
    Call:
        hidden: [B, S, H].
        key_mask: [B, S], see `electra_tf.ops.reference.key_mask_of`; all queries are computed.
    Returns: [B, S, H]; and [B, A, S, S], the attention probabilities, or None in training.
    """

    def __init__(self, config: EncoderConfig, index: int, attention_mask: str = "bidirectional", **layer_options):
        super().__init__(config, **layer_options)
        options = {"dtype": self.dtype_policy}
        self.attention_mask = attention_mask
        self.attention = _SelfAttention(config, name="attention_self", **options)
        self.attention_output = _ResidualOutput(config, name="attention_output", **options)
        self.intermediate = self.dense(config.intermediate_size, "intermediate")
        self.feed_forward_output = _ResidualOutput(config, name="output", **options)

    def build(self, input_shape):
        # The order determines the initial values that a seed gives.
        for layer in (self.intermediate, self.attention, self.attention_output):
            layer.build((None, self.config.hidden_size))
        self.feed_forward_output.build((None, self.config.intermediate_size))

    def call(self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE):
        if not context.training:
            return inference_layer(hidden, key_mask, self.joined_weights(), self.config, self.attention_mask)
        compute = context.ops.shared(
            _training_layer, config=self.config, attention_mask=self.attention_mask, ops=context.ops
        )
        return compute(hidden, key_mask, self._weights(), self._dropout_keys(context)), None

    def joined_weights(self, dtype: str | None = None) -> "JoinedWeights":
        """The weights as tensors, those of queries, keys and values side by side; see `Linear.cast_weights`."""
        weights = self._weights(dtype)
        others = (weights[name] for name in ("intermediate", "attention_output", "output"))
        return JoinedWeights(*_joined_qkv(weights, self.config), *others)

    def _weights(self, dtype: str | None = None) -> dict[str, tuple[tf.Tensor, ...]]:
        """Kernel and bias of each product, and gamma and beta of the LayerNorm after it, as tensors."""
        attention, outputs = self.attention, (self.attention_output, self.feed_forward_output)
        dense = (attention.query, attention.key, attention.value, self.intermediate)
        weights = {layer.name: layer.cast_weights(dtype) for layer in dense}
        for layer in outputs:
            projection, norm = layer.projection, layer.layer_norm
            weights[layer.name] = (*projection.cast_weights(dtype), as_tensor(norm.gamma), as_tensor(norm.beta))
        return weights

    def _dropout_keys(self, context: ForwardContext) -> dict[str, DropoutKey | None]:
        """The random bits of the layer's dropout masks; None where nothing is dropped."""
        attention_dropout, hidden_dropout = self.config.attention_dropout, self.config.hidden_dropout
        return {
            "attention": context.fold_in("attention").dropout_key(attention_dropout, "probs"),
            "attention_output": context.fold_in("attention_output").dropout_key(hidden_dropout, "output"),
            "output": context.fold_in("output").dropout_key(hidden_dropout, "output"),
        }


class JoinedWeights(NamedTuple):
    """The weights of a layer for inference.

    Attributes:
        qkv_kernel, qkv_bias: [H, 3 H] and [3 H]; those of the queries are scaled by 1 / sqrt(D).
        intermediate: kernel and bias of the feed-forward network's first product.
        attention_output, output: kernel and bias of a projection to the hidden size, gamma and beta of the LayerNorm.
    """

    qkv_kernel: tf.Tensor
    qkv_bias: tf.Tensor
    intermediate: tuple[tf.Tensor, ...]
    attention_output: tuple[tf.Tensor, ...]
    output: tuple[tf.Tensor, ...]


def inference_layer(
    hidden: tf.Tensor, key_mask: tf.Tensor, weights: JoinedWeights, config: EncoderConfig, attention_mask: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """The formula of `TransformerLayer` in inference; arguments and results are those of the layer.

    It multiplies matrices of two axes and adds the bias by `BiasAdd`; TensorFlow's graph optimizer fuses both, and a
    GELU by erf, into one oneDNN operation.
    """
    shape = tf.shape(hidden)  # [B, S, H]
    rows = tf.reshape(hidden, [-1, config.hidden_size])  # [B*S, H]
    heads = [shape[0], shape[1], 3, config.num_heads, config.hidden_size // config.num_heads]
    product_of_rows = tf.nn.bias_add(tf.matmul(rows, weights.qkv_kernel), weights.qkv_bias)  # [B*S, 3 H]
    query, key, value = tf.unstack(tf.transpose(tf.reshape(product_of_rows, heads), [2, 0, 3, 1, 4]))  # [B, A, S, D]
    probs = tf.nn.softmax(masked_scores(tf.matmul(query, key, transpose_b=True), key_mask, attention_mask))
    mixed = tf.transpose(tf.matmul(tf.cast(probs, value.dtype), value), [0, 2, 1, 3])  # [B, S, A, D]

    def add_layer_norm(values, residual, kernel, bias, gamma, beta) -> tf.Tensor:
        summed = float32(tf.nn.bias_add(tf.matmul(values, kernel), bias)) + float32(residual)
        return tf.cast(REFERENCE.layer_norm(summed, gamma, beta, epsilon=config.layer_norm_epsilon), values.dtype)

    rows = add_layer_norm(tf.reshape(mixed, tf.shape(rows)), rows, *weights.attention_output)
    kernel, bias = weights.intermediate
    expanded = gelu(tf.nn.bias_add(tf.matmul(rows, kernel), bias))  # [B*S, F]
    return tf.reshape(add_layer_norm(expanded, rows, *weights.output), shape), probs


def _joined_qkv(weights: dict[str, tuple[tf.Tensor, ...]], config: EncoderConfig) -> tuple[tf.Tensor, tf.Tensor]:
    """Kernel and bias of one product for queries, keys and values; queries are scaled, through their kernel."""
    kernels, biases = zip(*(weights[name] for name in ("query", "key", "value")), strict=True)
    scale = tf.cast(1.0 / math.sqrt(config.hidden_size // config.num_heads), kernels[0].dtype)
    return tf.concat([kernels[0] * scale, *kernels[1:]], axis=1), tf.concat([biases[0] * scale, *biases[1:]], axis=0)


def _training_layer(hidden, key_mask, weights, dropout_keys, *, config: EncoderConfig, attention_mask, ops):
    """The formula of `TransformerLayer` in training, on tensors alone: all layers of an encoder share one function."""
    with tf.name_scope("attention_self"):
        attention = {"config": config, "attention_mask": attention_mask, "ops": ops}
        attended = _self_attention(hidden, key_mask, weights, dropout_keys["attention"], **attention)

    def add_to_residual(values, residual, part: str) -> tf.Tensor:
        kernel, bias, gamma, beta = weights[part]
        options = {
            "epsilon": config.layer_norm_epsilon,
            "rate": config.hidden_dropout,
            "dropout_key": dropout_keys[part],
        }
        with tf.name_scope(part):
            return ops.dropout_add_layer_norm(product(values, kernel), bias, residual, gamma, beta, **options)

    hidden = add_to_residual(attended, hidden, "attention_output")
    kernel, bias = weights["intermediate"]
    with tf.name_scope("intermediate"):
        expanded = ops.bias_gelu(product(hidden, kernel), bias)  # [B, S, F]
    return add_to_residual(expanded, hidden, "output")


def _self_attention(hidden, key_mask, weights, dropout_key, *, config: EncoderConfig, attention_mask, ops):
    """Multi-head attention without the output projection: [B, S, H]."""
    kernel, bias = _joined_qkv(weights, config)
    query, key, value = ops.split_heads(product(hidden, kernel), bias, config.num_heads)  # [B, A, S, D]
    options = {"rate": config.attention_dropout, "dropout_key": dropout_key, "attention_mask": attention_mask}
    mixed = tf.transpose(ops.attention(query, key, value, key_mask, **options), [0, 2, 1, 3])  # [B, S, A, D]
    return tf.reshape(mixed, tf.shape(hidden))
