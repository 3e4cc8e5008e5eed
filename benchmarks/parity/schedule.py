"""Compares learning rates and numbers of steps with those in files of the authors' code."""

from pathlib import Path

import tensorflow as tf

from benchmarks.parity.golden import Differences, read_json
from electra_tf.config.networks import EncoderConfig
from electra_tf.tasks.finetune.benchmarks import BENCHMARKS
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.finetune.sentence import SentenceTask
from electra_tf.train.optimizer import build_optimizer
from electra_tf.weights.names import finetuned_variables

_TASKS = {"sst": "sst2", "sts": "stsb", "squad": "squad_v2", "squadv1": "squad_v1"}  # the authors' names
_TINY = {"vocab_size": 7, "embedding_size": 2, "hidden_size": 4, "num_heads": 1, "intermediate_size": 3}


def rate_differences(file: Path) -> Differences:
    """For each case of lr_schedule.json, the largest difference in a learning rate, relative to the peak."""
    differences = {}
    for number, case in enumerate(read_json(file)):
        decay = case["layerwise_lr_decay"]
        optimizer = {
            "learning_rate": case["learning_rate"],
            "layerwise_decay": decay if decay > 0 else 1.0,
            "warmup_fraction": case["warmup_proportion"],
        }
        config = _config(case["n_layers"], {"optimizer": optimizer, "train": {"num_steps": case["num_train_steps"]}})
        schedule = build_optimizer(config.optimizer, config.train.num_steps).schedule
        multipliers, largest = _multipliers(config), 0.0
        for step, rates in case["lr_by_step_and_key"].items():
            rate = float(schedule(tf.constant(int(step), tf.int64)))
            for key, expected in rates.items():
                of_key = {value for name, value in multipliers.items() if key in name or key == "all"}
                largest = max(largest, *(abs(rate * multiplier - expected) for multiplier in of_key))
        differences[f"case_{number}"] = largest / case["learning_rate"]
    return differences


def multiplier_differences(file: Path) -> Differences:
    """Compares learning-rate multipliers with layerwise_lr.json: those of an encoder's variables, and of 24 layers."""
    golden = read_json(file)
    ours = _multipliers(_config(golden["n_transformer_layers"], {"optimizer": {"layerwise_decay": golden["decay"]}}))
    theirs = {name: row["multiplier"] for name, row in golden["shared_variables"].items() if name in ours}
    missing = {name for name in ours if not name.startswith("task_specific/")} - set(theirs)
    of_24 = _multipliers(_config(24, {"optimizer": {"layerwise_decay": 0.9}}))
    expected = golden["keys_24_layers_decay_0_9"].items()
    return {
        "missing": float(len(missing)),
        "variables": max(abs(ours[name] - value) for name, value in theirs.items()),
        "24 layers": max(abs(of_24[name] - value) for key, value in expected for name in of_24 if key in name),
    }


def step_differences(file: Path) -> Differences:
    """Compares numbers of steps and of warm-up steps, and the tasks' default settings, with steps.json.

    The authors' rounding can give 0 steps, where ours gives 1. Their default learning rate and weight decay are not
    compared, because they differ from the paper's.
    """
    table = read_json(file)
    differences = {"num_steps": 0.0, "warmup_steps": 0.0, "epochs_and_lengths": 0.0}
    for row in table["table"]:
        train = {"batch_size": row["batch_size"], "num_epochs": row["epochs"]}
        config = _config(1, {"train": train}, num_rows=row["n_features"])
        num_steps = row["num_train_steps"]
        differences["num_steps"] += config.train.num_steps != max(1, num_steps)
        if num_steps:
            difference = abs(config.optimizer.warmups([config.train.num_steps])[0] - row["warmup_steps"])
            differences["warmup_steps"] = max(differences["warmup_steps"], difference)
    config = _config(1, {})
    for name, row in table["defaults_small_single_task"].items():
        if task := BENCHMARKS.get(_TASKS.get(name, name)):
            ours = (task.num_epochs, task.max_seq_length, config.train.batch_size, config.optimizer.warmup_fraction)
            theirs = ("num_train_epochs", "max_seq_length", "train_batch_size", "warmup_proportion")
            differences["epochs_and_lengths"] += ours != tuple(row[name] for name in theirs)
    return differences


def _config(num_layers: int, values: dict, num_rows: int = 1) -> FinetuningConfig:
    """The configuration of a tiny classifier."""
    encoder = EncoderConfig(**_TINY, num_layers=num_layers, max_position_embeddings=8)
    task = {"kind": "classification", "labels": ["0", "1"]}
    defaults = {"num_epochs": 1, "max_seq_length": 8, "num_rows": num_rows, "init_from": None}
    return resolve(values, "the golden set", name="tiny", task=task, encoder=encoder, **defaults)


def _multipliers(config: FinetuningConfig) -> dict[str, float]:
    """The learning-rate multiplier of each variable, by the authors' names."""
    task = SentenceTask(config)
    task.create_variables()
    return {name: task.learning_rate_multiplier(v) for name, v in finetuned_variables(task, "tiny").items()}
