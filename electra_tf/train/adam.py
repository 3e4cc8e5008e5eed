"""Adam with weight decay and without bias correction, as in the authors' code."""

import re
from collections.abc import Callable

import numpy as np
import keras
import tensorflow as tf

from electra_tf.models.layers import plain_name


class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay and without bias correction.

        m = beta_1 m + (1 - beta_1) g        v = beta_2 v + (1 - beta_2) g^2
        w -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)

    Without the correction the first updates are about (1 - beta_1) / sqrt(1 - beta_2) = 3 times larger than Adam's.

    Args:
        schedule: the learning rate as a function of the step.
        weight_decay_rate: the fraction of a weight that is subtracted, per unit of learning rate.
        exclude_from_weight_decay: regular expressions; variables whose name contains a match are not decayed.
        learning_rate_multiplier: the factor of each variable's learning rate, for both the update and the decay.
    Source: optimization.py of the authors' code.
    """

    is_compilable = True

    def __init__(
        self,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        *,
        beta_1: float,
        beta_2: float,
        epsilon: float,
        weight_decay_rate: float,
        exclude_from_weight_decay: tuple[str, ...],
        learning_rate_multiplier: Callable[[tf.Variable], float],
    ):
        super().__init__(learning_rate=schedule, name="AdamWeightDecay")
        self.schedule = schedule
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.decay_exclusions = tuple(exclude_from_weight_decay)
        self.learning_rate_multiplier = learning_rate_multiplier

    def build(self, var_list):
        """Creates `iterations` and the moments of these variables."""
        if self.built:
            return
        self._index = {self._var_key(variable): index for index, variable in enumerate(var_list)}
        self._first_moments, self._second_moments = (self._zeros_like(var_list, name) for name in ("m", "v"))
        self.built = True

    @property
    def variables(self) -> list[tf.Variable]:
        """`iterations` and the moments."""
        return [self.iterations, *self._first_moments, *self._second_moments]

    def _trackable_children(self, save_type="checkpoint", **options):
        names = ("_iterations", "_first_moments", "_second_moments")  # as with Keras 2
        return {name: each for name, each in super()._trackable_children(save_type, **options).items() if name in names}

    def _zeros_like(self, var_list: list[tf.Variable], name: str) -> list[tf.Variable]:
        # All share one name: TensorFlow compiles an operation for each new name, which took half a second.
        return [tf.Variable(tf.zeros(variable.shape), trainable=False, name=name) for variable in var_list]

    def apply(
        self, gradients: list[tf.Tensor], variables: list[tf.Variable], clip_scale: tf.Tensor, apply_update: tf.Tensor
    ) -> None:
        """Updates every variable with `clip_scale` times its gradient; leaves `iterations` alone. In a replica context.

        Args:
            gradients: dense, already summed over replicas.
            clip_scale: scalar float32, that of clipping.
            apply_update: scalar bool; False changes nothing.
        """
        scalars = self._scalars(clip_scale, apply_update)
        for variable, gradient in zip(variables, gradients, strict=True):
            self._update(variable, gradient, scalars)

    def _scalars(self, clip_scale: tf.Tensor, apply_update: tf.Tensor) -> dict[str, tf.Tensor]:
        """The numbers that the updates of all variables share. They change nothing without `apply_update`."""
        learning_rate = tf.where(apply_update, self.schedule(tf.convert_to_tensor(self.iterations)), 0.0)
        numbers = {
            "clip_scale": tf.where(apply_update, clip_scale, 0.0),
            "learning_rate": learning_rate * self._second_moment_deviation(),
            "decay": learning_rate * self.weight_decay_rate,
            "beta_1": tf.where(apply_update, self.beta_1, 1.0),
            "beta_2": tf.where(apply_update, self.beta_2, 1.0),
            "beta_power": 0.0,  # turns the kernel's bias correction off
            "epsilon": self.epsilon * self._second_moment_deviation(),
        }
        return {name: tf.convert_to_tensor(value) for name, value in numbers.items()}

    def _update(self, variable, gradient, scalars) -> None:
        # By handles: in a replica context they are those of this replica's copies. All replicas have the same gradient,
        # so each updates its own copy. Keras' way, a meeting of all replicas, cannot be compiled.
        index = self._index[self._var_key(variable)]
        learning_rate, decay = scalars["learning_rate"], scalars["decay"]
        multiplier = self.learning_rate_multiplier(variable)
        if multiplier != 1.0:
            learning_rate, decay = learning_rate * multiplier, decay * multiplier
        if self.weight_decay_rate and self.decays(variable):
            tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=decay * tf.convert_to_tensor(variable))
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._first_moments[index].handle,
            v=self._second_moments[index].handle,
            beta1_power=scalars["beta_power"],
            beta2_power=scalars["beta_power"],
            lr=learning_rate,
            beta1=scalars["beta_1"],
            beta2=scalars["beta_2"],
            epsilon=scalars["epsilon"],
            # 0 where the scale is 0, even if the gradient is not finite.
            grad=tf.math.multiply_no_nan(gradient, scalars["clip_scale"]),
        )

    def _second_moment_deviation(self) -> float:
        """sqrt(v) in TensorFlow's kernel divided by sqrt(v) in the formula.

        The kernel computes 1 - beta_2 in float32. For 0.999 the result is too small by a fraction of 1.3e-5, and v is
        proportional to it. Scaling the learning rate and epsilon by the square root restores the update.
        """
        kernel_share = np.float32(1.0) - np.float32(self.beta_2)
        return float(np.sqrt(np.float64(kernel_share) / (1.0 - self.beta_2)))

    def decays(self, variable: tf.Variable) -> bool:
        """Whether weight decay applies to the variable."""
        return not any(re.search(pattern, plain_name(variable)) for pattern in self.decay_exclusions)

