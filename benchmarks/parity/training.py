"""Compares gradients, norms, learning rates and trajectories of a golden set with those of the authors' code."""

import math

import numpy as np
import tensorflow as tf

from benchmarks.parity.finetuning import GoldenSet
from benchmarks.parity.golden import Differences, largest, relative_above_1, require_same_names
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.train.step import summed_gradients
from electra_tf.weights.names import finetuned_variables

_NORMS = ("clip_norm_dense", "clip_norm_as_computed")  # as `norms_of` returns them


def gradient_differences(golden: GoldenSet, task: FinetuningTask) -> tuple[Differences, Differences]:
    """The relative differences in the gradients of batch 0, and in their global norms.

    The difference in a gradient is divided by its largest entry. If the gradient is zero in theory, both sides hold
    rounding noise, so the difference is divided by the largest entry of all gradients.
    """
    expected = golden.arrays("gradients.npz")
    norms = {name: float(expected.pop(name)) for name in _NORMS}
    variables = golden.load(task, golden.weights)
    require_same_names(expected, variables, "gradients")
    _, gradients = summed_gradients(task, golden.batch(0), tf.constant(0, tf.int64))
    ours = dict(zip(_NORMS, norms_of(task, golden.batch(0), gradients), strict=True))
    by_variable = {id(variable): each.numpy() for variable, each in zip(task.trained_variables, gradients, strict=True)}
    sizes = {name: float(np.abs(values).max()) for name, values in expected.items()}
    differences = {}
    for name, variable in variables.items():
        is_zero = _is_zero_in_theory(name, task.config) or sizes[name] == 0.0
        scale = max(sizes.values()) if is_zero else sizes[name]
        differences[name] = largest(np.abs(by_variable[id(variable)] - expected[name])) / scale
    return differences, {name: abs(ours[name] / norm - 1.0) for name, norm in norms.items()}


def norms_of(task: FinetuningTask, batch: dict[str, tf.Tensor], gradients: list[tf.Tensor]) -> tuple[float, float]:
    """The global norm of the gradients, and the norm by which the authors' code clips.

    Theirs takes the norm of the word table's gradient before the entries of equal tokens are added up.
    """
    words = task.encoder.embeddings.word_embeddings
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(words)
        (term,) = task.training_terms(batch, INFERENCE).values()
    slices = tape.gradient(term.value, words)
    squares = [float(np.sum(np.square(values.numpy(), dtype=np.float64))) for values in (*gradients, slices.values)]
    of_words = squares[[variable is words for variable in task.trained_variables].index(True)]
    dense = sum(squares[:-1])
    return math.sqrt(dense), math.sqrt(dense - of_words + squares[-1])


def _is_zero_in_theory(name: str, config: FinetuningConfig) -> bool:
    """Whether a variable adds the same value to all scores of a softmax, which ignores it."""
    task = config.task
    if name.endswith("/attention/self/key/bias") or task.kind != "question_answering":
        return name.endswith("/attention/self/key/bias")
    if name.startswith("task_specific/"):
        return name.endswith(("/dense/bias", "/dense_1/bias"))
    # Without further heads, this value too is added to the scores of all positions.
    is_of_softmaxes_only = not task.joint_prediction and not task.answerable_classifier
    return is_of_softmaxes_only and name.endswith(f"/layer_{config.encoder.num_layers - 1}/output/LayerNorm/beta")


def dense_norm_trajectory(golden: GoldenSet, task: FinetuningTask) -> dict[str, Differences]:
    """Trains with the real step and compares steps with trajectory_dense_norm.npz, which is clipped by the same norm.

    Returns: the differences by part: losses, norms, rates and final variables; empty without the file.
    """
    if not golden.has("trajectory_dense_norm.npz"):
        return {}
    expected = golden.arrays("trajectory_dense_norm.npz")
    variables = golden.load(task, golden.weights)

    @tf.function
    def step(batch):
        losses = task.row_losses(batch, task.forward(batch, INFERENCE))
        return losses, task.train_step(batch)

    losses, norms, rates = {}, {}, {}
    keys = {name: each["lr_key"] for name, each in golden.settings["trainable_variables"].items()}
    for number, index in enumerate(expected["batch"]):
        batch = golden.batch(int(index))
        row_losses, metrics = step(batch)
        losses[f"total_loss/step_{number}"] = relative_above_1(float(metrics["loss"]), expected["total_loss"][number])
        losses[f"loss/step_{number}"] = _row_loss_difference(batch, row_losses, expected["per_example_loss"][number])
        norms[f"step_{number}"] = abs(float(metrics["gradient_norm"]) / float(expected[_NORMS[0]][number]) - 1.0)
        by_key = dict(zip(golden.settings["lr_keys"], expected["learning_rates"][number], strict=True))
        for name, variable in variables.items():
            rate = float(metrics["learning_rate"]) * task.learning_rate_multiplier(variable)
            difference = abs(rate - float(by_key[keys[name]]))
            rates[f"{name}/step_{number}"] = difference / golden.settings["learning_rate"]
    parts = {"losses": losses, "clip norms": norms, "learning rates": rates}
    return parts | _final_differences(golden, "final_variables_dense_norm.npz", variables)


def unmerged_norm_trajectory(golden: GoldenSet, task: FinetuningTask) -> dict[str, Differences]:
    """Trains with the authors' clipping, by the second norm of `norms_of`, and compares steps with trajectory.npz.

    Returns: the differences by part: losses, norms, final variables (if their file exists) and final norms, which are
        relative to the larger of 1 and the norm; empty without the file.
    """
    if not golden.has("trajectory.npz"):
        return {}
    expected = golden.arrays("trajectory.npz")
    variables = golden.load(task, golden.weights)
    clip_norm, losses, norms = task.config.optimizer.clip_norm, {}, {}
    for number, index in enumerate(expected["batch"]):
        batch = golden.batch(int(index))
        row_losses = task.row_losses(batch, task.forward(batch, INFERENCE))
        losses[f"loss/step_{number}"] = _row_loss_difference(batch, row_losses, expected["per_example_loss"][number])
        terms, gradients = summed_gradients(task, batch, task.optimizer.iterations)
        loss = float(terms[golden.kind]) * golden.settings["batch_size"]
        losses[f"total_loss/step_{number}"] = relative_above_1(loss, expected["total_loss"][number])
        computed = norms_of(task, batch, gradients)
        for name, norm in zip(_NORMS, computed, strict=True):
            norms[f"{name}/step_{number}"] = abs(norm / float(expected[name][number]) - 1.0)
        factor = tf.constant(clip_norm / max(computed[1], clip_norm), tf.float32)
        task.optimizer.apply(gradients, task.trained_variables, factor, apply_update=tf.constant(True))
        task.optimizer.iterations.assign_add(1)
    final_norms = {
        name: relative_above_1(np.linalg.norm(v.numpy().astype(np.float64)), golden.settings["final_norms"][name])
        for name, v in variables.items()
    }
    parts = {"losses": losses, "clip norms": norms}
    return parts | _final_differences(golden, "final_variables.npz", variables) | {"final norms": final_norms}


def weight_decay_differences(golden: GoldenSet, task: FinetuningTask) -> Differences:
    """1 for each variable that only one side decays, else 0."""
    theirs = golden.settings["trainable_variables"]
    is_on = task.config.optimizer.weight_decay_rate > 0
    ours = {name: is_on and task.optimizer.decays(v) for name, v in finetuned_variables(task, golden.name).items()}
    return {name: float(decays != theirs[name]["weight_decay"]) for name, decays in ours.items()}


def _final_differences(golden: GoldenSet, file: str, variables: dict[str, tf.Variable]) -> dict[str, Differences]:
    expected = golden.arrays(file) if golden.has(file) else {}
    differences = {name: largest(np.abs(variables[name].numpy() - values)) for name, values in expected.items()}
    return {"final variables": differences}


def _row_loss_difference(batch: dict[str, tf.Tensor], losses: tf.Tensor, expected: np.ndarray) -> float:
    """The difference in the losses of real rows, as `relative_above_1`."""
    real = batch["row_weights"].numpy() > 0
    return relative_above_1(losses.numpy()[real], expected[real])
