"""The context of a forward pass, initial values and small layers, for all networks."""

import random
from dataclasses import dataclass, replace

import tensorflow as tf
import tf_keras
from tf_keras.src.backend import _SEED_GENERATOR

from electra_tf.config.networks import EncoderConfig
from electra_tf.ops.random import DropoutKey, RandomStream
from electra_tf.ops.reference import REFERENCE, ReferenceOps


@dataclass(frozen=True)
class ForwardContext:
    """How a forward pass is run; passed down through every layer.

    Attributes:
        training: whether the pass belongs to a training step.
        random: the stream to draw from. Inference without sampling needs none.
        rematerialize: whether the gradient computes each layer again instead of keeping its tensors.
        dropout_enabled: whether training applies dropout; False for frozen networks.
        creates_variables: whether the pass only creates variables; encoder layers are built, not computed.
        ops: the implementation of the operations: `REFERENCE` or an `electra_tf.ops.fused.FusedOps`.
    """

    training: bool = False
    random: RandomStream | None = None
    rematerialize: bool = False
    dropout_enabled: bool = True
    creates_variables: bool = False
    ops: ReferenceOps = REFERENCE

    def fold_in(self, name: str) -> "ForwardContext":
        """The context of a named part of the model, whose random numbers are independent of other parts'."""
        return replace(self, random=self.random and self.random.fold_in(name))

    def frozen(self) -> "ForwardContext":
        """The context of a frozen network: no dropout and no rematerialisation."""
        return replace(self, dropout_enabled=False, rematerialize=False)

    def dropout(self, values: tf.Tensor, rate: float, name: str) -> tf.Tensor:
        """Zeroes a share `rate` of `values` and scales the rest by 1 / (1 - rate); the identity in inference.

        Args:
            values: [B, ...] with static inner dimensions.
            rate: in [0, 1).
            name: unique among the draws of this context.
        Returns: like `values`.
        """
        return self.ops.dropout(values, rate=rate, dropout_key=self.dropout_key(rate, name))

    def dropout_key(self, rate: float, name: str) -> DropoutKey | None:
        """The random bits of a dropout mask; None where nothing is dropped."""
        if not (self.training and self.dropout_enabled) or rate == 0.0:
            return None
        assert self.random is not None, "training needs a random stream"
        return self.random.fold_in(name).dropout_key()


INFERENCE = ForwardContext()


def seed_initial_values(seed: int) -> None:
    """Seeds Keras, from which layers draw in order, but not Python, NumPy and TensorFlow, as its own function does."""
    _SEED_GENERATOR.generator = random.Random(seed)


def truncated_normal(stddev: float) -> tf_keras.initializers.Initializer:
    """The authors' initializer of tables and kernels: a normal distribution, cut off at two standard deviations.

    The standard deviation of the result is 0.88 * stddev.
    """
    return tf_keras.initializers.TruncatedNormal(stddev=stddev)


def glorot_uniform() -> tf_keras.initializers.Initializer:
    """TensorFlow's default, which the authors use for the embedding projection and the last discriminator layer."""
    return tf_keras.initializers.GlorotUniform()


def product(values: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """[B, S, H] x [H, F] -> [B, S, F], as one product of two matrices."""
    flat = tf.matmul(tf.reshape(values, [-1, values.shape[-1]]), kernel)
    return tf.reshape(flat, [-1, values.shape[1] or tf.shape(values)[1], kernel.shape[-1]])


class Dense(tf_keras.layers.Dense):
    """values x kernel + bias, with a bias gradient that is summed in float32.

    On a CPU TensorFlow sums a bfloat16 bias gradient in bfloat16, where a sum stops growing at a few hundred times its
    summands: over 2,048 tokens half of the gradient was missing.

    Call:
        values: [B, S, H].
    Returns: [B, S, F] in the layer's compute dtype.
    """

    def call(self, values: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        return context.ops.add_bias(product(values, self.kernel), as_tensor(self.bias))


class DenseGelu(Dense):
    """gelu(values x kernel + bias), in float32 from the product on. Called as `Dense`."""

    def call(self, values: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        return context.ops.bias_gelu(product(values, self.kernel), as_tensor(self.bias))


class LayerNorm(tf_keras.layers.Layer):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts it.

    Args:
        epsilon: added to the variance.        use_bias: whether it shifts.
    Call:
        values: [..., H], float32 or bfloat16.
    Returns: like `values`. Statistics, scale and offset are float32, whatever the policy of the layers around it.
    """

    def __init__(self, epsilon: float, use_bias: bool = True, **layer_options):
        # Keras would round the inputs, and the variables on reading, to a layer's own compute dtype.
        super().__init__(dtype="float32", autocast=False, **layer_options)
        self.epsilon, self.use_bias = epsilon, use_bias
        self.beta = None

    def build(self, input_shape):
        size = [input_shape[-1]]
        self.gamma = self.add_weight(name="gamma", shape=size, initializer="ones")
        if self.use_bias:
            self.beta = self.add_weight(name="beta", shape=size, initializer="zeros")
        super().build(input_shape)

    def call(self, values: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        return context.ops.layer_norm(values, self.gamma, self.beta, epsilon=self.epsilon)


def as_tensor(variable: tf.Variable | None) -> tf.Tensor | None:
    """The value of a weight; None for a layer without it."""
    return None if variable is None else tf.convert_to_tensor(variable)


class EncoderPart(tf_keras.layers.Layer):
    """Base of the parts of an encoder: the configuration, and how to make a dense sub-layer."""

    def __init__(self, config: EncoderConfig, **layer_options):
        super().__init__(**layer_options)
        self.config = config

    def dense(self, units: int, name: str, use_bias: bool = True, stddev: float | None = None) -> tf_keras.layers.Dense:
        """A layer for its weights. Its kernel has the configuration's initial deviation, or `stddev`."""
        return tf_keras.layers.Dense(
            units,
            kernel_initializer=truncated_normal(stddev or self.config.initializer_stddev),
            use_bias=use_bias,
            dtype=self.dtype_policy,
            name=name,
        )


def build_part(layer: tf_keras.layers.Layer, input_size: int) -> None:
    """Creates a layer's variables under its own name, for a layer that is never called itself."""
    with tf.name_scope(layer.name):
        layer.build([None, None, input_size])
