"""LayerNorm whose scale and offset stay float32 whatever the policy of the layers around it."""

import tensorflow as tf
import tf_keras

from electra_tf.ops import fused


class LayerNorm(tf_keras.layers.Layer):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts it.

    Args:
        epsilon: added to the variance.
    Call:
        values: [..., H], float32 or bfloat16.        compile: as one program, as in training.
    Returns: like `values`. Statistics, scale and offset are float32.
    """

    def __init__(self, epsilon: float, **layer_options):
        # Keras would round the inputs, and the variables on reading, to a layer's own compute dtype.
        super().__init__(dtype="float32", autocast=False, **layer_options)
        self.epsilon = epsilon

    def build(self, input_shape):
        size = [input_shape[-1]]
        self.gamma = self.add_weight(name="gamma", shape=size, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=size, initializer="zeros")
        super().build(input_shape)

    def call(self, values: tf.Tensor, compile: bool = False) -> tf.Tensor:
        norm = fused.compiled_layer_norm if compile else fused.layer_norm
        return norm(values, self.gamma, self.beta, epsilon=self.epsilon)
