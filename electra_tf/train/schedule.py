"""The learning rate as a function of the step."""

import itertools
from collections.abc import Sequence

import tensorflow as tf
import tf_keras


class WarmupTimesDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """learning_rate * min(1, step / warmup_steps) * max(0, 1 - step / num_steps) ** decay_power.

    Warm-up and decay multiply, as in the authors' code: step 0 has rate 0, and with the usual 10,000 of 1,000,000 steps
    the peak is 0.99 of `learning_rate`. (In other schedules the decay usually starts after the warm-up.)

    Args:
        learning_rate: the rate without warm-up and decay.
        warmup_steps: the `warmup_steps` of each part of the training; 0: no warm-up. Usually there is one part.
        part_steps: the `num_steps` of each part. `step` counts from the beginning of its part.
    """

    def __init__(
        self, learning_rate: float, warmup_steps: Sequence[float], part_steps: Sequence[int], decay_power: float
    ):
        self.learning_rate = learning_rate
        self.warmup_steps = tuple(warmup_steps)
        self.part_steps = tuple(part_steps)
        self.decay_power = decay_power

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Scalar integer step, counted from 0 -> scalar float32."""
        first_steps = list(itertools.accumulate(self.part_steps, initial=0))[:-1]
        done = tf.cast(steps_since(first_steps, step), tf.float32)
        num_steps, warmup_steps = (
            _value_at(step, values, first_steps) for values in (self.part_steps, self.warmup_steps)
        )
        warmup = tf.where(warmup_steps > 0.0, tf.minimum(1.0, tf.math.divide_no_nan(done, warmup_steps)), 1.0)
        return self.learning_rate * warmup * tf.pow(tf.maximum(0.0, 1.0 - done / num_steps), self.decay_power)


def _value_at(step: tf.Tensor, values: Sequence[float], first_steps: Sequence[int]) -> tf.Tensor:
    """The value of the part that contains a step, from one value for each part. Scalar float32."""
    value = tf.constant(values[0], tf.float32)
    for first_step, later in zip(first_steps[1:], values[1:], strict=True):
        value = tf.where(step >= tf.cast(first_step, step.dtype), tf.constant(later, tf.float32), value)
    return value


def missed_peak(warmup_steps: Sequence[float], part_steps: Sequence[int]) -> str | None:
    """A warning if the warm-up of some part lasts as long as the part or longer; else None."""
    for warmup, steps in zip(warmup_steps, part_steps, strict=True):
        if warmup >= steps:
            return (
                f"the warm-up has {warmup:g} steps and the schedule {steps}: the learning rate never reaches its peak; "
                "lower optimizer.warmup_steps"
            )
    return None


def steps_since(first_steps: Sequence[int], step: tf.Tensor) -> tf.Tensor:
    """`step` minus the last of `first_steps` that is not larger.

    Args:
        first_steps: ascending; the first is 0.
        step: scalar integer.
    Returns: scalar of the type of `step`.
    """
    first = tf.zeros_like(step)
    for first_step in first_steps[1:]:
        first = tf.where(step >= tf.cast(first_step, step.dtype), tf.cast(first_step, step.dtype), first)
    return step - first
