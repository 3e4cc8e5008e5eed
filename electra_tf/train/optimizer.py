"""Builds the optimizer of a configuration. Both optimizers have the methods of `AdamWeightDecay`."""

import re
from collections.abc import Callable, Sequence

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import OptimizerConfig
from electra_tf.train.adam import AdamWeightDecay
from electra_tf.train.lamb import Lamb

_KINDS = {"adamw": AdamWeightDecay, "lamb": Lamb}  # by `optimizer.name`


def build_optimizer(
    config: OptimizerConfig,
    *part_steps: int,
    first_steps: Sequence[int] = (0,),
    learning_rate_multiplier: Callable[[tf.Variable], float] = lambda variable: 1.0,
) -> AdamWeightDecay:
    """The optimizer that `config.name` selects, with its learning-rate schedule.

    Args:
        part_steps: the updates of each part of the schedule; each part has its own warm-up and decay.
        first_steps: the first step of each training phase, from which a bias correction counts.
        learning_rate_multiplier: a factor of each variable's learning rate, besides `learning_rate_multipliers`, for
            example for layerwise decay.
    """
    return _KINDS[config.name](config, part_steps, first_steps, learning_rate_multiplier)


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
