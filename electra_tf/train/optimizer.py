"""Builds the optimizer of a configuration. Both optimizers have the same few methods, see `AdamWeightDecay`."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from electra_tf.config.schema import OptimizerConfig
from electra_tf.train.adam import AdamWeightDecay
from electra_tf.train.schedule import WarmupTimesDecay

LearningRateMultiplier = Callable[[tf.Variable], float]


def same_rate(variable: tf.Variable) -> float:
    """The learning-rate multiplier of a training without parameter groups."""
    return 1.0


def build_optimizer(
    config: OptimizerConfig,
    *part_steps: int,
    first_steps: Sequence[int] = (0,),
    learning_rate_multiplier: LearningRateMultiplier = same_rate,
):
    """The optimizer that `config.name` selects, with its learning-rate schedule.

    Args:
        part_steps: the updates of each part of the schedule; the learning rate starts anew with each part.
        first_steps: the first step of each training phase, at which the moments of its variables are still zero.
        learning_rate_multiplier: the factor of each variable's learning rate, for instance of layerwise decay.
    """
    schedule = WarmupTimesDecay(config.learning_rate, config.warmups(part_steps), part_steps, config.decay_power)
    options = {
        "beta_1": config.beta_1,
        "beta_2": config.beta_2,
        "epsilon": config.epsilon,
        "weight_decay_rate": config.weight_decay_rate,
        "exclude_from_weight_decay": config.exclude_from_weight_decay,
        "learning_rate_multiplier": learning_rate_multiplier,
    }
    if config.name == "adamw":  # it corrects no moments, and so needs no first steps
        return AdamWeightDecay(schedule, **options)
    # Imported here: tf-models-official takes seconds to import and only LAMB needs it.
    from electra_tf.train.lamb import Lamb

    return Lamb(schedule, first_steps, **options)


def reset_optimizer(optimizer) -> None:
    """Resets an optimizer of `build_optimizer` to the state before its first step."""
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    for variable in variables:
        variable.assign(tf.zeros_like(variable))
