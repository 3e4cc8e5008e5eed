"""Builds the optimizer of a configuration. Both optimizers have the methods of `AdamWeightDecay`."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import OptimizerConfig
from electra_tf.train.adam import AdamWeightDecay
from electra_tf.train.lamb import Lamb
from electra_tf.train.schedule import WarmupTimesDecay


def build_optimizer(
    config: OptimizerConfig,
    *part_steps: int,
    first_steps: Sequence[int] = (0,),
    learning_rate_multiplier: Callable[[tf.Variable], float] = lambda variable: 1.0,
) -> AdamWeightDecay:
    """The optimizer that `config.name` selects, with its learning-rate schedule.

    Args:
        part_steps: the updates of each part of the schedule; each part has its own warm-up and decay.
        first_steps: the first step of each training phase.
        learning_rate_multiplier: a factor of each variable's learning rate, besides `learning_rate_multipliers`, for
            example for layerwise decay.
    """

    def multiplier(variable: tf.Variable) -> float:
        name, factors = variable.path, config.learning_rate_multipliers
        of_name = (factor for pattern, factor in factors.items() if re.search(pattern, name))
        return math.prod(of_name, start=learning_rate_multiplier(variable))

    schedule = WarmupTimesDecay(config, part_steps)
    options: dict[str, Any] = {
        "beta_1": config.beta_1,
        "beta_2": config.beta_2,
        "epsilon": config.epsilon,
        "weight_decay_rate": config.weight_decay_rate,
        "exclude_from_weight_decay": config.exclude_from_weight_decay,
        "learning_rate_multiplier": multiplier,
    }
    if config.name == "adamw":  # needs no first steps, as it corrects no moments
        return AdamWeightDecay(schedule, **options)
    return Lamb(schedule, first_steps, **options)


def require_matches(config: OptimizerConfig, variables: Sequence[tf.Variable]) -> None:
    """Raises: UserError: if a pattern of `learning_rate_multipliers` matches none of these variables."""
    for pattern in config.learning_rate_multipliers:
        if not any(re.search(pattern, variable.path) for variable in variables):
            raise UserError(
                f"optimizer.learning_rate_multipliers: {pattern!r} matches no variable; names begin with "
                f"{', '.join(sorted({variable.path.split('/')[0] for variable in variables}))}"
            )


def reset_optimizer(optimizer: AdamWeightDecay) -> None:
    """Resets an optimizer of `build_optimizer` to the state before its first step."""
    for variable in optimizer.variables:
        variable.assign(tf.zeros_like(variable))
