"""The update rules: Adam without bias correction, as the authors' code has it, and LAMB, as the paper says."""

import functools
import re
from collections.abc import Callable, Sequence

import tensorflow as tf
import tf_keras

from electra_tf.config.schema import OptimizerConfig
from electra_tf.train.schedule import Successive, WarmupTimesDecay, steps_since

Schedule = WarmupTimesDecay | Successive


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
        self._update(variable, gradient, self.learning_rate, tf.constant(1.0), tf.constant(True))

    def apply(
        self, gradients: list[tf.Tensor], variables: list[tf.Variable], factor: tf.Tensor, wanted: tf.Tensor
    ) -> None:
        """Updates every variable with `factor` times its gradient; leaves `iterations` alone. In a replica context.

        Args:
            gradients: dense, the same on all replicas.        factor: scalar float32, as clipping gives it.
            wanted: scalar bool; where it is false nothing changes.
        """
        schedule = self._learning_rate
        learning_rate = schedule(self.iterations) if callable(schedule) else schedule.read_value()

        def update_all(strategy, gradients, learning_rate, factor, wanted):
            for variable, gradient in zip(variables, gradients, strict=True):
                args = (gradient, learning_rate, factor, wanted)
                strategy.extended.update(variable, self._update, args=args, group=False)

        in_cross_replica_context(update_all, gradients, learning_rate, factor, wanted)

    def _update(self, variable, gradient, learning_rate, factor, wanted) -> None:
        index = self._index_dict[self._var_key(variable)]
        first, second = self._first_moments[index], self._second_moments[index]
        decay = self.weight_decay_rate if self.decays(variable) else 0.0
        update = _adam_program(self.beta_1, self.beta_2, self.epsilon, decay)
        before = [tensor.read_value() for tensor in (variable, first, second)]
        after = update(*before, gradient, tf.cast(learning_rate, tf.float32), factor, wanted)
        for tensor, value in zip((variable, first, second), after, strict=True):
            tensor.assign(value)

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


@functools.cache
def _adam_program(beta_1: float, beta_2: float, epsilon: float, decay: float) -> Callable:
    """One update of one variable as one program: its memory is read and written once."""

    def update(weights, first, second, gradient, learning_rate, factor, wanted):
        gradient *= factor
        new_first = beta_1 * first + (1.0 - beta_1) * gradient
        new_second = beta_2 * second + (1.0 - beta_2) * tf.square(gradient)
        step = new_first / (tf.sqrt(new_second) + epsilon)
        if decay:
            step += decay * weights
        new = (weights - learning_rate * step, new_first, new_second)
        return [tf.where(wanted, value, old) for value, old in zip(new, (weights, first, second), strict=True)]

    return tf.function(update, jit_compile=True, autograph=False)


def build_adamw(config: OptimizerConfig, schedule: Schedule, first_steps: Sequence[int]) -> AdamWeightDecay:
    """The authors' optimizer, which corrects no moments and so asks for no `first_steps`."""
    return AdamWeightDecay(
        learning_rate=schedule,
        weight_decay_rate=config.weight_decay_rate,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        exclude_from_weight_decay=config.exclude_from_weight_decay,
    )


def build_lamb(
    config: OptimizerConfig, schedule: Schedule, first_steps: Sequence[int]
) -> tf_keras.optimizers.legacy.Optimizer:
    """LAMB with bias correction; what is not decayed is not adapted layer by layer either.

    In each phase of a training moments are corrected as in a training of its own.
    """
    # Imported here: tf-models-official takes seconds to import and only LAMB needs it.
    from official.modeling.optimization.lamb import LAMB

    class SuccessiveLAMB(LAMB):
        # The moments of what only a later phase trains are zero until then.
        def _prepare_local(self, var_device, var_dtype, apply_state):
            super()._prepare_local(var_device, var_dtype, apply_state)
            state = apply_state[(var_device, var_dtype)]
            step = tf.cast(steps_since(first_steps, self.iterations) + 1, var_dtype)
            state |= {f"{name}_power": tf.pow(state[f"{name}_t"], step) for name in ("beta_1", "beta_2")}

    kind = SuccessiveLAMB if len(first_steps) > 1 else LAMB
    return kind(
        learning_rate=schedule,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        weight_decay_rate=config.weight_decay_rate,
        exclude_from_weight_decay=list(config.exclude_from_weight_decay),
        exclude_from_layer_adaptation=list(config.exclude_from_weight_decay),
    )


OPTIMIZERS = {"adamw": build_adamw, "lamb": build_lamb}


def build_optimizer(config: OptimizerConfig, num_steps: int, *later_parts: int, first_steps: Sequence[int] = (0,)):
    """The optimizer that `config.name` names, with its schedule over so many updates, begun anew for later parts.

    Args:
        first_steps: where the phases of the training begin, each with moments that are still zero.
    """
    if later_parts:
        part_steps = (num_steps, *later_parts)
        schedule = Successive(config.learning_rate, config.warmup_steps, part_steps, config.decay_power)
    else:
        schedule = WarmupTimesDecay(config.learning_rate, config.warmup_steps, num_steps, config.decay_power)
    return OPTIMIZERS[config.name](config, schedule, first_steps)


def apply_summed_gradients(
    optimizer, gradients: list[tf.Tensor], variables: list[tf.Variable], factor: tf.Tensor, wanted: tf.Tensor
) -> None:
    """Applies gradients that have been summed over replicas already, times `factor`. In a replica context.

    Args:
        optimizer: of `build_optimizer`.
        wanted: scalar bool; where it is false weights and moments stay as they are. `iterations` stays in any case.
    """
    if isinstance(optimizer, AdamWeightDecay):
        optimizer.apply(gradients, variables, factor, wanted)
        return
    # A Keras optimizer knows no condition: it takes its step, and takes it back.
    slots = [optimizer.get_slot(variable, name) for name in optimizer.get_slot_names() for variable in variables]
    state = [*variables, *slots]
    before = [tf.identity(variable) for variable in state]
    pairs = [
        (tf.where(wanted, gradient * factor, 0.0), variable)
        for gradient, variable in zip(gradients, variables, strict=True)
    ]
    optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)
    optimizer.iterations.assign_sub(1)

    def keep_or_take_back(strategy, before, wanted):
        for variable, old in zip(state, before, strict=True):
            choose = lambda variable, old, wanted: variable.assign(tf.where(wanted, variable, old))  # noqa: E731
            strategy.extended.update(variable, choose, args=(old, wanted), group=False)

    in_cross_replica_context(keep_or_take_back, before, wanted)


def in_cross_replica_context(function: Callable, *args) -> None:
    """Calls function(strategy, *args) where a strategy updates its variables: all replicas' copies at once, or each its
    own inside of a compiled program."""
    tf.__internal__.distribute.interim.maybe_merge_call(function, tf.distribute.get_strategy(), *args)
