"""The model of one golden set, and its differences from what the authors' code computed.

Names are those of the golden files; each function returns differences by name.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.golden import Arrays, load_arrays, read_json
from electra_tf.config.schema import EncoderConfig
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.finetune.question_answering import QuestionAnsweringTask, SpanLogits
from electra_tf.tasks.finetune.sentence import SentenceTask
from electra_tf.tasks.finetune.tagging import TaggingTask
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.train.optimizer import reset_optimizer
from electra_tf.train.step import compile_task
from electra_tf.weights.names import finetuned_variables

MASKED = -500.0  # logits and log-probabilities below are of masked positions
_ENCODER_SIZES = {
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
_TEXT = ("input_ids", "input_mask", "segment_ids")
_QA_TARGETS = ("start_positions", "end_positions", "is_impossible")

Shapes = Mapping[str, list[int]]


class TaggingAtWords(TaggingTask):
    """Tagging with a loss over words. In the authors' code a word without a token shares that of the next word, so that
    one token can have two labels."""

    def row_losses(self, batch, forward):
        return super().row_losses(batch, tf.gather(forward, batch["labeled_positions"], batch_dims=1))


class GoldenSet:
    """A golden set: its settings, batches and weights, and our model of it."""

    def __init__(self, directory: Path):
        self.directory, self.settings = directory, read_json(directory / "config.json")
        self.name = self.settings["task"]
        self.batches = self.arrays("batches.npz")
        self.kind = self._kind()
        reader = tf.train.load_checkpoint(str(directory / "init.ckpt"))
        self.weights = {name: reader.get_tensor(name) for name in self.settings["trainable_variables"]}

    def has(self, file: str) -> bool:
        return (self.directory / file).exists()

    def arrays(self, file: str) -> Arrays:
        return load_arrays(self.directory / file)

    def build(self, head: Shapes | None = None) -> FinetuningTask:
        """A compiled task. Args: head: shapes of the head's variables, if not those of the set."""
        encoder = {name: self.settings[theirs] for name, theirs in _ENCODER_SIZES.items()}
        is_qa, is_tagging = self.kind == "question_answering", self.kind == "tagging"
        shapes = head or {name: list(values.shape) for name, values in self.weights.items() if "task_spec" in name}
        shapes = {name.split("/", 2)[2]: shape for name, shape in shapes.items()}
        config = resolve(
            self._values(),
            str(self.directory / "config.json"),
            name=self.name,
            task=self._qa_settings(shapes) if is_qa else self._settings_of(shapes["dense/kernel"][1]),
            encoder=EncoderConfig(**encoder),
            init_from=None,
            num_epochs=1,
            max_seq_length=self.settings["max_seq_length"],
            num_rows=1,
        )
        task = (QuestionAnsweringTask if is_qa else TaggingAtWords if is_tagging else SentenceTask)(config)
        _create_variables(task, self.batch(0))
        return compile_task(task)

    def load(self, task: FinetuningTask, weights: Mapping[str, np.ndarray]) -> dict[str, tf.Variable]:
        """Gives a task these weights and a new optimizer state; returns its variables by the authors' names."""
        variables = finetuned_variables(task, self.name)
        if set(variables) != set(weights) or len(variables) != len(task.trainable_variables):
            raise AssertionError(f"variables differ: {sorted(set(variables) ^ set(weights))[:5]}")
        for name, variable in variables.items():
            variable.assign(weights[name])
        reset_optimizer(task.optimizer)
        return variables

    def batch(self, index: int) -> dict[str, tf.Tensor]:
        return self.batch_of({name: values[index] for name, values in self.batches.items()})

    def batch_of(self, arrays: Arrays) -> dict[str, tf.Tensor]:
        """A batch for the task from arrays of batches.npz' names, [B, ...]; without targets where these are missing."""
        batch = {name: arrays[name] for name in _TEXT}
        num_rows = len(batch["input_ids"])
        batch["row_weights"] = np.float32(arrays.get("task_id", np.zeros(num_rows)) == 0)
        batch["row_index"] = np.arange(num_rows, dtype=np.int32)
        names = {
            "classification": {"label_ids": "label_ids"},
            "regression": {"targets": "targets"},
            "tagging": {
                "label_ids": "labels",
                "label_weights": "labels_mask",
                "labeled_positions": "labeled_positions",
            },
            "question_answering": {name: name for name in _QA_TARGETS},
        }[self.kind]
        for ours, theirs in names.items():
            if f"{self.name}_{theirs}" in arrays:
                batch[ours] = arrays[f"{self.name}_{theirs}"]
        return {name: tf.constant(values) for name, values in batch.items()}

    def _kind(self) -> str:
        kinds = {"start_positions": "question_answering", "labels_mask": "tagging", "targets": "regression"}
        found = [kind for target, kind in kinds.items() if f"{self.name}_{target}" in self.batches]
        return found[0] if found else "classification"

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
            "encoder": {name: self.settings[_ENCODER_SIZES[name]] for name in ("hidden_dropout", "attention_dropout")},
            "train": {"num_steps": settings["num_train_steps"], "batch_size": settings["batch_size"]},
        }

    def _settings_of(self, num_outputs: int) -> dict:
        labels = [] if self.kind == "regression" else [f"{number}" for number in range(num_outputs)]
        return {"kind": self.kind, "labels": labels, "dropout": 0.0}

    def _qa_settings(self, head: Shapes) -> dict:
        """From the shapes of the head's variables, named as in the authors' code without the scope."""
        hidden = [head[name][1] for name in ("qa_hidden/kernel", "dense_2/kernel") if name in head]
        return {
            "kind": "question_answering",
            "version_2": False,  # is nothing to the model
            "joint_prediction": "qa_hidden/kernel" in head,
            "answerable_classifier": "dense_2/kernel" in head,
            "answerable_uses_start_logits": "dense_3/kernel" in head,
            "answerable_loss_weight": self.settings["answerable_weight"],
            "beam_size": self.settings["beam_size"],
            **({"head_size": hidden[0]} if hidden else {}),
        }


def _create_variables(task: FinetuningTask, batch: dict[str, tf.Tensor]) -> None:
    task.empty_batch = lambda: batch
    task.create_variables()


def forward_tensors(task: FinetuningTask, batch: dict[str, tf.Tensor]) -> dict[str, np.ndarray]:
    """What forward.npz has of a batch, and what it has no targets for left out. Rows that fill it up are left out."""
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


def forward_differences(golden: GoldenSet, task: FinetuningTask) -> tuple[dict[str, float], dict[str, float]]:
    """Of batch 0: the differences in tensors, and in logits of masked positions."""
    batch, expected = golden.batch(0), golden.arrays("forward.npz")
    ours, real = forward_tensors(task, batch), batch["row_weights"].numpy() > 0
    terms = task.training_terms(batch, INFERENCE)
    of_total = relative_above_1(float(terms[golden.kind].value), float(expected.pop("total_loss")))
    rows = {name: expected[name].reshape(len(real), *ours[name].shape[1:])[real] for name in ours}
    found, masked = compare_tensors(ours, rows)
    return {**found, "total_loss": of_total}, masked


def compare_tensors(ours: Arrays, expected: Arrays) -> tuple[dict[str, float], dict[str, float]]:
    """The largest difference in each tensor, of losses relative to the larger of 1 and the loss; those of masked logits
    apart."""
    found, masked = {}, {}
    for name, values in ours.items():
        if name == "loss":
            found[name] = relative_above_1(values, expected[name])
            continue
        difference = np.abs(values.astype(np.float64) - expected[name])
        is_masked = expected[name] < MASKED
        found[name] = largest(difference[~is_masked])
        if is_masked.any():
            masked[name] = largest(difference[is_masked])
    return found, masked


def relative_above_1(ours, expected) -> float:
    expected = np.asarray(expected, np.float64)
    return largest(np.abs(np.asarray(ours, np.float64) - expected) / np.maximum(1.0, np.abs(expected)))


def largest(values: np.ndarray) -> float:
    return float(np.max(values, initial=0.0))
