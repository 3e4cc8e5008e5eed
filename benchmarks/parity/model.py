"""Our model of a golden set of fine-tuning, and its batches."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.parity.golden import Arrays, GoldenSet, require_same_names
from electra_tf.config.networks import EncoderConfig
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.kinds.question_answering import SpanLogits
from electra_tf.tasks.finetune.kinds.tagging import TaggingTask
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.train.optimizer import reset_optimizer
from electra_tf.train.step import compile_task
from electra_tf.weights.names import finetuned_variables

# Our names of targets and the authors', by the kind of task.
_TARGETS = {
    "question_answering": {name: name for name in ("start_positions", "end_positions", "is_impossible")},
    "tagging": {"label_ids": "labels", "label_weights": "labels_mask", "labeled_positions": "labeled_positions"},
    "regression": {"targets": "targets"},
    "classification": {"label_ids": "label_ids"},
}

Batch = dict[str, tf.Tensor]


class TaggingAtWords(TaggingTask):
    """Tagging with a loss over words.

    In the authors' code a word without tokens uses a token of the next word, so one token can have two labels.
    """

    def row_losses(self, batch, forward):
        return super().row_losses(batch, tf.gather(forward, batch["labeled_positions"], batch_dims=1))


class FinetuningSet(GoldenSet):
    """A golden set of fine-tuning, with our compiled task and its variables by the authors' names."""

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.name, self.batches = self.settings["task"], self.arrays("batches.npz")
        targets = ((kind, f"{self.name}_{next(iter(names.values()))}") for kind, names in _TARGETS.items())
        self.kind = next(kind for kind, target in targets if target in self.batches)
        reader = tf.train.load_checkpoint(str(directory / "init.ckpt"))
        self._weights = {name: reader.get_tensor(name) for name in self.settings["trainable_variables"]}
        self.task = self._build()
        self.variables = finetuned_variables(self.task, self.name)
        require_same_names(self._weights, self.variables, "variables")
        assert len(self.variables) == len(self.task.trainable_variables)
        self.reset()

    def reset(self) -> None:
        """Sets the initial weights and resets the optimizer."""
        for name, variable in self.variables.items():
            variable.assign(self._weights[name])
        reset_optimizer(self.task.optimizer)

    def by_name(self, values: list[tf.Tensor]) -> Arrays:
        """Values for each of the task's trained variables, by the authors' names."""
        by_variable = dict(zip(map(id, self.task.trained_variables), values, strict=True))
        return {name: by_variable[id(variable)].numpy() for name, variable in self.variables.items()}

    def batch(self, index: int) -> Batch:
        return self.batch_of({name: values[index] for name, values in self.batches.items()})

    def batch_of(self, arrays: Arrays) -> Batch:
        """A batch for the task from arrays [B, ...] with the names of batches.npz. Targets may be missing."""
        batch = {name: arrays[name] for name in ("input_ids", "input_mask", "segment_ids")}
        num_rows = len(batch["input_ids"])
        batch["row_weights"] = np.float32(arrays.get("task_id", np.zeros(num_rows)) == 0)
        batch["row_index"] = np.arange(num_rows, dtype=np.int32)
        for ours, theirs in _TARGETS[self.kind].items():
            if f"{self.name}_{theirs}" in arrays:
                batch[ours] = arrays[f"{self.name}_{theirs}"]
        return {name: tf.constant(values) for name, values in batch.items()}

    def dev_batch(self, eids: np.ndarray, targets: Arrays) -> Batch:
        """The dev examples `eids` of features.jsonl.xz as one batch. `targets` have the names of batches.npz."""
        by_eid = {line["eid"]: line for line in self.features("dev")}
        lines = [by_eid[eid] for eid in eids.tolist()]
        length = self.settings["max_seq_length"]

        def padded(rows) -> np.ndarray:
            return np.stack([np.pad(np.int32(row)[:length], (0, length - len(row[:length]))) for row in rows])

        arrays = {name: padded([line[name] for line in lines]) for name in ("input_ids", "segment_ids")}
        arrays["input_mask"] = padded([[1] * line["num_tokens"] for line in lines])
        if self.kind == "tagging":
            targets = {**targets, "labeled_positions": padded([line["labeled_positions"] for line in lines])}
        return self.batch_of(arrays | {f"{self.name}_{name}": values for name, values in targets.items()})

    def _build(self) -> FinetuningTask:
        settings, decay = self.settings, self.settings["layerwise_lr_decay"]
        values = {
            "optimizer": {
                "layerwise_decay": decay if decay > 0 else 1.0,
                "warmup_fraction": settings["warmup_proportion"],
                "weight_decay_rate": settings["weight_decay_rate"],
                "clip_norm": settings["clip_global_norm"],
                **self.optimizer_settings,
            },
            "encoder": {
                "hidden_dropout": settings["hidden_dropout_prob"],
                "attention_dropout": settings["attention_probs_dropout_prob"],
            },
            "train": {"num_steps": settings["num_train_steps"], "batch_size": settings["batch_size"]},
        }
        config = resolve(
            values,
            str(self.directory / "config.json"),
            name=self.name,
            task=self._task_settings(),
            encoder=EncoderConfig(**self.encoder_settings),
            init_from=None,
            num_epochs=1,
            max_seq_length=settings["max_seq_length"],
            num_rows=1,
        )
        task = (TaggingAtWords if self.kind == "tagging" else KINDS[self.kind].model)(config)
        task.empty_batch = lambda: self.batch(0)
        task.create_variables()
        return compile_task(task)

    def _task_settings(self) -> dict:
        """The settings that follow from the head's variables: task_specific/TASK/NAME in the authors' code."""
        head = {name.split("/", 2)[2]: values for name, values in self._weights.items() if "task_spec" in name}
        if self.kind != "question_answering":
            num_labels = 0 if self.kind == "regression" else head["dense/kernel"].shape[1]
            return {"kind": self.kind, "labels": [f"{index}" for index in range(num_labels)], "dropout": 0.0}
        hidden = [head[name].shape[1] for name in ("qa_hidden/kernel", "dense_2/kernel") if name in head]
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


def forward_tensors(task: FinetuningTask, batch: Batch) -> Arrays:
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
