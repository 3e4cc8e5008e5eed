"""Trained encoders rearranged for serving: what depends on the weights alone is computed once, not in each call."""

import tensorflow as tf
import tf_keras

from electra_tf.models.embeddings import DisentangledEmbeddings
from electra_tf.models.encoder import Encoder, JoinedWeights, TransformerLayer, inference_layer
from electra_tf.models.layers import INFERENCE, ForwardContext


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
        self._config, self._attention_mask = layer.config, layer.attention_mask
        with tf.name_scope(layer.name):
            qkv_kernel, qkv_bias, intermediate, *outputs = layer.joined_weights()
            dense = [self._weight(qkv_kernel), self._weight(qkv_bias), tuple(map(self._weight, intermediate))]
            for kernel, bias, *norm in outputs:
                norm = (tf.Variable(values, trainable=False) for values in norm)
                dense.append((self._weight(kernel), self._weight(bias), *norm))
        self._weights_of_layer = JoinedWeights(*dense)
        self.built = True

    def call(self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE):
        assert not context.training, "an encoder that is prepared for inference cannot be trained"
        return inference_layer(hidden, key_mask, self._weights_of_layer, self._config, self._attention_mask)

    def _weight(self, values: tf.Tensor) -> tf.Variable:
        return tf.Variable(tf.cast(values, self.compute_dtype), trainable=False)
