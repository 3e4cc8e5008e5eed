"""Adam with weight decay and without bias correction, as in the authors' code."""

import functools
import math
import re
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.schema import OptimizerConfig
from electra_tf.train.schedule import learning_rate_at


class AdamWeightDecay(tf.Module):
    """Adam with decoupled weight decay and without bias correction.

        m = beta_1 m + (1 - beta_1) g        v = beta_2 v + (1 - beta_2) g^2
        w -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)

    Without the correction the first updates are about (1 - beta_1) / sqrt(1 - beta_2) = 3 times larger than Adam's.

    Args: see `electra_tf.train.optimizer.build_optimizer`.
    Source: optimization.py of the authors' code.
    """

    def __init__(
        self,
        config: OptimizerConfig,
        part_steps: Sequence[int],
        first_steps: Sequence[int],
        learning_rate_multiplier: Callable[[keras.Variable], float],
    ):
        super().__init__()
        self.built = False
        self.config, self.schedule = config, functools.partial(learning_rate_at, config, tuple(part_steps))
        self._first_steps, self._multiplier = tuple(first_steps), learning_rate_multiplier

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates `iterations` and the moments of these variables, once."""
        if self.built:
            return
        self._iterations = tf.Variable(0, trainable=False, dtype=tf.int64, name="iteration")
        # All share one name: TensorFlow compiles an operation for each new name, which took half a second.
        self._first_moments, self._second_moments = (
            [tf.Variable(tf.zeros(each.shape), trainable=False, name=name) for each in variables] for name in ("m", "v")
        )
        self._place_of = {id(variable): place for place, variable in enumerate(variables)}.__getitem__  # not tracked
        self.built = True

    @property
    def iterations(self) -> tf.Variable:
        """The number of updates so far, int64."""
        return self._iterations

    def _moments_of(self, variable: keras.Variable) -> tuple[tf.Variable, tf.Variable]:
        place = self._place_of(id(variable))
        return self._first_moments[place], self._second_moments[place]

    def apply(self, gradients: list[tf.Tensor], variables: list[keras.Variable], apply_update: tf.Tensor) -> None:
        """Updates every variable; leaves `iterations` alone. In a replica context.

        Args:
            gradients: dense and finite, summed over replicas and clipped.
            apply_update: scalar bool; False changes nothing, if the gradients are 0.
        """
        scalars = self._scalars(apply_update)
        for variable, gradient in zip(variables, gradients, strict=True):
            self._update(variable, gradient, scalars)

    def _scalars(self, apply_update: tf.Tensor) -> dict[str, tf.Tensor]:
        """The numbers that the updates of all variables share. They change nothing without `apply_update`."""
        learning_rate = tf.where(apply_update, self.schedule(self.iterations), 0.0)
        numbers = {
            "learning_rate": learning_rate * self._second_moment_deviation(),
            "decay": learning_rate * self.config.weight_decay_rate,
            "beta_1": tf.where(apply_update, self.config.beta_1, 1.0),
            "beta_2": tf.where(apply_update, self.config.beta_2, 1.0),
            "beta_power": 0.0,  # turns the kernel's bias correction off
            "epsilon": self.config.epsilon * self._second_moment_deviation(),
        }
        return {name: tf.convert_to_tensor(value) for name, value in numbers.items()}

    def _update(self, variable: keras.Variable, gradient: tf.Tensor, scalars: dict[str, tf.Tensor]) -> None:
        # By handles: in a replica context they are those of this replica's copies. All replicas have the same gradient,
        # so each updates its own copy. Keras' way, a meeting of all replicas, cannot be compiled.
        first, second = self._moments_of(variable)
        learning_rate, decay = scalars["learning_rate"], scalars["decay"]
        multiplier = self.learning_rate_multiplier(variable)
        if multiplier != 1.0:
            learning_rate, decay = learning_rate * multiplier, decay * multiplier
        if self.config.weight_decay_rate and self.decays(variable):
            tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=decay * tf.convert_to_tensor(variable))
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=first.handle,
            v=second.handle,
            beta1_power=scalars["beta_power"],
            beta2_power=scalars["beta_power"],
            lr=learning_rate,
            beta1=scalars["beta_1"],
            beta2=scalars["beta_2"],
            epsilon=scalars["epsilon"],
            grad=gradient,
        )

    def _second_moment_deviation(self) -> float:
        """sqrt(v) in TensorFlow's kernel divided by sqrt(v) in the formula.

        The kernel computes 1 - beta_2 in float32. For 0.999 the result is too small by a fraction of 1.3e-5, and v is
        proportional to it. Scaling the learning rate and epsilon by the square root restores the update.
        """
        beta_2 = self.config.beta_2
        kernel_share = np.float32(1.0) - np.float32(beta_2)
        return float(np.sqrt(np.float64(kernel_share) / (1.0 - beta_2)))

    def learning_rate_multiplier(self, variable: keras.Variable) -> float:
        """The factor of the variable's learning rate, for both the update and the decay."""
        factors = self.config.learning_rate_multipliers.items()
        of_name = (factor for pattern, factor in factors if re.search(pattern, variable.path))
        return math.prod(of_name, start=self._multiplier(variable))

    def decays(self, variable: keras.Variable) -> bool:
        """Whether weight decay applies to the variable."""
        return not any(re.search(pattern, variable.path) for pattern in self.config.exclude_from_weight_decay)
