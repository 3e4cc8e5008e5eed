"""Dense layers whose bias gradients are summed in float32.

TensorFlow's own bias gradient adds bfloat16 up in bfloat16 on a CPU, where a sum stops growing at some hundred times
its summands: over 2,048 tokens half of the gradient was missing.
"""

import tensorflow as tf
import tf_keras

from electra_tf.ops import fused


def product(values: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """[B, S, H] x [H, F] -> [B, S, F], as one product of two matrices."""
    flat = tf.matmul(tf.reshape(values, [-1, values.shape[-1]]), kernel)
    return tf.reshape(flat, [-1, values.shape[1] or tf.shape(values)[1], kernel.shape[-1]])


class Dense(tf_keras.layers.Dense):
    """values x kernel + bias.

    Call:
        values: [B, S, H].        training: whether a gradient is wanted.
    Returns: [B, S, F] in the layer's compute dtype.
    """

    def call(self, values: tf.Tensor, training: bool = False) -> tf.Tensor:
        return fused.add_bias(product(values, self.kernel), tf.convert_to_tensor(self.bias), training)


class DenseGelu(Dense):
    """gelu(values x kernel + bias), in float32 from the product on. Called as `Dense`."""

    def call(self, values: tf.Tensor, training: bool = False) -> tf.Tensor:
        return fused.bias_gelu(product(values, self.kernel), tf.convert_to_tensor(self.bias), training)
