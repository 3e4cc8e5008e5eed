"""The learning rate as a function of the step."""

import itertools
from collections.abc import Sequence

import tensorflow as tf
import tf_keras


class WarmupTimesDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """learning_rate * min(1, step / warmup_steps) * max(0, 1 - step / num_steps) ** decay_power.

    Warm-up and decay multiply, as in the authors' code: step 0 has rate 0, and with the usual 10,000 of 1,000,000 steps
    the peak is 0.99 of `learning_rate`. (The schedule usual elsewhere starts the decay after the warm-up.)

    Args:
        learning_rate: the factor in front.        warmup_steps: 0 for none.        num_steps: where the rate reaches 0.
    """

    def __init__(self, learning_rate: float, warmup_steps: int, num_steps: int, decay_power: float):
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.num_steps = num_steps
        self.decay_power = decay_power

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Scalar integer step, counted from 0 -> scalar float32."""
        step = tf.cast(step, tf.float32)
        remaining = tf.maximum(0.0, 1.0 - step / self.num_steps)
        warmup = tf.minimum(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0
        return self.learning_rate * warmup * tf.pow(remaining, self.decay_power)

    def get_config(self) -> dict:
        return dict(vars(self))


class Successive(tf_keras.optimizers.schedules.LearningRateSchedule):
    """`WarmupTimesDecay` several times over, each begun where the one before has ended.

    Args:
        part_steps: the steps of each.        others: see `WarmupTimesDecay`.
    """

    def __init__(self, learning_rate: float, warmup_steps: int, part_steps: Sequence[int], decay_power: float):
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.part_steps = tuple(part_steps)
        self.decay_power = decay_power

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Scalar integer step, counted from 0 -> scalar float32."""
        first_steps = list(itertools.accumulate(self.part_steps, initial=0))[:-1]
        done, rate = steps_since(first_steps, step), tf.zeros([])
        for first_step, num_steps in zip(first_steps, self.part_steps, strict=True):
            part = WarmupTimesDecay(self.learning_rate, self.warmup_steps, num_steps, self.decay_power)
            rate = tf.where(step >= tf.cast(first_step, step.dtype), part(done), rate)
        return rate

    def get_config(self) -> dict:
        return dict(vars(self))


def missed_peak(warmup_steps: int, part_steps: Sequence[int]) -> str | None:
    """What to warn of where a part of a training ends before it is warmed up; None if none does."""
    if warmup_steps < min(part_steps):
        return None
    return (
        f"optimizer.warmup_steps is {warmup_steps}, of a schedule of {min(part_steps)} steps: the learning rate never "
        "reaches its peak"
    )


def steps_since(first_steps: Sequence[int], step: tf.Tensor) -> tf.Tensor:
    """How many steps lie between a step and the last of `first_steps` (rising, from 0) that it has come to.

    Scalar integer -> the same.
    """
    first = tf.zeros_like(step)
    for first_step in first_steps:
        first = tf.where(step >= tf.cast(first_step, step.dtype), tf.cast(first_step, step.dtype), first)
    return step - first
