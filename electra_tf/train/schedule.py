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
        learning_rate: the factor in front.
        warmup_steps: the `warmup_steps` of each part of the training, 0 for none.
        part_steps: the `num_steps` of each part. Usually there is one part. `step` counts from the beginning of its
            part.
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
            _of_part(values, first_steps, step) for values in (self.part_steps, self.warmup_steps)
        )
        warmup = tf.where(warmup_steps > 0.0, tf.minimum(1.0, tf.math.divide_no_nan(done, warmup_steps)), 1.0)
        return self.learning_rate * warmup * tf.pow(tf.maximum(0.0, 1.0 - done / num_steps), self.decay_power)

    def get_config(self) -> dict:
        return dict(vars(self))


def _of_part(values: Sequence[float], first_steps: Sequence[int], step: tf.Tensor) -> tf.Tensor:
    """The value of the part that contains a step, from one value for each part. Scalar float32."""
    value = tf.constant(values[0], tf.float32)
    for first_step, of_part in zip(first_steps[1:], values[1:], strict=True):
        value = tf.where(step >= tf.cast(first_step, step.dtype), tf.constant(of_part, tf.float32), value)
    return value


def missed_peak(warmup_steps: Sequence[float], part_steps: Sequence[int]) -> str | None:
    """A warning if some part of the training ends before its warm-up does; else None."""
    for warmup, steps in zip(warmup_steps, part_steps, strict=True):
        if warmup >= steps:
            return (
                f"the warm-up has {warmup:g} steps and the schedule {steps}: the learning rate never reaches its peak"
            )
    return None


def steps_since(first_steps: Sequence[int], step: tf.Tensor) -> tf.Tensor:
    """The number of steps since the last of `first_steps` (ascending, the first is 0) that is not after `step`.

    Scalar integer -> the same.
    """
    first = tf.zeros_like(step)
    for first_step in first_steps[1:]:
        first = tf.where(step >= tf.cast(first_step, step.dtype), tf.cast(first_step, step.dtype), first)
    return step - first
