"""One process of test_replicas.py: ten steps under one strategy, for each variant.

    python -m tests.train.replica_steps DIR STRATEGY NUM_DEVICES VARIANT...

Writes DIR/VARIANT.npz: the metrics of every step as `metrics/NAME` [steps], the weights as `weights/NAME`.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from electra_tf.data.masking import MaskingVocabulary, mask_batch
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, parse_config
from electra_tf.train.distribution import build_strategy, is_chief, split_cpu
from electra_tf.train.step import compile_task

NUM_STEPS = 10
# Tokens of each row: the first of four replicas has seven times as many as the last, one of whose rows is empty.
LENGTHS = (32, 32, 30, 32, 31, 20, 24, 13, 18, 12, 16, 9, 7, 5, 6, 0)


class Variant(NamedTuple):
    """A training: `electra:2:xla` is the objective electra with 2 micro-batches a step, compiled by XLA."""

    objective: str
    accumulation: int
    compiler: str

    @classmethod
    def parse(cls, text: str) -> "Variant":
        objective, accumulation, compiler = text.split(":")
        return cls(objective, int(accumulation), compiler)

    def __str__(self) -> str:
        return ":".join(map(str, self))


def train(strategy: tf.distribute.Strategy, variant: Variant) -> dict[str, np.ndarray]:
    """Trains ten steps. Returns: the metrics of each step and the last weights."""
    config = build_config(variant)
    tf_keras.utils.set_random_seed(config.train.seed)
    with strategy.scope():
        objective = compile_task(build_objective(config))

    @tf.function
    def step(batch):
        results = strategy.run(objective.train_step, args=(batch,))
        return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)

    steps = [step(_distribute(strategy, make_batch(config, number))) for number in range(NUM_STEPS)]
    arrays = {f"metrics/{name}": np.array([float(metrics[name]) for metrics in steps]) for name in steps[0]}
    variables = enumerate(objective.trainable_variables)
    return arrays | {f"weights/{index}/{variable.name}": variable.numpy() for index, variable in variables}


def build_config(variant: Variant) -> PretrainingConfig:
    """Two layers with dropout, float32, and a learning rate large enough to change the weights."""
    objective = {"name": variant.objective}
    if variant.objective == "electra":
        objective["generator"] = {"size_fraction": 0.5, "num_heads": 2}
    sizes = {"vocab_size": 211, "embedding_size": 24, "hidden_size": 32, "num_layers": 2, "num_heads": 4}
    values = {
        "encoder": {**sizes, "intermediate_size": 48, "max_position_embeddings": 40},
        "objective": objective,
        "data": {"max_seq_length": max(LENGTHS)},
        "optimizer": {"learning_rate": 5e-4, "warmup_steps": 2},
        "train": {
            "num_steps": 100,
            "batch_size": len(LENGTHS),
            "gradient_accumulation_steps": variant.accumulation,
            "xla": variant.compiler == "xla",
        },
    }
    return parse_config(values, source="test_replicas")


def make_batch(config: PretrainingConfig, number: int) -> dict[str, tf.Tensor]:
    """The global batch of a step: random words in rows of `LENGTHS`, masked."""
    size = config.encoder.vocab_size
    losses = np.linspace(1.0, 9.0, size, dtype=np.float32)
    special = MaskingVocabulary(cls_id=1, sep_id=2, mask_id=3, vocab_size=size, unigram_losses=losses)
    input_mask = (np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, np.newaxis]).astype(np.int32)
    words = np.random.default_rng(number).integers(4, size, input_mask.shape).astype(np.int32)
    segment_ids = input_mask * (np.arange(max(LENGTHS)) > 8)
    batch = {"input_ids": words * input_mask, "input_mask": input_mask, "segment_ids": segment_ids}
    tensors = {name: tf.constant(rows, tf.int32) for name, rows in batch.items()}
    return mask_batch(tensors, config.masking, special, RandomStream(0, number, 0))


def _distribute(strategy: tf.distribute.Strategy, batch: dict[str, tf.Tensor]):
    """Gives each replica its consecutive rows of the batch."""

    def share(context) -> dict[str, tf.Tensor]:
        size = len(LENGTHS) // context.num_replicas_in_sync
        first = size * context.replica_id_in_sync_group
        return {name: rows[first : first + size] for name, rows in batch.items()}

    return strategy.experimental_distribute_values_from_function(share)


def main(directory: str, strategy_name: str, num_devices: str, *variants: str) -> None:
    tf.config.set_visible_devices([], "GPU")
    if int(num_devices) > 1:
        split_cpu(int(num_devices))
    strategy = build_strategy(strategy_name)
    for variant in map(Variant.parse, variants):
        arrays = train(strategy, variant)
        if is_chief(strategy):
            np.savez(Path(directory) / f"{variant}.npz", **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
