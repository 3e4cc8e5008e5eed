"""Whether a run still learns: alarms while it goes on, and an explanation when a loss is no longer finite."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf

from electra_tf.config.schema import TrainConfig
from electra_tf.tasks.base import HealthCheck, Task
from electra_tf.train.step import summed_gradients

_NUM_NAMED = 5
_FEWEST_STEPS = 500


def alarm_after(train: TrainConfig) -> int:
    """The steps after which a check that fails is an alarm: half of a short run, but not its first few hundred."""
    return min(train.alarm_after_steps, max(_FEWEST_STEPS, train.num_steps // 2))


class HealthMonitor:
    """Raises an alarm when a check has failed in every report of `alarm_after_steps` steps, once per episode.

    The alarms follow from the reports alone, so a continued run feeds the reports of its metrics.jsonl first.

    Args:
        alarm_after_steps: 0 for no alarms.        checks: new ones, as they may keep what they have seen.
    """

    def __init__(self, alarm_after_steps: int, checks: Sequence[HealthCheck]):
        self._alarm_after_steps = alarm_after_steps
        self._checks = checks
        self._failing_since: list[int | None] = [None] * len(checks)
        self._alarmed = [False] * len(checks)
        self._last_step = 0

    def observe(self, step: int, metrics: dict[str, float | None]) -> list[str]:
        """Takes the report of a step. Returns the alarms, one line each.

        Args:
            metrics: means over the steps since the last report, as in metrics.jsonl; what is not finite is left out.
        """
        first_step, self._last_step = self._last_step + 1, step
        if not self._alarm_after_steps:
            return []
        finite = {name: value for name, value in metrics.items() if isinstance(value, float) and math.isfinite(value)}
        alarms = []
        for index, check in enumerate(self._checks):
            problem = check(finite)
            if problem is None:
                self._failing_since[index], self._alarmed[index] = None, False
                continue
            since = self._failing_since[index] = self._failing_since[index] or first_step
            if not self._alarmed[index] and step - since + 1 >= self._alarm_after_steps:
                self._alarmed[index] = True
                alarms.append(f"since step {since} {problem}")
        return alarms


def explain_nonfinite(
    task: Task, strategy: tf.distribute.Strategy, batches_from: Callable[[int], Iterable], step: int
) -> str:
    """One line on why a step was not finite, by computing its loss and gradients again.

    Random numbers belong to (seed, step, example), so with the weights as they were it is the same computation. Every
    worker of a cluster must call it.

    Args:
        task: compiled, with the weights from before the step.
        batches_from: gives the distributed batches from a step on.
        step: how many steps came before. The message names the one that came to nothing, the next.
    """
    variables = task.trained_variables

    def on_replica(batch: dict[str, tf.Tensor]):
        terms, gradients = summed_gradients(task, batch, tf.constant(step, tf.int64))
        return (
            terms,
            tf.stack([_is_finite(gradient) for gradient in gradients]),
            tf.stack([_norm(gradient) for gradient in gradients]),
            tf.stack([_is_finite(variable) for variable in variables]),
        )

    @tf.function
    def on_replicas(batch):
        return strategy.run(on_replica, args=(batch,))

    results = on_replicas(next(iter(batches_from(step))))
    first = tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0].numpy(), results)
    terms, gradient_is_finite, norms, weight_is_finite = first
    names = [variable.name.partition(":")[0] for variable in variables]
    what, causes = _what_and_causes(step + 1, terms, bool(gradient_is_finite.all()))
    where = [what]
    if not weight_is_finite.all():
        where.append(f"weights that were not finite before: {_named(names, weight_is_finite)}")
    if not gradient_is_finite.all():
        where.append(f"gradients that are not: {_named(names, gradient_is_finite)}")
    else:
        largest = sorted(zip(norms.tolist(), names, strict=True), reverse=True)[:_NUM_NAMED]
        where.append("largest gradient norms: " + ", ".join(f"{name} {norm:.3g}" for norm, name in largest))
    return (
        f"{'; '.join(where)}; usual causes: {causes}; nothing of the step was applied and the checkpoint is from "
        "before it: continue with --set train.on_nonfinite=skip, or start anew with a lower optimizer.learning_rate, "
        "more optimizer.warmup_steps or --set train.precision=float32"
    )


def _what_and_causes(step: int, terms: dict[str, float], gradients_are_finite: bool) -> tuple[str, str]:
    shown = ", ".join(f"{name} {value:.4g}" for name, value in terms.items())
    if not all(math.isfinite(value) for value in terms.values()):
        return f"the loss of step {step} is not finite ({shown})", (
            "a learning rate that is too high, too short a warm-up, weights that grew out of bounds in the steps before"
        )
    if not gradients_are_finite:
        return f"gradients of step {step} are not finite, though its losses are ({shown})", (
            "an overflow on the way back: a learning rate that is too high, logits that grew without bound"
        )
    return f"the loss or a gradient of step {step} was not finite, but all are when computed again ({shown})", (
        "a faulty device or memory; gradients so large that only their joint norm overflows"
    )


def _named(names: list[str], is_finite: np.ndarray) -> str:
    """Those that are not finite, the last ones first: they lie nearest to the losses, where trouble starts."""
    broken = [name for name, finite in zip(names, is_finite, strict=True) if not finite][::-1]
    more = len(broken) - _NUM_NAMED
    return ", ".join(broken[:_NUM_NAMED]) + (f" and {more} more" if more > 0 else "")


def _is_finite(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_all(tf.math.is_finite(values))


def _norm(values: tf.Tensor) -> tf.Tensor:
    """The Euclidean norm, also where the squares would overflow. Scalar float32."""
    largest = tf.reduce_max(tf.abs(values))
    return largest * tf.norm(tf.math.divide_no_nan(values, largest))
