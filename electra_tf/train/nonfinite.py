"""Explains why a step's loss or gradients were not finite."""

from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from electra_tf.tasks.base import Task
from electra_tf.train.adam import plain_name
from electra_tf.train.step import summed_gradients
from electra_tf.train.trainer import first_replica

_NUM_NAMED = 5


def explain_nonfinite(
    task: Task, strategy: tf.distribute.Strategy, batches_from: Callable[[int], Iterable], step: int
) -> str:
    """Computes the loss and the gradients of a failed step again, and returns one line on why they are not finite.

    Random numbers are a function of (seed, step, example), so with the same weights the computation is the same. Every
    worker of a cluster must call it.

    Args:
        task: compiled, with the weights from before the step.
        batches_from: the distributed batches from a step on.
        step: the number of steps before the failed one. The message names step + 1.
    """
    variables = task.trained_variables

    def on_replica(batch: dict[str, tf.Tensor]):
        terms, gradients = summed_gradients(task, batch, tf.constant(step, tf.int64))
        return (
            terms,
            tf.stack([_is_finite(gradient) for gradient in gradients]),
            tf.stack([tf.norm(gradient) for gradient in gradients]),
            tf.stack([_is_finite(variable) for variable in variables]),
        )

    @tf.function
    def on_replicas(batch):
        return strategy.run(on_replica, args=(batch,))

    results = on_replicas(next(iter(batches_from(step))))
    first = tf.nest.map_structure(lambda value: value.numpy(), first_replica(strategy, results))
    terms, gradient_is_finite, norms, weight_is_finite = first
    names = [plain_name(variable.name) for variable in variables]
    shown = ", ".join(f"{name} {value:.4g}" for name, value in terms.items())
    parts = [f"the loss or a gradient of step {step + 1} is not finite ({shown})"]
    if not weight_is_finite.all():
        parts.append(f"weights not finite before it: {_named(names, weight_is_finite)}")
    if not gradient_is_finite.all():
        parts.append(f"gradients not finite: {_named(names, gradient_is_finite)}")
    else:
        largest = sorted(zip(norms.tolist(), names, strict=True), reverse=True)[:_NUM_NAMED]
        parts.append("largest gradient norms: " + ", ".join(f"{name} {norm:.3g}" for norm, name in largest))
    if weight_is_finite.all() and gradient_is_finite.all() and np.isfinite(list(terms.values())).all():
        parts.append("computed again, all is finite: the joint norm overflows, or the device is faulty")
    skip = "continue with --set train.on_nonfinite=skip, or " if weight_is_finite.all() else ""
    precise = "" if task.config.train.precision == "float32" else ", --set train.precision=float32"
    return (
        f"{'; '.join(parts)}; usual causes: a learning rate that is too high, a warm-up that is too short; the step "
        f"changed nothing: {skip}start again with a lower optimizer.learning_rate{precise} or more "
        "optimizer.warmup_steps"
    )


def _named(names: list[str], is_finite: np.ndarray) -> str:
    """The names of tensors that are not finite. The last ones first, as they are nearest to the losses."""
    broken = [name for name, finite in zip(names, is_finite, strict=True) if not finite][::-1]
    more = len(broken) - _NUM_NAMED
    return ", ".join(broken[:_NUM_NAMED]) + (f" and {more} more" if more > 0 else "")


def _is_finite(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_all(tf.math.is_finite(values))
