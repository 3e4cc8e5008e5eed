"""The context of a forward pass, initial values and small layers, for all networks."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.ops.random import DropoutKey, RandomStream
from electra_tf.ops.reference import REFERENCE, ReferenceOps


@dataclass(frozen=True)
class ForwardContext:
    """How a forward pass is run; passed down through every layer."""

    training: bool = False  # whether the pass belongs to a training step
    random: RandomStream | None = None  # to draw from; inference without sampling needs none
    rematerialize: bool = False  # whether the gradient computes each layer again instead of keeping its tensors
    dropout_enabled: bool = True  # False for frozen networks
    creates_variables: bool = False  # whether encoder layers are built, and not computed
    ops: ReferenceOps = REFERENCE  # or an `electra_tf.ops.fused.FusedOps`

    def fold_in(self, name: str) -> "ForwardContext":
        """The context of a named part of the model, whose random numbers are independent of other parts'."""
        return replace(self, random=self.random and self.random.fold_in(name))

    def frozen(self) -> "ForwardContext":
        """The context of a frozen network: no dropout and no rematerialisation."""
        return replace(self, dropout_enabled=False, rematerialize=False)

    def dropout(self, values: tf.Tensor, rate: float, name: str) -> tf.Tensor:
        """Zeroes a share `rate` of `values` and scales the rest by 1 / (1 - rate); the identity in inference.

        Args: values: [B, ...] with static inner dimensions.        name: unique among the draws of this context.
        """
        return self.ops.dropout(values, self.dropout_key(rate, name))

    def dropout_key(self, rate: float, name: str) -> DropoutKey | None:
        """A dropout mask; None where nothing is dropped."""
        if not (self.training and self.dropout_enabled) or rate == 0.0:
            return None
        return self.stream(name).dropout_key(rate)

    def stream(self, name: str) -> RandomStream:
        """The random numbers of one draw. Args: name: unique among the draws of this context."""
        assert self.random is not None, "training and sampling need a random stream"
        return self.random.fold_in(name)


INFERENCE = ForwardContext()

# A function of a shape and a dtype, which draws its seed when it is called: when a variable is created.
Initializer = Callable[..., tf.Tensor]

Shape = tuple[int | None, ...]  # of a layer's input


def seed_initial_values(seed: int) -> None:
    """Seeds Python's `random`, from which Keras draws initial values in order; not NumPy and TensorFlow."""
    random.seed(seed)


def truncated_normal(stddev: float) -> Initializer:
    """The authors' initializer of tables and kernels: a normal distribution, cut off at two standard deviations.

    The standard deviation of the result is 0.88 * stddev.
    """
    return lambda shape, dtype=None: keras.initializers.TruncatedNormal(stddev=stddev)(shape, dtype)


def glorot_uniform() -> Initializer:
    """TensorFlow's default, which the authors use for the embedding projection and the last discriminator layer."""
    return lambda shape, dtype=None: keras.initializers.GlorotUniform()(shape, dtype)


def as_tensor(values: keras.Variable | tf.Tensor, dtype: str | None = None) -> tf.Tensor:
    """The values of a weight or a tensor, in `dtype` if it is given."""
    tensor = tf.convert_to_tensor(values)
    return tensor if dtype is None else tf.cast(tensor, dtype)


def product(values: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """[B, S, H] x [H, F] -> [B, S, F], as one product of two matrices."""
    flat = tf.matmul(tf.reshape(values, [-1, values.shape[-1]]), kernel)
    return tf.reshape(flat, [-1, values.shape[1] or tf.shape(values)[1], kernel.shape[-1]])


def _named_alike(create: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
    """TensorFlow compiles an operation for each new name of a variable. Keras has names of its own."""
    return create(**options | {"name": "weight"})


class Part(keras.layers.Layer):
    """Base of all layers. Inputs and variables keep their types until the layer itself casts them.

    Keras would cast every floating-point argument to a layer's compute dtype, the numbers of packed sequences too.
    A layer without a `build` has no variables of its own; those of its parts are created when they are called.
    """

    def __init__(self, **layer_options: Any) -> None:
        super().__init__(autocast=False, **layer_options)
        self.built = type(self).build is Part.build

    def build(self, input_shape: Shape) -> None:
        """Creates the layer's own variables."""

    def weight(
        self, name: str, shape: Sequence[int | None], initializer: Initializer | str, **options: Any
    ) -> keras.Variable:
        """A new variable in float32, which is read as it is."""
        with tf.variable_creator_scope(_named_alike):
            return self.add_weight(name=name, shape=shape, initializer=initializer, autocast=False, **options)


class Linear(Part):
    """values x kernel + bias on the last axis; where only its weights are used, it is never called."""

    def __init__(
        self,
        units: int,
        kernel_initializer: Initializer,
        use_bias: bool = True,
        bias_initializer: Initializer | str = "zeros",
        **layer_options: Any,
    ) -> None:
        super().__init__(**layer_options)
        self.units, self.use_bias = units, use_bias
        self._initializers = (kernel_initializer, bias_initializer)
        self.bias = None

    def build(self, input_shape: Shape) -> None:
        of_kernel, of_bias = self._initializers
        self.kernel = self.weight("kernel", [input_shape[-1], self.units], of_kernel)
        if self.use_bias:
            self.bias = self.weight("bias", [self.units], of_bias)

    def call(self, values: tf.Tensor) -> tf.Tensor:
        dtype = self.compute_dtype
        products = tf.tensordot(as_tensor(values, dtype), as_tensor(self.kernel, dtype), 1)
        return products if self.bias is None else tf.nn.bias_add(products, as_tensor(self.bias, dtype))

    def tensors(self, dtype: str | None = None) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Kernel and bias, or None without one, in `dtype`, by default the layer's compute dtype."""
        dtype = dtype or self.compute_dtype
        return as_tensor(self.kernel, dtype), None if self.bias is None else as_tensor(self.bias, dtype)


class Dense(Linear):
    """values x kernel + bias, with a bias gradient that is summed in float32.

    On a CPU TensorFlow sums a bfloat16 bias gradient in bfloat16, where a sum stops growing at a few hundred times its
    summands: over 2,048 tokens half of the gradient was missing.

    Call: values: [B, S, H]. Returns: [B, S, F] in the layer's compute dtype.
    """

    def call(self, values: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        kernel, bias = self.tensors()
        return context.ops.add_bias(context.ops.shared(product)(as_tensor(values, self.compute_dtype), kernel), bias)


class DenseGelu(Dense):
    """gelu(values x kernel + bias), in float32 from the product on. Called as `Dense`."""

    def call(self, values: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        kernel, bias = self.tensors()
        return context.ops.bias_gelu(context.ops.shared(product)(as_tensor(values, self.compute_dtype), kernel), bias)


class LayerNorm(Part):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts it.

    Args: epsilon: added to the variance.        use_bias: whether it shifts.
    Call: values: [..., H], float32 or bfloat16. Returns: like `values`.
    Statistics, scale and offset are float32, whatever the policy of the layers around it.
    """

    def __init__(self, epsilon: float, use_bias: bool = True, **layer_options: Any) -> None:
        super().__init__(dtype="float32", **layer_options)
        self.epsilon, self.use_bias = epsilon, use_bias
        self.beta = None

    def build(self, input_shape: Shape) -> None:
        size = [input_shape[-1]]
        self.gamma = self.weight("gamma", size, "ones")
        if self.use_bias:
            self.beta = self.weight("beta", size, "zeros")

    def call(self, values: tf.Tensor, context: ForwardContext = INFERENCE) -> tf.Tensor:
        return context.ops.layer_norm(values, *self.tensors(), epsilon=self.epsilon)

    def tensors(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        """gamma and beta, or None without one."""
        return as_tensor(self.gamma), None if self.beta is None else as_tensor(self.beta)


class EncoderPart(Part):
    """Base of the parts of an encoder: the configuration, and how to make a dense sub-layer."""

    def __init__(self, config: EncoderConfig, **layer_options: Any) -> None:
        super().__init__(**layer_options)
        self.config = config

    def dense(self, units: int, name: str, use_bias: bool = True, stddev: float | None = None) -> Linear:
        """A layer for its weights. Its kernel has the configuration's initial deviation, or `stddev`."""
        initializer = truncated_normal(stddev or self.config.initializer_stddev)
        return Linear(units, initializer, use_bias, dtype=self.dtype_policy, name=name)
