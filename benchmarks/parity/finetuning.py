"""The differences of our model of a golden set of fine-tuning from what the authors' code computed."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from benchmarks.parity import squad, text
from benchmarks.parity.golden import (
    Arrays,
    Comparison,
    Differences,
    largest,
    largest_entry,
    relative,
    relative_above_1,
    require_same_names,
)
from benchmarks.parity.model import Batch, FinetuningSet, forward_tensors
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.train.step import summed_gradients, unstacked

# The README of the golden sets recommends most of these. It measured by how much the authors' own numbers change when
# the initial weights change by a rounding: up to 8e-6 in the forward pass, 2e-6 in gradients.
NONE = 0.0
EXACT = 1e-9  # scores
FORWARD = 1e-5
MASKED_LOGITS = 2e-4  # near -1000, where a float32 has steps of 6e-5
GRADIENTS = 2e-5  # relative to the largest entry of each
NORMS = 1e-5
LOSSES = 2e-5  # relative to the larger of 1 and the loss
RATES = 1e-6  # relative to the peak
FINAL_VARIABLES = 2e-6
PROBABILITIES = 1e-7  # in n-best lists; theirs are rounded by a float32 exponential, 2e-8

_MASKED = -500.0  # lower logits and log-probabilities belong to masked positions
_SMALLEST_GAP = 1e-4  # rounding decides the order of entries that are closer
_ROWS = 32  # in a batch of the dev set
_NORMS = ("clip_norm_dense", "clip_norm_as_computed")  # as `norms_of` returns them


def comparisons(golden: FinetuningSet) -> Iterator[Comparison]:
    """Compares features, the forward pass, gradients, trainings, outputs and answers, as far as the set has them."""
    of_features = {"question_answering": squad.feature_differences, "tagging": text.tagging_differences}
    yield Comparison("features", of_features.get(golden.kind, text.feature_differences)(golden), NONE)
    forward, masked = forward_differences(golden)
    yield Comparison("forward", forward, FORWARD)
    yield Comparison("forward, masked logits", masked, MASKED_LOGITS)
    gradients, norms = gradient_differences(golden)
    yield Comparison("gradients", gradients, GRADIENTS)
    yield Comparison("gradient norms", norms, NORMS)
    yield Comparison("variables with weight decay", weight_decay_differences(golden), NONE)
    if golden.has("trajectory_dense_norm.npz"):
        yield from dense_norm_training(golden)
    if golden.has("trajectory.npz"):
        yield from unmerged_norm_training(golden)
    golden.reset()
    if golden.has("dev_outputs.npz"):
        outputs, predictions = dev_differences(golden)
        yield Comparison("dev outputs", outputs, FORWARD)
        yield Comparison("dev predictions", predictions, NONE)
        yield Comparison("dev scores", text.dev_score_differences(golden), EXACT)
    if golden.has("inference.npz"):
        beams, masked, entries = inference_differences(golden)
        yield Comparison("inference", beams, FORWARD)
        yield Comparison("inference, masked logits", masked, MASKED_LOGITS)
        yield Comparison("inference, beam entries", entries, NONE)
        answers, probabilities = squad.answer_differences(golden)
        yield Comparison("answers and their scores", answers, EXACT)
        yield Comparison("n-best probabilities", probabilities, PROBABILITIES)


def forward_differences(golden: FinetuningSet) -> tuple[Differences, Differences]:
    """The differences in all tensors of batch 0, and separately those in logits of masked positions."""
    batch, expected = golden.batch(0), golden.arrays("forward.npz")
    ours, real = forward_tensors(golden.task, batch), batch["row_weights"].numpy() > 0
    (term,) = golden.task.training_terms(batch, INFERENCE).values()
    total_loss = relative_above_1(float(term.value), float(expected["total_loss"]))
    rows = {name: expected[name].reshape(len(real), *ours[name].shape[1:])[real] for name in ours}
    differences, masked = compare_tensors(ours, rows)
    return {**differences, "total_loss": total_loss}, masked


def compare_tensors(ours: Arrays, expected: Arrays) -> tuple[Differences, Differences]:
    """The largest difference in each tensor, and separately that in its logits of masked positions.

    Differences of losses are relative to the larger of 1 and the loss.
    """
    differences, masked = {}, {}
    for name, values in ours.items():
        if name == "loss":
            differences[name] = relative_above_1(values, expected[name])
            continue
        difference = np.abs(values.astype(np.float64) - expected[name])
        is_masked = expected[name] < _MASKED
        differences[name] = largest(difference[~is_masked])
        if is_masked.any():
            masked[name] = largest(difference[is_masked])
    return differences, masked


def gradient_differences(golden: FinetuningSet) -> tuple[Differences, Differences]:
    """The relative differences in the gradients of batch 0, and in their global norms."""
    expected, batch = golden.arrays("gradients.npz"), golden.batch(0)
    norms = {name: float(expected.pop(name)) for name in _NORMS}
    _, stacks = summed_gradients(golden.task, batch, tf.constant(0, tf.int64))
    gradients = unstacked(golden.task, stacks)
    ours = golden.by_name(gradients)
    require_same_names(expected, ours, "gradients")
    our_norms = zip(norms.items(), norms_of(golden.task, batch, gradients), strict=True)
    return relative(ours, expected, largest_entry), {
        name: abs(norm / theirs - 1.0) for (name, theirs), norm in our_norms
    }


def norms_of(task: FinetuningTask, batch: Batch, gradients: list[tf.Tensor]) -> tuple[float, float]:
    """The global norm of the gradients, and the norm by which the authors' code clips.

    Theirs takes the norm of the word table's gradient before the entries of equal tokens are added up.
    """
    words = task.encoder.embeddings.word_embeddings
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(words.value)
        (term,) = task.training_terms(batch, INFERENCE).values()
    slices = tape.gradient(term.value, words.value)
    squares = [float(np.sum(np.square(values.numpy(), dtype=np.float64))) for values in (*gradients, slices.values)]
    of_words = squares[[variable is words for variable in task.trained_variables].index(True)]
    dense = sum(squares[:-1])
    return math.sqrt(dense), math.sqrt(dense - of_words + squares[-1])


def weight_decay_differences(golden: FinetuningSet) -> Differences:
    """1 for each variable that only one side decays, else 0."""
    theirs, task = golden.settings["trainable_variables"], golden.task
    is_on = task.config.optimizer.weight_decay_rate > 0
    return {
        name: float((is_on and task.optimizer.decays(variable)) != theirs[name]["weight_decay"])
        for name, variable in golden.variables.items()
    }


def dense_norm_training(golden: FinetuningSet) -> Iterator[Comparison]:
    """Trains with the real step and compares it with trajectory_dense_norm.npz, which is clipped by the same norm."""
    task, peak = golden.task, golden.settings["learning_rate"]
    keys = {name: each["lr_key"] for name, each in golden.settings["trainable_variables"].items()}
    steps = golden.arrays("trajectory_dense_norm.npz")
    rates: Differences = {}

    @tf.function
    def step(batch: Batch):
        return task.row_losses(batch, task.forward(batch, INFERENCE)), task.train_step(batch)

    def train(batch: Batch, number: int) -> tuple:
        row_losses, metrics = step(batch)
        by_key = dict(zip(golden.settings["lr_keys"], steps["learning_rates"][number], strict=True))
        for name, variable in golden.variables.items():
            rate = float(metrics["learning_rate"]) * task.learning_rate_multiplier(variable)
            rates[f"{name}/step_{number}"] = abs(rate - float(by_key[keys[name]])) / peak
        return row_losses, metrics["loss"], (metrics["gradient_norm"],)

    losses, norms = _train(golden, steps, train)
    yield Comparison("training: losses", losses, LOSSES)
    yield Comparison("training: clip norms", norms, NORMS)
    yield Comparison("training: learning rates", rates, RATES)
    yield Comparison("training: final variables", _final_differences(golden, "_dense_norm"), FINAL_VARIABLES)


def unmerged_norm_training(golden: FinetuningSet) -> Iterator[Comparison]:
    """Trains with the authors' clipping, by the second norm of `norms_of`, and compares steps with trajectory.npz."""
    task = golden.task
    clip_norm = task.config.optimizer.clip_norm

    def train(batch: Batch, _) -> tuple:
        row_losses = task.row_losses(batch, task.forward(batch, INFERENCE))
        terms, stacks = summed_gradients(task, batch, task.optimizer.iterations)
        gradients = unstacked(task, stacks)
        norms = norms_of(task, batch, gradients)
        factor = tf.constant(clip_norm / max(norms[1], clip_norm), tf.float32)
        clipped = [gradient * factor for gradient in gradients]
        task.optimizer.apply(clipped, task.trained_variables, apply_update=tf.constant(True))
        task.optimizer.iterations.assign_add(1)
        return row_losses, float(terms[golden.kind]) * golden.settings["batch_size"], norms

    losses, norms = _train(golden, golden.arrays("trajectory.npz"), train)
    yield Comparison("training, unmerged norm: losses", losses, LOSSES)
    yield Comparison("training, unmerged norm: clip norms", norms, NORMS)
    yield Comparison("training, unmerged norm: final variables", _final_differences(golden, ""), FINAL_VARIABLES)
    final_norms = {
        name: relative_above_1(
            np.linalg.norm(variable.numpy().astype(np.float64)), golden.settings["final_norms"][name]
        )
        for name, variable in golden.variables.items()
    }
    yield Comparison("training, unmerged norm: final norms", final_norms, FINAL_VARIABLES)


def _train(
    golden: FinetuningSet, expected: Arrays, train: Callable[[Batch, int], tuple]
) -> tuple[Differences, Differences]:
    """The differences of losses and norms of a training.

    Args:
        train: takes a batch and the number of the step; returns the rows' losses, the loss, and the first of `_NORMS`.
    """
    golden.reset()
    losses, norms = {}, {}
    for number, index in enumerate(expected["batch"]):
        of_step, batch = {name: values[number] for name, values in expected.items()}, golden.batch(int(index))
        real = batch["row_weights"].numpy() > 0
        row_losses, loss, of_gradients = train(batch, number)
        losses[f"loss/step_{number}"] = relative_above_1(row_losses.numpy()[real], of_step["per_example_loss"][real])
        losses[f"total_loss/step_{number}"] = relative_above_1(float(loss), of_step["total_loss"])
        for name, norm in zip(_NORMS, of_gradients, strict=False):
            norms[f"{name}/step_{number}"] = abs(float(norm) / float(of_step[name]) - 1.0)
    return losses, norms


def _final_differences(golden: FinetuningSet, suffix: str) -> Differences:
    file = f"final_variables{suffix}.npz"
    final = golden.arrays(file) if golden.has(file) else {}
    return {name: largest_entry(golden.variables[name].numpy() - values) for name, values in final.items()}


def dev_differences(golden: FinetuningSet) -> tuple[Differences, Differences]:
    """Compares losses, logits and predictions for the dev set.

    Returns: the differences of losses and logits, and the number of predictions that differ: choices whose expected
        logit is clearly less than the largest.
    """
    expected = golden.arrays("dev_outputs.npz")
    targets = {name: expected[name] for name in ("label_ids", "targets", "labels", "labels_mask") if name in expected}
    ours = forward_tensors(golden.task, golden.dev_batch(expected["eid"], targets))
    differences, _ = compare_tensors({name: values for name, values in ours.items() if name in expected}, expected)
    if golden.kind == "regression":
        return differences, {}
    logits, choices = expected["logits"], ours["logits"].argmax(axis=-1)[..., np.newaxis]
    behind = logits.max(axis=-1) - np.take_along_axis(logits, choices, axis=-1)[..., 0]
    return differences, {"predictions": float(np.sum(behind > _SMALLEST_GAP))}


def inference_differences(golden: FinetuningSet) -> tuple[Differences, Differences, Differences]:
    """`beam_differences` of the windows of the dev set."""
    expected, parts = golden.arrays("inference.npz"), []
    batch = golden.dev_batch(expected["eid"], {})
    for start in range(0, len(expected["eid"]), _ROWS):
        part = {name: values[start : start + _ROWS] for name, values in batch.items()}
        forward = golden.task.forward(part, INFERENCE)
        outputs = golden.task.outputs(part, forward) | {"start_logits": forward.start_logits}
        if "answerable_logits" in outputs:
            outputs["answerable_logit"] = outputs.pop("answerable_logits")
        parts.append(outputs)
    return beam_differences({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, expected)


def beam_differences(ours: Arrays, expected: Arrays) -> tuple[Differences, Differences, Differences]:
    """Compares logits, log-probabilities and beams.

    Not compared, because they depend on rounding: log-probabilities of masked positions, and beam entries with equally
    probable neighbours. The ends of a start are compared wherever the start is in the beam.

    Returns: the differences of logits and log-probabilities, those of masked logits, and the numbers of beam entries
        that differ.
    """
    logits = {name: values for name, values in ours.items() if "_top_" not in name}
    differences, masked = compare_tensors(logits, expected)
    if "start_top_index" not in expected:
        return differences, masked, {}
    starts, ends = expected["start_top_index"], expected["end_top_index"]
    log_probs, end_difference, differing_ends = expected["start_top_log_probs"], 0.0, 0.0
    for row, slot in zip(*np.nonzero(log_probs > _MASKED), strict=True):
        (at,) = np.nonzero(ours["start_top_index"][row] == starts[row, slot])
        if len(at) == 0:
            continue  # counted below, unless it is as probable as the first start outside the beam
        mine = {name: ours[f"end_top_{name}"][row, at[0]] for name in ("log_probs", "index")}
        theirs = expected["end_top_log_probs"][row, slot]
        end_difference = max(end_difference, _log_prob_difference(mine["log_probs"], theirs))
        differing_ends += _differing_entries(mine["index"], ends[row, slot], theirs)
    differing_starts = _differing_entries(ours["start_top_index"], starts, log_probs)
    differences["start_top_log_probs"] = _log_prob_difference(ours["start_top_log_probs"], log_probs)
    differences["end_top_log_probs"] = end_difference
    return differences, masked, {"start_top_index": differing_starts, "end_top_index": differing_ends}


def _log_prob_difference(ours: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference at positions that are not masked; infinite if only one side masks a position."""
    if np.any((ours > _MASKED) != (expected > _MASKED)):
        return np.inf
    return float(np.max(np.abs(ours - expected), where=expected > _MASKED, initial=0.0))


def _differing_entries(ours: np.ndarray, expected: np.ndarray, log_probs: np.ndarray) -> float:
    """The number of beam entries [..., K] that differ, except those with a neighbour of about the same probability.

    `log_probs` are those of `expected`, in falling order. The last entry is not compared: its neighbour is unknown.
    """
    steps = log_probs[..., :-1] - log_probs[..., 1:] > _SMALLEST_GAP
    last = np.zeros_like(steps[..., :1])
    is_clear = np.concatenate([~last, steps], axis=-1) & np.concatenate([steps, last], axis=-1)
    return float(np.sum((ours != expected) & is_clear & (log_probs > _MASKED)))
