"""Small layers and initial values that the networks are made of."""

import tensorflow as tf
import tf_keras

from electra_tf.models.context import INFERENCE, ForwardContext


def truncated_normal(stddev: float) -> tf_keras.initializers.Initializer:
    """The authors' for tables and kernels: a normal of this standard deviation, cut at two of them.

    (The standard deviation of the result is 0.88 of it.)
    """
    return tf_keras.initializers.TruncatedNormal(stddev=stddev)


def glorot_uniform() -> tf_keras.initializers.Initializer:
    """TensorFlow's default, which the authors left in place for embedding projection and last discriminator layer."""
    return tf_keras.initializers.GlorotUniform()


def product(values: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """[B, S, H] x [H, F] -> [B, S, F], as one product of two matrices."""
    flat = tf.matmul(tf.reshape(values, [-1, values.shape[-1]]), kernel)
    return tf.reshape(flat, [-1, values.shape[1] or tf.shape(values)[1], kernel.shape[-1]])


class Dense(tf_keras.layers.Dense):
    """values x kernel + bias, with a bias gradient that is summed in float32.

    TensorFlow's own adds bfloat16 up in bfloat16 on a CPU, where a sum stops growing at some hundred times its
    summands: over 2,048 tokens half of the gradient was missing.

    Call:
        values: [B, S, H].
    Returns: [B, S, F] in the layer's compute dtype.
    """

    def call(self, values: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        return context.ops.add_bias(product(values, self.kernel), tf.convert_to_tensor(self.bias))


class DenseGelu(Dense):
    """gelu(values x kernel + bias), in float32 from the product on. Called as `Dense`."""

    def call(self, values: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        return context.ops.bias_gelu(product(values, self.kernel), tf.convert_to_tensor(self.bias))


class LayerNorm(tf_keras.layers.Layer):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts it.

    Args:
        epsilon: added to the variance.
    Call:
        values: [..., H], float32 or bfloat16.
    Returns: like `values`. Statistics, scale and offset are float32, whatever the policy of the layers around it.
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

    def call(self, values: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        return context.ops.layer_norm(values, self.gamma, self.beta, epsilon=self.epsilon)
