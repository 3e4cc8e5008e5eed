"""The metrics of the steps since the last report, kept where the training is kept: on the device and in checkpoints."""

from collections.abc import Sequence

import tensorflow as tf

from electra_tf.objectives.base import Objective

# Not averaged: the one is given as it was last, the other as a sum.
_LEARNING_RATE, _NONFINITE = "learning_rate", "nonfinite"


def metric_names(objective: Objective) -> tuple[str, ...]:
    """The metrics of an objective's training step that a window averages, in the order of its reports."""
    return ("loss", *objective.loss_weights, "gradient_norm")


class MetricWindow(tf.Module):
    """Sums over the steps since the last report.

    They are variables, and tracked by the checkpoint, so a run that ends between two reports loses nothing: the next
    report of the run that continues is bit for bit that of a run that never ended.

    Args:
        names: of the metrics of a training step, without learning rate and `nonfinite`.
        counts_nonfinite: whether a step with a loss or gradient that is not finite is a step of the run, left out of
            its means and counted; otherwise it leaves no trace, as the run ends before it.
    """

    def __init__(self, names: Sequence[str], counts_nonfinite: bool):
        super().__init__()
        self.names = tuple(names)
        self._counts_nonfinite = counts_nonfinite
        self._sums = _counter([len(self.names)], tf.float32)
        self._finite_steps = _counter([], tf.int64)
        self._nonfinite_steps = _counter([], tf.int64)
        self._nonfinite_steps_of_run = _counter([], tf.int64)
        self._learning_rate = _counter([], tf.float32)

    def add(self, metrics: dict[str, tf.Tensor]) -> None:
        """Adds one step. Runs in a replica context.

        Args:
            metrics: scalars float32, equal on all replicas: what `electra_tf.train.step.training_step` returns.
        """
        found = set(metrics) - {_LEARNING_RATE, _NONFINITE}
        assert found == set(self.names), f"the step returns {sorted(found)}, the window has {sorted(self.names)}"
        is_finite = metrics[_NONFINITE] == 0.0 if _NONFINITE in metrics else tf.constant(True)
        values = tf.stack([metrics[name] for name in self.names])
        self._sums.assign_add(tf.where(is_finite, values, tf.zeros_like(values)))
        self._finite_steps.assign_add(tf.cast(is_finite, tf.int64))
        self._learning_rate.assign(tf.where(is_finite, metrics[_LEARNING_RATE], self._learning_rate))
        if self._counts_nonfinite:
            self._nonfinite_steps.assign_add(tf.cast(~is_finite, tf.int64))
            self._nonfinite_steps_of_run.assign_add(tf.cast(~is_finite, tf.int64))

    def close(self) -> dict[str, float]:
        """The metrics of the window, which is empty afterwards. Runs on the host, and waits for the device.

        Returns: means over the finite steps, NaN if there were none; the learning rate of the last one; and
            `nonfinite_steps`, how many there were, if there were any.
        """
        steps, nonfinite_steps = self._finite_steps.numpy(), int(self._nonfinite_steps.numpy())
        means = self._sums.numpy() / steps.astype("float32") if steps else [float("nan")] * len(self.names)
        report = dict(zip(self.names, map(float, means), strict=True))
        report[_LEARNING_RATE] = float(self._learning_rate.numpy())
        if nonfinite_steps:
            report["nonfinite_steps"] = nonfinite_steps
        for variable in (self._sums, self._finite_steps, self._nonfinite_steps):
            variable.assign(tf.zeros_like(variable))
        return report

    def nonfinite_steps_of_run(self) -> int:
        """How many steps of the whole run so far were not finite, and left out."""
        return int(self._nonfinite_steps_of_run.numpy())


def _counter(shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
    # The replicas compute equal metrics, so the first one's addition stands for all.
    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(tf.zeros(shape, dtype), trainable=False, aggregation=first)
