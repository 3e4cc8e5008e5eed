"""One process of `benchmarks.replicas`: ten steps under one strategy.

    python -m benchmarks.replicas.worker DIR --strategy=mirrored --devices=4 --variant=electra:2:xla ...

Writes DIR/VARIANT.npz: the metrics of every step as `metrics/NAME` [steps], the weights as `weights/NAME`. Everything
that this benchmark uses of electra_tf's training is imported here.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command

NUM_STEPS = 10
# Tokens of each row: the first of four replicas has seven times as many as the last, one of whose rows is empty.
LENGTHS = (32, 32, 30, 32, 31, 20, 24, 13, 18, 12, 16, 9, 7, 5, 6, 0)


class Variant(NamedTuple):
    """What is trained: `electra:2:xla` is that objective with 2 micro-batches a step, compiled by XLA."""

    objective: str
    accumulation: int
    xla: bool

    @classmethod
    def parse(cls, text: str) -> "Variant":
        objective, accumulation, compiler = text.split(":")
        return cls(objective, int(accumulation), compiler == "xla")

    def __str__(self) -> str:
        return f"{self.objective}:{self.accumulation}:{'xla' if self.xla else 'tensorflow'}"


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--strategy", default="one_device", metavar="NAME")
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="logical devices of the CPU")
    parser.add_argument("--variant", action="append", required=True, type=Variant.parse, dest="variants")
    arguments = parser.parse_args(argv)
    return run_command(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    import numpy as np
    import tensorflow as tf

    from electra_tf.train.distribution import build_strategy, is_chief, split_cpu

    tf.config.set_visible_devices([], "GPU")
    if arguments.devices > 1:
        split_cpu(arguments.devices)
    strategy = build_strategy(arguments.strategy)
    for variant in arguments.variants:
        metrics, weights = train(strategy, variant)
        if is_chief(strategy):
            columns = {f"metrics/{name}": np.array([step[name] for step in metrics]) for name in metrics[0]}
            columns |= {f"weights/{name}": value for name, value in weights.items()}
            np.savez(Path(arguments.directory) / f"{variant}.npz", **columns)


def train(strategy, variant: Variant) -> tuple[list[dict[str, float]], dict]:
    """Ten steps from the same start on the same batches. Returns: the metrics of each step; the weights by name."""
    import tensorflow as tf
    import tf_keras

    from electra_tf.tasks.pretrain import build_objective
    from electra_tf.train.step import compile_task

    config = build_config(variant)
    tf_keras.utils.set_random_seed(config.train.seed)
    with strategy.scope():
        objective = compile_task(build_objective(config))

    @tf.function
    def step(batch):
        results = strategy.run(objective.train_step, args=(batch,))
        return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)

    metrics = []
    for number in range(NUM_STEPS):
        results = step(_distribute(strategy, make_batch(config, number)))
        metrics.append({name: float(value) for name, value in results.items()})
    variables = objective.trainable_variables
    return metrics, {f"{index}/{variable.name}": variable.numpy() for index, variable in enumerate(variables)}


def build_config(variant: Variant):
    """Two layers with dropout, float32, and a learning rate large enough to change the weights."""
    from electra_tf.tasks.pretrain.config import parse_config

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
            "xla": variant.xla,
        },
    }
    return parse_config(values, source="benchmarks.replicas")


def make_batch(config, number: int) -> dict:
    """The global batch of a step: random words in rows of `LENGTHS`, masked."""
    import numpy as np
    import tensorflow as tf

    from electra_tf.data.masking import MaskingVocabulary, mask_batch
    from electra_tf.ops.random import RandomStream

    size = config.encoder.vocab_size
    losses = np.linspace(1.0, 9.0, size, dtype=np.float32)
    special = MaskingVocabulary(cls_id=1, sep_id=2, mask_id=3, vocab_size=size, unigram_losses=losses)
    input_mask = (np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, np.newaxis]).astype(np.int32)
    words = np.random.default_rng(number).integers(4, config.encoder.vocab_size, input_mask.shape).astype(np.int32)
    segment_ids = input_mask * (np.arange(max(LENGTHS)) > 8)
    batch = {"input_ids": words * input_mask, "input_mask": input_mask, "segment_ids": segment_ids}
    tensors = {name: tf.constant(rows, tf.int32) for name, rows in batch.items()}
    return mask_batch(tensors, config.masking, special, RandomStream(0, number, 0))


def _distribute(strategy, batch: dict):
    """Gives each replica its consecutive rows of the batch."""

    def share(context) -> dict:
        size = len(LENGTHS) // context.num_replicas_in_sync
        first = size * context.replica_id_in_sync_group
        return {name: rows[first : first + size] for name, rows in batch.items()}

    return strategy.experimental_distribute_values_from_function(share)


if __name__ == "__main__":
    sys.exit(main())
