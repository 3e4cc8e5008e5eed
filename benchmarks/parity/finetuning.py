"""Our model of a golden set of fine-tuning, and its forward pass, gradients and trainings beside the authors'."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.parity.golden import (
    Arrays,
    Differences,
    encoder_settings,
    largest,
    load_arrays,
    read_json,
    relative_above_1,
    require_same_names,
)
from electra_tf.config.networks import EncoderConfig
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.kinds.question_answering import SpanLogits
from electra_tf.tasks.finetune.kinds.tagging import TaggingTask
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.train.optimizer import reset_optimizer
from electra_tf.train.step import compile_task, summed_gradients
from electra_tf.weights.names import finetuned_variables

MASKED = -500.0  # lower logits and log-probabilities belong to masked positions
_TEXT = ("input_ids", "input_mask", "segment_ids")
# Our names of targets and the authors', by the kind of task.
_TARGETS = {
    "question_answering": {name: name for name in ("start_positions", "end_positions", "is_impossible")},
    "tagging": {"label_ids": "labels", "label_weights": "labels_mask", "labeled_positions": "labeled_positions"},
    "regression": {"targets": "targets"},
    "classification": {"label_ids": "label_ids"},
}

_NORMS = ("clip_norm_dense", "clip_norm_as_computed")  # as `norms_of` returns them

Batch = dict[str, tf.Tensor]
Shapes = Mapping[str, list[int]]
Trajectory = dict[str, Differences]  # by part


class TaggingAtWords(TaggingTask):
    """Tagging with a loss over words.

    In the authors' code a word without tokens uses a token of the next word, so one token can have two labels.
    """

    def row_losses(self, batch, forward):
        return super().row_losses(batch, tf.gather(forward, batch["labeled_positions"], batch_dims=1))


class GoldenSet:
    """The settings, batches and weights of a golden set, and our model of it."""

    def __init__(self, directory: Path):
        self.directory, self.settings = directory, read_json(directory / "config.json")
        self.name = self.settings["task"]
        self.batches = self.arrays("batches.npz")
        targets = ((kind, f"{self.name}_{next(iter(names.values()))}") for kind, names in _TARGETS.items())
        self.kind = next(kind for kind, target in targets if target in self.batches)
        reader = tf.train.load_checkpoint(str(directory / "init.ckpt"))
        self.weights = {name: reader.get_tensor(name) for name in self.settings["trainable_variables"]}

    def has(self, file: str) -> bool:
        return (self.directory / file).exists()

    def arrays(self, file: str) -> Arrays:
        return load_arrays(self.directory / file)

    def build(self) -> FinetuningTask:
        """A compiled task."""
        head = {name: list(values.shape) for name, values in self.weights.items() if "task_spec" in name}
        shapes = {name.split("/", 2)[2]: shape for name, shape in head.items()}
        config = resolve(
            self._values(),
            str(self.directory / "config.json"),
            name=self.name,
            task=self._task_settings(shapes),
            encoder=EncoderConfig(**encoder_settings(self.settings)),
            init_from=None,
            num_epochs=1,
            max_seq_length=self.settings["max_seq_length"],
            num_rows=1,
        )
        task = (TaggingAtWords if self.kind == "tagging" else KINDS[self.kind].model)(config)
        task.empty_batch = lambda: self.batch(0)
        task.create_variables()
        return compile_task(task)

    def load(self, task: FinetuningTask, weights: Mapping[str, np.ndarray]) -> dict[str, tf.Variable]:
        """Sets a task's weights and resets its optimizer. Returns: its variables by the authors' names."""
        variables = finetuned_variables(task, self.name)
        require_same_names(weights, variables, "variables")
        assert len(variables) == len(task.trainable_variables)
        for name, variable in variables.items():
            variable.assign(weights[name])
        reset_optimizer(task.optimizer)
        return variables

    def batch(self, index: int) -> dict[str, tf.Tensor]:
        return self.batch_of({name: values[index] for name, values in self.batches.items()})

    def batch_of(self, arrays: Arrays) -> dict[str, tf.Tensor]:
        """A batch for the task from arrays [B, ...] with the names of batches.npz. Targets may be missing."""
        batch = {name: arrays[name] for name in _TEXT}
        num_rows = len(batch["input_ids"])
        batch["row_weights"] = np.float32(arrays.get("task_id", np.zeros(num_rows)) == 0)
        batch["row_index"] = np.arange(num_rows, dtype=np.int32)
        for ours, theirs in _TARGETS[self.kind].items():
            if f"{self.name}_{theirs}" in arrays:
                batch[ours] = arrays[f"{self.name}_{theirs}"]
        return {name: tf.constant(values) for name, values in batch.items()}

    def _values(self) -> dict:
        settings, optimizer = self.settings, self.settings["optimizer"]
        decay = settings["layerwise_lr_decay"]
        return {
            "optimizer": {
                "learning_rate": settings["learning_rate"],
                "layerwise_decay": decay if decay > 0 else 1.0,
                "warmup_fraction": settings["warmup_proportion"],
                "weight_decay_rate": settings["weight_decay_rate"],
                "clip_norm": settings["clip_global_norm"],
                **{name: optimizer[name] for name in ("beta_1", "beta_2", "epsilon")},
                "exclude_from_weight_decay": optimizer["exclude_from_weight_decay_regexes"],
            },
            "encoder": {
                "hidden_dropout": settings["hidden_dropout_prob"],
                "attention_dropout": settings["attention_probs_dropout_prob"],
            },
            "train": {"num_steps": settings["num_train_steps"], "batch_size": settings["batch_size"]},
        }

    def _task_settings(self, head: Shapes) -> dict:
        """The settings that follow from the shapes of the head's variables, by the authors' names without the scope."""
        if self.kind != "question_answering":
            labels = [] if self.kind == "regression" else [f"{index}" for index in range(head["dense/kernel"][1])]
            return {"kind": self.kind, "labels": labels, "dropout": 0.0}
        hidden = [head[name][1] for name in ("qa_hidden/kernel", "dense_2/kernel") if name in head]
        return {
            "kind": "question_answering",
            "version_2": False,  # has no effect on the model
            "joint_prediction": "qa_hidden/kernel" in head,
            "answerable_classifier": "dense_2/kernel" in head,
            "answerable_uses_start_logits": "dense_3/kernel" in head,
            "answerable_loss_weight": self.settings["answerable_weight"],
            "beam_size": self.settings["beam_size"],
            **({"head_size": hidden[0]} if hidden else {}),
        }


def forward_tensors(task: FinetuningTask, batch: dict[str, tf.Tensor]) -> dict[str, np.ndarray]:
    """The tensors of forward.npz for the real rows of a batch. The loss needs targets in the batch."""
    encoded, forward = task.encode(batch, INFERENCE), task.forward(batch, INFERENCE)
    tensors = {"sequence_output": encoded.sequence_output, "pooled_output": encoded.pooled_output}
    if isinstance(forward, SpanLogits):
        tensors["start_logits"] = forward.start_logits
        if "start_positions" in batch:
            tensors["end_logits"] = task.end_logits(forward, batch["start_positions"][:, tf.newaxis])[:, 0]
        if forward.answerable_logits is not None:
            tensors["answerable_logit"] = forward.answerable_logits
    elif isinstance(task, TaggingTask):
        tensors["logits"] = tf.gather(forward, batch["labeled_positions"], batch_dims=1)
    elif task.config.task.kind == "regression":
        tensors["predictions"] = forward[:, 0]
    else:
        tensors["logits"] = forward
    if set(task.target_tensors) <= set(batch):
        tensors["loss"] = task.row_losses(batch, forward)
    real = batch["row_weights"].numpy() > 0
    return {name: values.numpy()[real] for name, values in tensors.items()}


def forward_differences(golden: GoldenSet, task: FinetuningTask) -> tuple[Differences, Differences]:
    """The differences in all tensors of batch 0, and separately those in logits of masked positions."""
    batch, expected = golden.batch(0), golden.arrays("forward.npz")
    ours, real = forward_tensors(task, batch), batch["row_weights"].numpy() > 0
    terms = task.training_terms(batch, INFERENCE)
    total_loss = relative_above_1(float(terms[golden.kind].value), float(expected.pop("total_loss")))
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
        is_masked = expected[name] < MASKED
        differences[name] = largest(difference[~is_masked])
        if is_masked.any():
            masked[name] = largest(difference[is_masked])
    return differences, masked


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
        tape.watch(words.value)
        (term,) = task.training_terms(batch, INFERENCE).values()
    slices = tape.gradient(term.value, words.value)
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


def dense_norm_trajectory(golden: GoldenSet, task: FinetuningTask) -> Trajectory:
    """Trains with the real step and compares it with trajectory_dense_norm.npz, which is clipped by the same norm.

    Returns: the differences by part: losses, norms, rates and final variables; empty without the file.
    """

    @tf.function
    def step(batch):
        losses = task.row_losses(batch, task.forward(batch, INFERENCE))
        return losses, task.train_step(batch)

    def train(batch: Batch) -> tuple:
        row_losses, metrics = step(batch)
        return row_losses, metrics["loss"], (metrics["gradient_norm"],), float(metrics["learning_rate"])

    return _trajectory(golden, task, "_dense_norm", train)


def unmerged_norm_trajectory(golden: GoldenSet, task: FinetuningTask) -> Trajectory:
    """Trains with the authors' clipping, by the second norm of `norms_of`, and compares steps with trajectory.npz.

    Returns: as `dense_norm_trajectory`, without rates, and final norms, relative to the larger of 1 and the norm.
    """
    clip_norm = task.config.optimizer.clip_norm

    def train(batch: Batch) -> tuple:
        row_losses = task.row_losses(batch, task.forward(batch, INFERENCE))
        terms, gradients = summed_gradients(task, batch, task.optimizer.iterations)
        norms = norms_of(task, batch, gradients)
        factor = tf.constant(clip_norm / max(norms[1], clip_norm), tf.float32)
        task.optimizer.apply(gradients, task.trained_variables, factor, apply_update=tf.constant(True))
        task.optimizer.iterations.assign_add(1)
        return row_losses, float(terms[golden.kind]) * golden.settings["batch_size"], norms, None

    parts = _trajectory(golden, task, "", train)
    if parts:
        parts["final norms"] = {
            name: relative_above_1(np.linalg.norm(v.numpy().astype(np.float64)), golden.settings["final_norms"][name])
            for name, v in finetuned_variables(task, golden.name).items()
        }
    return parts


def _trajectory(golden: GoldenSet, task: FinetuningTask, suffix: str, train: Callable[[Batch], tuple]) -> Trajectory:
    """Compares a training. `train` returns the rows' losses, the loss, the first of `_NORMS`, and the rate or None."""
    if not golden.has(f"trajectory{suffix}.npz"):
        return {}
    expected, variables = golden.arrays(f"trajectory{suffix}.npz"), golden.load(task, golden.weights)
    keys = {name: each["lr_key"] for name, each in golden.settings["trainable_variables"].items()}
    losses, norms, rates = {}, {}, {}
    for number, index in enumerate(expected["batch"]):
        of_step, batch = {name: values[number] for name, values in expected.items()}, golden.batch(int(index))
        real = batch["row_weights"].numpy() > 0
        row_losses, loss, of_gradients, rate = train(batch)
        losses[f"loss/step_{number}"] = relative_above_1(row_losses.numpy()[real], of_step["per_example_loss"][real])
        losses[f"total_loss/step_{number}"] = relative_above_1(float(loss), of_step["total_loss"])
        for name, norm in zip(_NORMS, of_gradients, strict=False):
            norms[f"{name}/step_{number}"] = abs(float(norm) / float(of_step[name]) - 1.0)
        if rate is None:
            continue
        by_key = dict(zip(golden.settings["lr_keys"], of_step["learning_rates"], strict=True))
        for name, variable in variables.items():
            difference = abs(rate * task.learning_rate_multiplier(variable) - float(by_key[keys[name]]))
            rates[f"{name}/step_{number}"] = difference / golden.settings["learning_rate"]
    file = f"final_variables{suffix}.npz"
    final = golden.arrays(file) if golden.has(file) else {}
    of_variables = {name: largest(np.abs(variables[name].numpy() - values)) for name, values in final.items()}
    return {"losses": losses, "clip norms": norms, "learning rates": rates, "final variables": of_variables}


def weight_decay_differences(golden: GoldenSet, task: FinetuningTask) -> Differences:
    """1 for each variable that only one side decays, else 0."""
    theirs = golden.settings["trainable_variables"]
    is_on = task.config.optimizer.weight_decay_rate > 0
    ours = {name: is_on and task.optimizer.decays(v) for name, v in finetuned_variables(task, golden.name).items()}
    return {name: float(decays != theirs[name]["weight_decay"]) for name, decays in ours.items()}
