"""Compares our outputs for the dev set of a golden set, and beams of question answering, with the authors'."""

import numpy as np
import tensorflow as tf

from benchmarks.parity.finetuning import MASKED, GoldenSet, compare_tensors, forward_tensors
from benchmarks.parity.golden import Arrays, Differences, read_lines
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.task import FinetuningTask

# Rounding decides the order of entries that are closer than this.
_SMALLEST_GAP = 1e-4
_ROWS = 32  # in a batch


def dev_differences(golden: GoldenSet, task: FinetuningTask) -> tuple[Differences, Differences]:
    """Compares losses, logits and predictions for the dev set, computed with the initial weights.

    Returns: the differences of losses and logits, and the number of predictions that differ.
    """
    golden.load(task, golden.weights)
    expected = golden.arrays("dev_outputs.npz")
    targets = {name: expected[name] for name in ("label_ids", "targets", "labels", "labels_mask") if name in expected}
    batch = _dev_batch(golden, expected["eid"], targets)
    ours = forward_tensors(task, batch)
    differences, _ = compare_tensors({name: values for name, values in ours.items() if name in expected}, expected)
    if golden.kind == "regression":
        return differences, {}
    return differences, {"predictions": _differing_choices(expected["logits"], ours["logits"].argmax(axis=-1))}


def inference_differences(golden: GoldenSet, task: FinetuningTask) -> tuple[Differences, ...]:
    """`beam_differences` of the windows of the dev set, with the initial weights."""
    golden.load(task, golden.weights)
    expected = golden.arrays("inference.npz")
    batch = _dev_batch(golden, expected["eid"], {})
    parts = [
        answers_of(task, {name: values[start : start + _ROWS] for name, values in batch.items()})
        for start in range(0, len(expected["eid"]), _ROWS)
    ]
    return beam_differences({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, expected)


def answers_of(task: FinetuningTask, batch: dict[str, tf.Tensor]) -> Arrays:
    """The outputs of inference for windows, by the golden names."""
    forward = task.forward(batch, INFERENCE)
    outputs = task.outputs(batch, forward) | {"start_logits": forward.start_logits}
    names = {"answerable_logits": "answerable_logit"}
    return {names.get(name, name): values.numpy() for name, values in outputs.items()}


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
    for row, slot in zip(*np.nonzero(log_probs > MASKED), strict=True):
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
    if np.any((ours > MASKED) != (expected > MASKED)):
        return np.inf
    return float(np.max(np.abs(ours - expected), where=expected > MASKED, initial=0.0))


def _differing_entries(ours: np.ndarray, expected: np.ndarray, log_probs: np.ndarray) -> float:
    """The number of beam entries [..., K] that differ, except those with a neighbour of about the same probability.

    `log_probs` are those of `expected`, in falling order. The last entry is not compared: its neighbour is unknown.
    """
    steps = log_probs[..., :-1] - log_probs[..., 1:] > _SMALLEST_GAP
    last = np.zeros_like(steps[..., :1])
    is_clear = np.concatenate([~last, steps], axis=-1) & np.concatenate([steps, last], axis=-1)
    return float(np.sum((ours != expected) & is_clear & (log_probs > MASKED)))


def _differing_choices(logits: np.ndarray, ours: np.ndarray) -> float:
    """The number of our choices [...] whose expected logit is less than the largest of the C [..., C]."""
    chosen = np.take_along_axis(logits, ours[..., np.newaxis], axis=-1)[..., 0]
    return float(np.sum(logits.max(axis=-1) - chosen > _SMALLEST_GAP))


def _dev_batch(golden: GoldenSet, eids: np.ndarray, targets: Arrays) -> dict[str, tf.Tensor]:
    """The dev examples `eids` of features.jsonl.xz as one batch. `targets` have the names of batches.npz."""
    by_eid = {
        line["eid"]: line for line in read_lines(golden.directory / "features.jsonl.xz") if line["split"] == "dev"
    }
    lines = [by_eid[eid] for eid in eids.tolist()]
    length = golden.settings["max_seq_length"]

    def padded(rows) -> np.ndarray:
        return np.stack([np.pad(np.int32(row)[:length], (0, length - len(row[:length]))) for row in rows])

    arrays = {name: padded([line[name] for line in lines]) for name in ("input_ids", "segment_ids")}
    arrays["input_mask"] = padded([[1] * line["num_tokens"] for line in lines])
    if golden.kind == "tagging":
        targets = {**targets, "labeled_positions": padded([line["labeled_positions"] for line in lines])}
    return golden.batch_of(arrays | {f"{golden.name}_{name}": values for name, values in targets.items()})
