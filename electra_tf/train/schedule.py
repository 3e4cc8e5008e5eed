"""The learning rate as a function of the step."""

import itertools
import math
from collections.abc import Sequence

import tensorflow as tf

from electra_tf.config.schema import OptimizerConfig


def learning_rate_at(config: OptimizerConfig, part_steps: Sequence[int], step: tf.Tensor) -> tf.Tensor:
    """learning_rate * min(1, step / warmup_steps) * decay, where decay falls from 1 to 0. Scalar float32.

    With s steps done of n, w steps of warm-up and the decay of `warmup_stable_decay` beginning at step d:

    linear                (1 - s / n) ** decay_power. Warm-up and decay overlap, as in the authors' code: with the usual
                          10,000 of 1,000,000 steps the peak is 0.99 of `learning_rate`.
    cosine                (1 + cos(pi x)) / 2 = sin(pi (1 - x) / 2) ** 2, x = (s - w) / (n - w)
    warmup_stable_decay   1 - sqrt(x) or 1 - x, x = (s - d) / (n - d)

    x is 0 before the decay begins. The last update, s = n - 1, has a rate above 0.

    Args:
        part_steps: the `num_steps` of each part of the training, usually one. Each has its own warm-up and decay.
        step: scalar integer, counted from 0 at the beginning of the training.
    """
    first_steps = list(itertools.accumulate(part_steps, initial=0))[:-1]
    done = tf.cast(steps_since(first_steps, step), tf.float32)
    warmups, is_cosine = config.warmups(part_steps), config.schedule == "cosine"
    decay_begins = warmups if is_cosine else [config.stable_steps(num_steps) for num_steps in part_steps]
    num_steps, warmup_steps, begin = (
        _value_at(step, values, first_steps) for values in (part_steps, warmups, decay_begins)
    )
    warmup = tf.where(warmup_steps > 0.0, tf.minimum(1.0, tf.math.divide_no_nan(done, warmup_steps)), 1.0)
    passed = tf.clip_by_value(tf.math.divide_no_nan(tf.maximum(done - begin, 0.0), num_steps - begin), 0.0, 1.0)
    if config.schedule == "linear":
        decay = tf.pow(tf.maximum(0.0, 1.0 - done / num_steps), config.decay_power)
    elif is_cosine:
        # In float32 the cosine is -1 for the last steps of a long run, and their rates would be 0.
        decay = tf.square(tf.sin(0.5 * math.pi * (1.0 - passed)))
    else:
        decay = 1.0 - (tf.sqrt(passed) if config.decay_shape == "one_minus_sqrt" else passed)
    return config.learning_rate * warmup * decay


def _value_at(
    step: tf.Tensor, values: Sequence[float], first_steps: Sequence[int], dtype: tf.DType = tf.float32
) -> tf.Tensor:
    """The value of the part that contains a step, from one value for each part. Scalar."""
    value = tf.constant(values[0], dtype)
    for first_step, later in zip(first_steps[1:], values[1:], strict=True):
        value = tf.where(step >= tf.cast(first_step, step.dtype), tf.constant(later, dtype), value)
    return value


def missed_peak(config: OptimizerConfig, part_steps: Sequence[int]) -> str | None:
    """A warning if the warm-up of some part is not over when its decay, or with another schedule its end, comes."""
    has_stable_steps = config.schedule == "warmup_stable_decay"
    for warmup, num_steps in zip(config.warmups(part_steps), part_steps, strict=True):
        steps = config.stable_steps(num_steps) if has_stable_steps else num_steps
        # The update after all stable steps still has the whole rate; none comes after the last step.
        if warmup > min(steps, num_steps - 1):
            what = "the schedule" if steps == num_steps else "the schedule before its decay"
            return (
                f"the warm-up has {warmup:g} steps and {what} {steps}: the learning rate never reaches its peak; "
                f"lower optimizer.{'warmup_fraction' if config.warmup_fraction else 'warmup_steps'}"
            )
    return None


def steps_since(first_steps: Sequence[int], step: tf.Tensor) -> tf.Tensor:
    """`step` minus the last of `first_steps` that is not larger.

    Args:
        first_steps: ascending; the first is 0.
        step: scalar integer.
    Returns: scalar of the type of `step`.
    """
    return step - _value_at(step, first_steps, first_steps, step.dtype)
