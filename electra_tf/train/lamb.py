"""tf-models-official's LAMB with learning-rate multipliers, training phases and an update that can be left out."""

from collections.abc import Callable, Sequence

import tensorflow as tf
import tf_keras
from official.modeling.optimization.lamb import LAMB

from electra_tf.train.adam import plain_name
from electra_tf.train.schedule import steps_since


class Lamb(LAMB):
    """LAMB with bias correction; a variable without weight decay has no layer adaptation either.

    The bias correction counts steps from the beginning of each training phase.

    Args:
        schedule: the learning rate as a function of the step.
        first_steps: the first step of each training phase.
        exclude_from_weight_decay: regular expressions of variables' names.
        learning_rate_multiplier: the factor of each variable's learning rate.
        options: other arguments of LAMB.
    """

    def __init__(
        self,
        schedule: tf_keras.optimizers.schedules.LearningRateSchedule,
        first_steps: Sequence[int],
        *,
        exclude_from_weight_decay: Sequence[str],
        learning_rate_multiplier: Callable[[tf.Variable], float],
        **options,
    ):
        super().__init__(
            learning_rate=schedule,
            exclude_from_weight_decay=list(exclude_from_weight_decay),
            exclude_from_layer_adaptation=list(exclude_from_weight_decay),
            **options,
        )
        self.schedule = schedule
        self._first_steps = tuple(first_steps)
        self._learning_rate_multiplier = learning_rate_multiplier

    def build(self, variables: list[tf.Variable]) -> None:
        """Creates `iterations` and the moments of these variables."""
        self.iterations  # noqa: B018  created on first access
        self._create_all_weights(variables)

    def apply(
        self, gradients: list[tf.Tensor], variables: list[tf.Variable], clip_scale: tf.Tensor, apply_update: tf.Tensor
    ) -> None:
        """As `AdamWeightDecay.apply`. LAMB has no conditional update, so an unwanted one is made and then undone."""
        slots = [self.get_slot(variable, name) for name in self.get_slot_names() for variable in variables]
        state = [*variables, *slots]
        before = [tf.identity(variable) for variable in state]
        pairs = [
            (tf.where(apply_update, gradient * clip_scale, 0.0), variable)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        self.apply_gradients(pairs, experimental_aggregate_gradients=False)
        self.iterations.assign_sub(1)

        def choose(variable, old, is_kept):
            return variable.assign(tf.where(is_kept, variable, old))

        def keep_or_restore(strategy, before, is_kept):
            for variable, old in zip(state, before, strict=True):
                strategy.extended.update(variable, choose, args=(old, is_kept), group=False)

        distribute = tf.__internal__.distribute
        distribute.interim.maybe_merge_call(keep_or_restore, tf.distribute.get_strategy(), before, apply_update)

    @property
    def is_compilable(self) -> bool:
        """Whether the update can be compiled: not if the replicas of a mirrored strategy meet in it."""
        mirrored = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
        meets = isinstance(tf.distribute.get_strategy(), mirrored)
        return not meets or tf.__internal__.distribute.strategy_supports_no_merge_call()

    def _prepare_local(self, var_device, var_dtype, apply_state):
        super()._prepare_local(var_device, var_dtype, apply_state)
        if len(self._first_steps) == 1:
            return
        # The moments of variables that only a later phase trains are zero until then, so their correction starts there.
        state = apply_state[(var_device, var_dtype)]
        step = tf.cast(steps_since(self._first_steps, self.iterations) + 1, var_dtype)
        state |= {f"{name}_power": tf.pow(state[f"{name}_t"], step) for name in ("beta_1", "beta_2")}

    def _resource_apply_dense(self, grad, var, apply_state=None):
        multiplier = self._learning_rate_multiplier(var)
        if multiplier != 1.0:
            key = (var.device, var.dtype.base_dtype)
            state = apply_state[key]
            apply_state = {key: {**state, "lr_t": state["lr_t"] * multiplier}}
        return super()._resource_apply_dense(grad, var, apply_state)

    def _get_variable_name(self, param_name):
        return plain_name(param_name)
