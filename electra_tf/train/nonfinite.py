"""Explains why a step's loss or gradients were not finite."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from electra_tf.tasks.base import Task
from electra_tf.train.adam import plain_name

_NUM_NAMED = 5


def explain_nonfinite(task: Task, step: int, metrics: Mapping[str, tf.Tensor]) -> str:
    """Returns one line on a failed step: its losses, the norm of its gradients, broken weights, and what to do.

    Args:
        task: with the weights from before the step.
        step: the number of steps before the failed one. The message names step + 1.
        metrics: of the failed step, see `metric_names`.
    """
    shown = ", ".join(f"{name} {float(metrics[name]):.4g}" for name in (*task.term_names, "gradient_norm"))
    message = f"the loss or a gradient of step {step + 1} is not finite ({shown})"
    # The last ones first, as they are nearest to the losses.
    broken = [plain_name(each.name) for each in task.trained_variables if not np.isfinite(each.numpy()).all()][::-1]
    if broken:
        more = len(broken) - _NUM_NAMED
        message += "; weights not finite before it: " + ", ".join(broken[:_NUM_NAMED])
        message += f" and {more} more" if more > 0 else ""
    skip = "" if broken else "continue with --set train.on_nonfinite=skip, or "
    precise = "" if task.config.train.precision == "float32" else ", --set train.precision=float32"
    return (
        f"{message}; usual causes: a learning rate that is too high, a warm-up that is too short; the step "
        f"changed nothing: {skip}start again with a lower optimizer.learning_rate{precise} or more "
        "optimizer.warmup_steps"
    )
