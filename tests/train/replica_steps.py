"""One process of test_replicas.py: ten steps under one strategy, for each variant.

    python -m tests.train.replica_steps DIR STRATEGY NUM_DEVICES VARIANT...

The variant `electra:2:xla:bert` is an objective, micro-batches a step, compiler (`xla` or `tensorflow`) and encoder
block. Writes DIR/VARIANT.npz: the metrics of every step as `metrics/NAME` [steps], the last weights as `weights/NAME`.
"""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from electra_tf.data.masking import MaskingVocabulary, mask_batch
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, parse_config
from electra_tf.train.distribution import build_strategy, is_chief, split_cpu
from electra_tf.train.step import compile_task
from tests.toy import step_on_replicas

NUM_STEPS = 10
# Tokens of each row. The first of four replicas has seven times the last one's tokens; the last row is empty.
LENGTHS = (32, 32, 30, 32, 31, 20, 24, 13, 18, 12, 16, 9, 7, 5, 6, 0)
# Layers 0, 1 and 2 attend to all, near and near tokens. Rows are 8 times as long, so that near means in blocks of 64.
MODERN = {"block": "modern", "num_layers": 3, "max_position_embeddings": 256}


def train(strategy: tf.distribute.Strategy, variant: str) -> dict[str, np.ndarray]:
    """Trains ten steps. Returns: the metrics of each step and the last weights."""
    config = build_config(variant)
    keras.utils.set_random_seed(config.train.seed)
    with strategy.scope():
        objective = compile_task(build_objective(config))
    step = tf.function(objective.train_step)
    steps = [step_on_replicas(strategy, step, make_batch(config, number)) for number in range(NUM_STEPS)]
    arrays = {f"metrics/{name}": np.array([float(metrics[name]) for metrics in steps]) for name in steps[0]}
    variables = enumerate(objective.trainable_variables)
    return arrays | {f"weights/{index}/{variable.name}": variable.numpy() for index, variable in variables}


def build_config(variant: str) -> PretrainingConfig:
    """Two or three layers with dropout, float32, and a learning rate large enough to change the weights."""
    name, micro_batches, compiler, block = variant.split(":")
    objective = {"name": name}
    if name == "electra":
        objective["generator"] = {"size_fraction": 0.5, "num_heads": 2}
    encoder = MODERN if block == "modern" else {}
    sizes = {"vocab_size": 211, "embedding_size": 24, "hidden_size": 32, "num_layers": 2, "num_heads": 4}
    values = {
        "encoder": {**sizes, "intermediate_size": 48, "max_position_embeddings": 40, **encoder},
        "objective": objective,
        "data": {"max_seq_length": max(LENGTHS) * (8 if block == "modern" else 1)},
        "optimizer": {"learning_rate": 5e-4, "warmup_steps": 2},
        "train": {
            "num_steps": 100,
            "batch_size": len(LENGTHS),
            "gradient_accumulation_steps": int(micro_batches),
            "xla": compiler == "xla",
        },
    }
    return parse_config(values, source="test_replicas")


def make_batch(config: PretrainingConfig, number: int) -> dict[str, tf.Tensor]:
    """The global batch of a step: random words in rows of (a multiple of) `LENGTHS`, masked."""
    size, length = config.encoder.vocab_size, config.data.max_seq_length
    losses = np.linspace(1.0, 9.0, size, dtype=np.float32)
    special = MaskingVocabulary(cls_id=1, sep_id=2, mask_id=3, vocab_size=size, unigram_losses=losses)
    lengths = np.array(LENGTHS) * (length // max(LENGTHS))
    input_mask = (np.arange(length) < lengths[:, np.newaxis]).astype(np.int32)
    words = np.random.default_rng(number).integers(4, size, input_mask.shape).astype(np.int32)
    segment_ids = input_mask * (np.arange(length) > 8)
    batch = {"input_ids": words * input_mask, "input_mask": input_mask, "segment_ids": segment_ids}
    tensors = {name: tf.constant(rows, tf.int32) for name, rows in batch.items()}
    return mask_batch(tensors, config.masking, special, RandomStream(0, number, 0))


def main(directory: str, strategy_name: str, num_devices: str, *variants: str) -> None:
    tf.config.set_visible_devices([], "GPU")
    if int(num_devices) > 1:
        split_cpu(int(num_devices))
    strategy = build_strategy(strategy_name)
    for variant in variants:
        arrays = train(strategy, variant)
        if is_chief(strategy):
            np.savez(Path(directory) / f"{variant}.npz", **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
