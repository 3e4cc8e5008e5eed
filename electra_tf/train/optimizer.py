"""The update rules: Adam without bias correction, as the authors' code has it, and LAMB, as the paper says."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from electra_tf.config.schema import OptimizerConfig
from electra_tf.train.schedule import WarmupTimesDecay, steps_since

LearningRateMultiplier = Callable[[tf.Variable], float]


def same_rate(variable: tf.Variable) -> float:
    """The learning-rate multiplier of a training without parameter groups."""
    return 1.0


class AdamWeightDecay(tf_keras.optimizers.Optimizer):
    """Adam with decoupled weight decay and without bias correction.

        m = beta_1 m + (1 - beta_1) g        v = beta_2 v + (1 - beta_2) g^2
        w -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)

    Without the correction the first updates are about (1 - beta_1) / sqrt(1 - beta_2) = 3 times larger than Adam's.

    Args:
        learning_rate: a float or a schedule of the step.
        weight_decay_rate: the share of a weight taken off, per unit of learning rate.
        exclude_from_weight_decay: regular expressions; a variable whose name one of them finds is not decayed.
        learning_rate_multiplier: of each variable, for both the update and the decay.
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
        learning_rate_multiplier: LearningRateMultiplier = same_rate,
        name: str = "AdamWeightDecay",
    ):
        # Keras' `jit_compile` would compile one program per variable; `train.xla` compiles the whole step instead.
        super().__init__(name=name, jit_compile=False)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.decay_exclusions = tuple(exclude_from_weight_decay)
        self.learning_rate_multiplier = learning_rate_multiplier

    def build(self, var_list):
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._first_moments, self._second_moments = (self._zeros_like(var_list, name) for name in ("m", "v"))
        self._built = True

    def _zeros_like(self, var_list: list[tf.Variable], name: str) -> list[tf.Variable]:
        # All of one name: TensorFlow compiles an operation for each new name, which took half of a second here.
        zeros = [tf.Variable(tf.zeros(variable.shape), trainable=False, name=name) for variable in var_list]
        self._variables.extend(zeros)
        return zeros

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Updates one variable and its two moments. `gradient` is dense."""
        self._update(variable, gradient, self._scalars(self.learning_rate, 1.0, wanted=True))

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
        scalars = self._scalars(learning_rate, factor, wanted)

        def update_all(strategy, gradients, scalars):
            for variable, gradient in zip(variables, gradients, strict=True):
                strategy.extended.update(variable, self._update, args=(gradient, scalars), group=False)

        in_cross_replica_context(update_all, gradients, scalars)

    def _scalars(self, learning_rate, factor, wanted) -> dict[str, tf.Tensor]:
        """What the updates of all variables have in common: such that nothing changes if not `wanted`."""
        learning_rate = tf.where(wanted, tf.cast(learning_rate, tf.float32), 0.0)
        numbers = {
            "factor": tf.where(wanted, tf.cast(factor, tf.float32), 0.0),
            "learning_rate": learning_rate * self._second_moment_deviation(),
            "decay": learning_rate * self.weight_decay_rate,
            "beta_1": tf.where(wanted, self.beta_1, 1.0),
            "beta_2": tf.where(wanted, self.beta_2, 1.0),
            "beta_power": 0.0,  # turns the kernel's bias correction off
            "epsilon": self.epsilon * self._second_moment_deviation(),
        }
        return {name: tf.convert_to_tensor(value) for name, value in numbers.items()}

    def _update(self, variable, gradient, scalars) -> None:
        index = self._index_dict[self._var_key(variable)]
        learning_rate, decay = scalars["learning_rate"], scalars["decay"]
        multiplier = self.learning_rate_multiplier(variable)
        if multiplier != 1.0:
            learning_rate, decay = learning_rate * multiplier, decay * multiplier
        if self.weight_decay_rate and self.decays(variable):
            tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=decay * variable)
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
            # 0 where the factor is 0, even if the gradient is not finite.
            grad=tf.math.multiply_no_nan(gradient, scalars["factor"]),
        )

    def _second_moment_deviation(self) -> float:
        """The kernel's sqrt(v) over that of the formula.

        The kernel weighs squared gradients with 1 - beta_2 computed in float32, which for 0.999 is 1.3e-5 too small, so
        its v is too small by that factor at every step. Scaling learning rate and epsilon alike restores the update.
        """
        of_kernel = np.float32(1.0) - np.float32(self.beta_2)
        return float(np.sqrt(np.float64(of_kernel) / (1.0 - self.beta_2)))

    def decays(self, variable: tf.Variable) -> bool:
        """Whether weight decay applies to the variable."""
        return not any(re.search(pattern, variable.name) for pattern in self.decay_exclusions)


def build_adamw(
    config: OptimizerConfig,
    schedule: WarmupTimesDecay,
    first_steps: Sequence[int],
    learning_rate_multiplier: LearningRateMultiplier,
) -> AdamWeightDecay:
    """The authors' optimizer, which corrects no moments and so ignores `first_steps`."""
    return AdamWeightDecay(
        learning_rate=schedule,
        weight_decay_rate=config.weight_decay_rate,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        exclude_from_weight_decay=config.exclude_from_weight_decay,
        learning_rate_multiplier=learning_rate_multiplier,
    )


def build_lamb(
    config: OptimizerConfig,
    schedule: WarmupTimesDecay,
    first_steps: Sequence[int],
    learning_rate_multiplier: LearningRateMultiplier,
) -> tf_keras.optimizers.legacy.Optimizer:
    """LAMB with bias correction; a variable without weight decay has no layer adaptation either.

    In each phase of a training moments are corrected as in a training of its own.
    """
    # Imported here: tf-models-official takes seconds to import and only LAMB needs it.
    from official.modeling.optimization.lamb import LAMB

    class GroupedLAMB(LAMB):
        def _prepare_local(self, var_device, var_dtype, apply_state):
            super()._prepare_local(var_device, var_dtype, apply_state)
            if len(first_steps) == 1:
                return
            # The moments of variables that only a later phase trains are zero until then.
            state = apply_state[(var_device, var_dtype)]
            step = tf.cast(steps_since(first_steps, self.iterations) + 1, var_dtype)
            state |= {f"{name}_power": tf.pow(state[f"{name}_t"], step) for name in ("beta_1", "beta_2")}

        def _resource_apply_dense(self, grad, var, apply_state=None):
            multiplier = learning_rate_multiplier(var)
            if multiplier != 1.0:
                key = (var.device, var.dtype.base_dtype)
                state = apply_state[key]
                apply_state = {key: {**state, "lr_t": state["lr_t"] * multiplier}}
            return super()._resource_apply_dense(grad, var, apply_state)

    return GroupedLAMB(
        learning_rate=schedule,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        weight_decay_rate=config.weight_decay_rate,
        exclude_from_weight_decay=list(config.exclude_from_weight_decay),
        exclude_from_layer_adaptation=list(config.exclude_from_weight_decay),
    )


OPTIMIZERS = {"adamw": build_adamw, "lamb": build_lamb}


def build_optimizer(
    config: OptimizerConfig,
    *part_steps: int,
    first_steps: Sequence[int] = (0,),
    learning_rate_multiplier: LearningRateMultiplier = same_rate,
):
    """The optimizer that `config.name` selects, with its learning-rate schedule.

    Args:
        part_steps: the updates of each part of the schedule; the learning rate starts anew with each part.
        first_steps: the first step of each training phase, whose moments are still zero then.
        learning_rate_multiplier: the factor of each variable's learning rate, for instance of layerwise decay.
    """
    schedule = WarmupTimesDecay(config.learning_rate, config.warmups(part_steps), part_steps, config.decay_power)
    return OPTIMIZERS[config.name](config, schedule, first_steps, learning_rate_multiplier)


def reset_optimizer(optimizer) -> None:
    """Puts an optimizer of `build_optimizer` back to before its first step."""
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    for variable in variables:
        variable.assign(tf.zeros_like(variable))


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
    # Keras' LAMB has no conditional update: take the step, then restore the old values if it was not wanted.
    slots = [optimizer.get_slot(variable, name) for name in optimizer.get_slot_names() for variable in variables]
    state = [*variables, *slots]
    before = [tf.identity(variable) for variable in state]
    pairs = [
        (tf.where(wanted, gradient * factor, 0.0), variable)
        for gradient, variable in zip(gradients, variables, strict=True)
    ]
    optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)
    optimizer.iterations.assign_sub(1)

    def keep_or_restore(strategy, before, wanted):
        for variable, old in zip(state, before, strict=True):
            choose = lambda variable, old, wanted: variable.assign(tf.where(wanted, variable, old))  # noqa: E731
            strategy.extended.update(variable, choose, args=(old, wanted), group=False)

    in_cross_replica_context(keep_or_restore, before, wanted)


def in_cross_replica_context(function: Callable, *args) -> None:
    """Calls function(strategy, *args) in the context where a strategy updates variables.

    That is once for all replicas' copies, or, inside a compiled program, by each replica for its own copy.
    """
    tf.__internal__.distribute.interim.maybe_merge_call(function, tf.distribute.get_strategy(), *args)
