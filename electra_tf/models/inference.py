"""Trained encoders rearranged for the fastest inference without XLA, as in a server.

The concatenated kernel of queries, keys and values, with the scale of the queries, depends on the weights alone and is
computed once, not in each call. Each layer multiplies matrices of two axes and adds the bias by `BiasAdd`; TensorFlow's
graph optimizer fuses both, and a GELU by erf, into one oneDNN operation.
"""

import math

import tensorflow as tf
import tf_keras

from electra_tf.models.embeddings import DisentangledEmbeddings
from electra_tf.models.encoder import Encoder, TransformerLayer
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.ops.reference import float32, gelu, masked_scores


def prepare_for_inference(encoder: Encoder) -> None:
    """Replaces the encoder's layers; its results stay the same, and it cannot be trained any more. Idempotent."""
    encoder.transformer_layers = [
        layer if isinstance(layer, InferenceLayer) else InferenceLayer(layer) for layer in encoder.transformer_layers
    ]


def stand_alone(encoder: Encoder) -> None:
    """Replaces disentangled embeddings by plain ones with the summed tables; the encoder's results stay the same.

    For serving and export, not for an encoder that is trained further together with the generator.
    """
    if isinstance(encoder.embeddings, DisentangledEmbeddings):
        encoder.embeddings = encoder.embeddings.merged()


class InferenceLayer(tf_keras.layers.Layer):
    """A trained `TransformerLayer` without dropout; same call. Kernels are stored in the compute dtype.

    Args:
        layer: the layer to copy the weights of.
    """

    def __init__(self, layer: TransformerLayer):
        super().__init__(name=layer.name, dtype=layer.dtype_policy, trainable=False, autocast=False)
        config, attention = layer.config, layer.attention
        self._num_heads, self._epsilon = config.num_heads, config.layer_norm_epsilon
        self._attention_mask = layer.attention_mask
        scale = 1.0 / math.sqrt(config.hidden_size // config.num_heads)
        parts = ((attention.query, scale), (attention.key, 1.0), (attention.value, 1.0))
        with tf.name_scope(layer.name):
            self._qkv_kernel = self._weight(tf.concat([part.kernel * factor for part, factor in parts], axis=1))
            self._qkv_bias = self._weight(tf.concat([part.bias * factor for part, factor in parts], axis=0))
            self._intermediate_kernel = self._weight(layer.intermediate.kernel)
            self._intermediate_bias = self._weight(layer.intermediate.bias)
            self._outputs = [self._residual(part) for part in (layer.attention_output, layer.feed_forward_output)]
        self.built = True

    def call(self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE):
        assert not context.training, "an encoder that is prepared for inference cannot be trained"
        shape = tf.shape(hidden)  # [B, S, H]
        rows = tf.reshape(hidden, [-1, hidden.shape[-1]])  # [B*S, H]
        attended, probs = self._attend(rows, key_mask, shape)
        rows = self._add_layer_norm(attended, rows, *self._outputs[0])
        product = tf.matmul(rows, self._intermediate_kernel)
        expanded = gelu(tf.nn.bias_add(product, self._intermediate_bias))  # [B*S, F]
        rows = self._add_layer_norm(expanded, rows, *self._outputs[1])
        return tf.reshape(rows, shape), probs

    def _attend(self, rows: tf.Tensor, key_mask: tf.Tensor, shape: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Multi-head attention without the output projection: [B*S, H] vectors, [B, A, S, S] probabilities."""
        hidden_size = rows.shape[-1]
        heads = [shape[0], shape[1], 3, self._num_heads, hidden_size // self._num_heads]
        product = tf.nn.bias_add(tf.matmul(rows, self._qkv_kernel), self._qkv_bias)  # [B*S, 3 H]
        query, key, value = tf.unstack(tf.transpose(tf.reshape(product, heads), [2, 0, 3, 1, 4]))  # [B, A, S, D]
        scores = masked_scores(tf.matmul(query, key, transpose_b=True), key_mask, self._attention_mask)
        probs = tf.nn.softmax(scores)  # [B, A, S, S]
        mixed = tf.transpose(tf.matmul(tf.cast(probs, value.dtype), value), [0, 2, 1, 3])  # [B, S, A, D]
        return tf.reshape(mixed, [-1, hidden_size]), probs

    def _add_layer_norm(self, values, residual, kernel, bias, gamma, beta) -> tf.Tensor:
        """LayerNorm(values x kernel + bias + residual), [B*S, H]; sums and statistics in float32."""
        summed = float32(tf.nn.bias_add(tf.matmul(values, kernel), bias)) + float32(residual)
        centred = summed - tf.reduce_mean(summed, axis=-1, keepdims=True)
        deviation = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True) + self._epsilon)
        return tf.cast(centred * (deviation * gamma) + beta, values.dtype)

    def _residual(self, part) -> tuple[tf.Variable, ...]:
        """Kernel and bias of a projection, gamma and beta of the LayerNorm after it."""
        projection, norm = part.projection, part.layer_norm
        norms = (tf.Variable(values, trainable=False) for values in (norm.gamma, norm.beta))
        return self._weight(projection.kernel), self._weight(projection.bias), *norms

    def _weight(self, values: tf.Tensor) -> tf.Variable:
        return tf.Variable(tf.cast(values, self.compute_dtype), trainable=False)
