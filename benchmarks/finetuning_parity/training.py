"""The training of a golden set's model beside that of the authors' code: gradients, norms, rates and trajectories.

Names are those of the golden files; each function returns differences by name.
"""

import math

import numpy as np
import tensorflow as tf

from benchmarks.finetuning_parity.model import GoldenSet, largest, relative_above_1
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.train.step import summed_gradients
from electra_tf.weights.names import finetuned_variables


def gradient_differences(golden: GoldenSet, task: FinetuningTask) -> tuple[dict[str, float], dict[str, float]]:
    """Of batch 0: the differences in gradients, and those in their norms, relative.

    A gradient's difference is divided by its largest entry; that of one which is zero in theory, so that both sides
    hold rounding noise, by the largest entry of all gradients.
    """
    expected = golden.arrays("gradients.npz")
    norms = {name: float(expected.pop(name)) for name in ("clip_norm_dense", "clip_norm_as_computed")}
    variables = golden.load(task, golden.weights)
    if set(expected) != set(variables):
        raise AssertionError(f"gradients differ: {sorted(set(expected) ^ set(variables))[:5]}")
    _, gradients = summed_gradients(task, golden.batch(0), tf.constant(0, tf.int64))
    ours = dict(zip(norms, norms_of(task, golden.batch(0), gradients), strict=True))
    by_variable = {id(variable): each.numpy() for variable, each in zip(task.trained_variables, gradients, strict=True)}
    sizes = {name: float(np.abs(values).max()) for name, values in expected.items()}
    found = {}
    for name, variable in variables.items():
        is_zero = _is_zero_in_theory(name, task.config) or sizes[name] == 0.0
        scale = max(sizes.values()) if is_zero else sizes[name]
        found[name] = largest(np.abs(by_variable[id(variable)] - expected[name])) / scale
    return found, {name: abs(ours[name] / norm - 1.0) for name, norm in norms.items()}


def norms_of(task: FinetuningTask, batch: dict[str, tf.Tensor], gradients: list[tf.Tensor]) -> tuple[float, float]:
    """The joint norm of gradients, and what the authors' code takes for it: of the word table's the norm before the
    gradients of a token's places in the batch are added up."""
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
    """Softmax does not see a sum that all of its scores have in common."""
    task = config.task
    if name.endswith("/attention/self/key/bias") or task.kind != "question_answering":
        return name.endswith("/attention/self/key/bias")
    if name.startswith("task_specific/"):
        return name.endswith(("/dense/bias", "/dense_1/bias"))
    # With nothing but two softmaxes over positions, this adds to all of them too.
    is_of_softmaxes_only = not task.joint_prediction and not task.answerable_classifier
    return is_of_softmaxes_only and name.endswith(f"/layer_{config.encoder.num_layers - 1}/output/LayerNorm/beta")


def dense_norm_trajectory(golden: GoldenSet, task: FinetuningTask) -> dict[str, dict[str, float]]:
    """Trains with the real step beside trajectory_dense_norm.npz, whose gradients are clipped by the norm of the dense
    gradients, as ours. Differences in losses, norms, rates and, where a file has them, the final variables."""
    expected = golden.arrays("trajectory_dense_norm.npz")
    variables = golden.load(task, golden.weights)

    @tf.function
    def step(batch):
        losses = task.row_losses(batch, task.forward(batch, INFERENCE))
        return losses, task.train_step(batch)

    losses, norms, rates = {}, {}, {}
    multipliers = _multipliers(golden, task, variables)
    for number, index in enumerate(expected["batch"]):
        batch = golden.batch(int(index))
        row_losses, metrics = step(batch)
        losses[f"total_loss/step_{number}"] = relative_above_1(float(metrics["loss"]), expected["total_loss"][number])
        losses[f"loss/step_{number}"] = _of_rows(batch, row_losses, expected["per_example_loss"][number])
        norm = float(expected["clip_norm_dense"][number])
        norms[f"step_{number}"] = abs(float(metrics["gradient_norm"]) / norm - 1.0)
        by_key = dict(zip(golden.settings["lr_keys"], expected["learning_rates"][number], strict=True))
        for name, (key, multiplier) in multipliers.items():
            difference = abs(float(metrics["learning_rate"]) * multiplier - float(by_key[key]))
            rates[f"{name}/step_{number}"] = difference / golden.settings["learning_rate"]
    found = {"losses": losses, "clip norms": norms, "learning rates": rates}
    if golden.has("final_variables_dense_norm.npz"):
        found["final variables"] = _of_final(golden, "final_variables_dense_norm.npz", variables)
    return found


def unmerged_norm_trajectory(golden: GoldenSet, task: FinetuningTask) -> dict[str, dict[str, float]]:
    """Trains beside trajectory.npz, where gradients are clipped by the second norm of `norms_of`, which our step does
    not compute. Differences in losses, norms, final variables, and in the norms of these, relative to the larger of 1
    and the norm."""
    expected = golden.arrays("trajectory.npz")
    variables = golden.load(task, golden.weights)
    clip_norm, losses, norms = task.config.optimizer.clip_norm, {}, {}
    for number, index in enumerate(expected["batch"]):
        batch = golden.batch(int(index))
        losses[f"loss/step_{number}"] = _of_rows(
            batch, task.row_losses(batch, task.forward(batch, INFERENCE)), expected["per_example_loss"][number]
        )
        terms, gradients = summed_gradients(task, batch, task.optimizer.iterations)
        loss = float(terms[golden.kind]) * golden.settings["batch_size"]
        losses[f"total_loss/step_{number}"] = relative_above_1(loss, expected["total_loss"][number])
        dense, unmerged = norms_of(task, batch, gradients)
        for name, norm in (("clip_norm_dense", dense), ("clip_norm_as_computed", unmerged)):
            norms[f"{name}/step_{number}"] = abs(norm / float(expected[name][number]) - 1.0)
        factor = tf.constant(clip_norm / max(unmerged, clip_norm), tf.float32)
        task.optimizer.apply(gradients, task.trained_variables, factor, wanted=tf.constant(True))
        task.optimizer.iterations.assign_add(1)
    found = {"losses": losses, "clip norms": norms}
    if golden.has("final_variables.npz"):
        found["final variables"] = _of_final(golden, "final_variables.npz", variables)
    norms = golden.settings["final_norms"]
    found["final norms"] = {
        name: relative_above_1(np.linalg.norm(v.numpy().astype(np.float64)), norms[name])
        for name, v in variables.items()
    }
    return found


def weight_decay_differences(golden: GoldenSet, task: FinetuningTask) -> dict[str, float]:
    """Variables that one side decays and the other does not."""
    theirs = golden.settings["trainable_variables"]
    is_on = task.config.optimizer.weight_decay_rate > 0
    ours = {name: is_on and task.optimizer.decays(v) for name, v in finetuned_variables(task, golden.name).items()}
    return {name: float(decays != theirs[name]["weight_decay"]) for name, decays in ours.items()}


def _multipliers(golden: GoldenSet, task: FinetuningTask, variables) -> dict[str, tuple[str, float]]:
    """The key of the authors' rates, and our multiplier, of each variable."""
    theirs = golden.settings["trainable_variables"]
    return {name: (theirs[name]["lr_key"], task.learning_rate_multiplier(v)) for name, v in variables.items()}


def _of_final(golden: GoldenSet, file: str, variables: dict[str, tf.Variable]) -> dict[str, float]:
    expected = golden.arrays(file)
    return {name: largest(np.abs(variable.numpy() - expected[name])) for name, variable in variables.items()}


def _of_rows(batch: dict[str, tf.Tensor], losses: tf.Tensor, expected: np.ndarray) -> float:
    """Rows that fill a batch up have a loss that counts nowhere."""
    real = batch["row_weights"].numpy() > 0
    return relative_above_1(losses.numpy()[real], expected[real])
