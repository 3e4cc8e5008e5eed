"""The peer: Hugging Face's Trainer with its defaults. Needs the packages of requirements-peers.txt.

DataCollatorWithPadding pads each batch to its longest row. Batches are in random order, and the optimizer is PyTorch's
fused AdamW. Training and evaluation have one batch size. A compiled model is compiled for batches of any shape, by its
own `compile`: with `TrainingArguments(torch_compile=True)`, evaluation during training would not be compiled.
"""

import tempfile

import numpy as np
import torch
from transformers import (
    DataCollatorWithPadding,
    ElectraForSequenceClassification,
    ElectraTokenizer,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.finetuning.examples import Examples, load
from benchmarks.train_step.pytorch import network_config
from benchmarks.worker import Commands

_WARM_UP_STEPS = 3
_NUM_EPOCHS = 100  # more than any benchmark trains


class _Turns(TrainerCallback):
    """Answers a command when its last training step ends, and lets the trainer continue with the next command."""

    def __init__(self, commands: Commands):
        self._commands = iter(commands)
        self._answer = commands.answer
        next(self._commands)  # `step`, which is answered after the first step
        self._steps_left, self._at_end = 1, dict
        self.trainer: Trainer | None = None

    def on_step_end(self, args, state, control, **_):
        self._steps_left -= 1
        if self._steps_left:
            return
        self._answer(**self._at_end())
        for name, *numbers in self._commands:
            if name == "train":
                (self._steps_left,), self._at_end = numbers, dict
                return
            if name == "warm_up":
                self._steps_left, self._at_end = _WARM_UP_STEPS, lambda: {"num_lengths": 1, **self._evaluate()}
                return
            self._answer(**self._evaluate())
        control.should_training_stop = True

    def _evaluate(self) -> dict:
        metrics = self.trainer.evaluate()
        return {"accuracy": metrics["eval_accuracy"], "loss": metrics["eval_loss"]}


def answer_all(options: dict, commands: Commands) -> None:
    """Answers the commands of `benchmarks.finetuning.worker`."""
    torch.set_num_threads(options["num_threads"])
    splits = load(options["config"])
    config = network_config(options["network"])
    config.num_labels = len(np.unique(splits["train"].label_ids))
    config.problem_type = "single_label_classification"  # the first step sets this, and would be compiled twice
    model = ElectraForSequenceClassification(config)
    if options["settings"]["compiled"]:
        model.compile(dynamic=True)
    evaluation_rows = _rows(splits["validation"])
    if options["settings"]["has_sorted_rows"]:
        evaluation_rows.sort(key=lambda row: len(row["input_ids"]))
    turns = _Turns(commands)
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            per_device_train_batch_size=options["batch_size"],
            per_device_eval_batch_size=options["batch_size"],
            num_train_epochs=_NUM_EPOCHS,
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = turns.trainer = Trainer(
            model,
            arguments,
            data_collator=DataCollatorWithPadding(ElectraTokenizer(vocab=options["vocab_file"])),
            train_dataset=_rows(splits["train"]),
            eval_dataset=evaluation_rows,
            compute_metrics=lambda each: {"accuracy": float((each.predictions.argmax(-1) == each.label_ids).mean())},
            callbacks=[turns],
        )
        trainer.train()


def _rows(examples: Examples) -> list[dict]:
    """The examples in the format of a Hugging Face tokenizer."""
    begins, ends = examples.row_splits[:-1], examples.row_splits[1:]
    return [
        {
            "input_ids": examples.input_ids[begin:end].tolist(),
            "token_type_ids": examples.segment_ids[begin:end].tolist(),
            "attention_mask": [1] * int(end - begin),
            "labels": int(label),
        }
        for begin, end, label in zip(begins, ends, examples.label_ids, strict=True)
    ]
