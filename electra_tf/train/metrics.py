"""The metrics of training steps: means over the steps since the last report, in variables on the device."""

import math
from collections.abc import Sequence

import tensorflow as tf

from electra_tf.tasks.base import Task

# These two are not averaged: the report has the last learning rate, and the sum of `nonfinite`.
_LEARNING_RATE, _NONFINITE = "learning_rate", "nonfinite"


def metric_names(task: Task) -> tuple[str, ...]:
    """The metrics that a task's training step returns, without `learning_rate` and `nonfinite`."""
    return ("loss", *task.term_names, "gradient_norm")


class MetricAccumulator(tf.Module):
    """Sums over the steps since the last report.

    The sums are variables in the checkpoint. So a run that is interrupted between two reports and continued reports the
    same means as an uninterrupted one, bit for bit.

    Args:
        names: the metrics of the training steps of all phases, see `metric_names`.
        max_nonfinite_steps: the number of steps that the run may have with a loss or gradient that is not finite. They
            are counted, and left out of the means. None: the run ends before the first such step.
    """

    def __init__(self, names: Sequence[str], max_nonfinite_steps: int | None):
        super().__init__()
        self.names = tuple(names)
        self._max_nonfinite_steps = max_nonfinite_steps
        # Sum and number of steps of each. By name, so that a run goes on if its objective gets another metric.
        self._sums = {name: _counter([2], tf.float32) for name in self.names}
        self._nonfinite_steps = _counter([], tf.int64)
        self._nonfinite_steps_of_run = _counter([], tf.int64)
        self._learning_rate = _counter([], tf.float32)

    def add(self, metrics: dict[str, tf.Tensor], counts: tf.Tensor | bool = True) -> tf.Tensor:
        """Adds one step. Runs in a replica context.

        All steps between two reports belong to one phase, because each phase's last step is reported.

        Args:
            metrics: the result of `electra_tf.train.step.training_step`: scalars float32, equal on all replicas.
            counts: False for a step that shall change nothing, and is not counted.
        Returns: True if the run must end because steps are not finite. Scalar bool.
        """
        is_finite = metrics[_NONFINITE] == 0.0
        for name in sorted(set(metrics) - {_LEARNING_RATE, _NONFINITE}):
            self._sums[name].assign_add(tf.where(is_finite, tf.stack([metrics[name], 1.0]), [0.0, 0.0]))
        self._learning_rate.assign(tf.where(is_finite, metrics[_LEARNING_RATE], self._learning_rate))
        if self._max_nonfinite_steps is None:
            return ~is_finite
        is_skipped = tf.cast(~is_finite & counts, tf.int64)
        self._nonfinite_steps.assign_add(is_skipped)
        self._nonfinite_steps_of_run.assign_add(is_skipped)
        return self._nonfinite_steps_of_run > self._max_nonfinite_steps

    def close(self, names: Sequence[str] | None = None) -> dict[str, float]:
        """Returns the metrics since the last report and resets the sums. Runs on the host and waits for the device.

        Args:
            names: the metrics of the phase that was trained; None: all.
        Returns: means over the finite steps, NaN if there were none; the last learning rate; and the number of
            `nonfinite_steps`, if there were any.
        """
        nonfinite_steps = int(self._nonfinite_steps.numpy())
        sums = {name: self._sums[name].numpy() for name in names or self.names}
        report = {name: float(total / steps) if steps else math.nan for name, (total, steps) in sums.items()}
        report[_LEARNING_RATE] = float(self._learning_rate.numpy())
        if nonfinite_steps:
            report["nonfinite_steps"] = nonfinite_steps
        for variable in (*self._sums.values(), self._nonfinite_steps):
            variable.assign(tf.zeros_like(variable))
        return report

    def nonfinite_steps_of_run(self) -> int:
        """The number of steps of the whole run so far that were not finite and left out."""
        return int(self._nonfinite_steps_of_run.numpy())


def _counter(shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
    # The replicas compute equal metrics, so the first one's is added.
    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(tf.zeros(shape, dtype), trainable=False, aggregation=first)
