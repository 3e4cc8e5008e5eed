"""The update rules: Adam without bias correction, as the authors' code has it, and LAMB, as the paper says."""

import re

import tensorflow as tf
import tf_keras

from electra_tf.config.schema import OptimizerConfig
from electra_tf.train.schedule import WarmupTimesDecay


class AdamWeightDecay(tf_keras.optimizers.Optimizer):
    """Adam with decoupled weight decay and without bias correction.

        m = beta_1 m + (1 - beta_1) g        v = beta_2 v + (1 - beta_2) g^2
        w -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)

    Without the correction the first updates are about (1 - beta_1) / sqrt(1 - beta_2) = 3 times larger than Adam's.

    Args:
        learning_rate: a float or a schedule of the step.
        weight_decay_rate: the share of a weight taken off, per unit of learning rate.
        exclude_from_weight_decay: regular expressions; a variable whose name one of them finds is not decayed.
    Source: optimization.py of the authors' code.
    """

    def __init__(
        self,
        learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule,
        weight_decay_rate: float,
        beta_1: float,
        beta_2: float,
        epsilon: float,
        exclude_from_weight_decay: tuple[str, ...],
        name: str = "AdamWeightDecay",
    ):
        # `jit_compile` here would compile a program for each variable; `train.xla` compiles the whole step instead.
        super().__init__(name=name, jit_compile=False)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.decay_exclusions = tuple(exclude_from_weight_decay)

    def build(self, var_list):
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._first_moments = [self.add_variable_from_reference(variable, "m") for variable in var_list]
        self._second_moments = [self.add_variable_from_reference(variable, "v") for variable in var_list]
        self._built = True

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Updates one variable and its two moments. `gradient` is dense."""
        index = self._index_dict[self._var_key(variable)]
        first, second = self._first_moments[index], self._second_moments[index]
        first.assign(self.beta_1 * first + (1.0 - self.beta_1) * gradient)
        second.assign(self.beta_2 * second + (1.0 - self.beta_2) * tf.square(gradient))
        update = first / (tf.sqrt(second) + self.epsilon)
        if self.decays(variable):
            update += self.weight_decay_rate * variable
        variable.assign_sub(tf.cast(self.learning_rate, variable.dtype) * update)

    def decays(self, variable: tf.Variable) -> bool:
        """Whether weight decay applies to the variable."""
        return not any(re.search(pattern, variable.name) for pattern in self.decay_exclusions)

    def get_config(self) -> dict:
        config = super().get_config()
        return {
            **config,
            "learning_rate": self._serialize_hyperparameter(self._learning_rate),
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "exclude_from_weight_decay": self.decay_exclusions,
        }


def build_adamw(config: OptimizerConfig, schedule: WarmupTimesDecay) -> AdamWeightDecay:
    """The authors' optimizer."""
    return AdamWeightDecay(
        learning_rate=schedule,
        weight_decay_rate=config.weight_decay_rate,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        exclude_from_weight_decay=config.exclude_from_weight_decay,
    )


def build_lamb(config: OptimizerConfig, schedule: WarmupTimesDecay) -> tf_keras.optimizers.legacy.Optimizer:
    """LAMB with bias correction; what is not decayed is not adapted layer by layer either."""
    # Imported here: tf-models-official takes seconds to import and only LAMB needs it.
    from official.modeling.optimization.lamb import LAMB

    return LAMB(
        learning_rate=schedule,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        weight_decay_rate=config.weight_decay_rate,
        exclude_from_weight_decay=list(config.exclude_from_weight_decay),
        exclude_from_layer_adaptation=list(config.exclude_from_weight_decay),
    )


OPTIMIZERS = {"adamw": build_adamw, "lamb": build_lamb}


def build_optimizer(config: OptimizerConfig, num_steps: int):
    """The optimizer that `config.name` names, with its schedule over `num_steps` updates."""
    schedule = WarmupTimesDecay(config.learning_rate, config.warmup_steps, num_steps, config.decay_power)
    return OPTIMIZERS[config.name](config, schedule)


def apply_summed_gradients(optimizer, gradients: list[tf.Tensor], variables: list[tf.Variable]) -> None:
    """Applies gradients that have been summed over replicas already, by either generation of Keras optimizer."""
    pairs = list(zip(gradients, variables, strict=True))
    if isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
        optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)
    else:
        optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
