"""Our training step on synthetic batches, and the sizes of networks and batches for the peers."""

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from benchmarks.train_step.batches import NUM_BATCHES, BatchShape, synthetic_batch
from benchmarks.train_step.worker import answer_steps
from benchmarks.worker import Commands
from electra_tf.config.errors import UserError
from electra_tf.config.schema import RunConfig
from electra_tf.models.layers import seed_initial_values
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.train.distribution import build_strategy, share_cores
from electra_tf.train.step import compile_task, parts_at_once
from electra_tf.weights.hugging_face.layouts import config_entries


def limit_threads(num_threads: int, config: RunConfig) -> None:
    """Hides GPUs, and sets threads as the commands do on `num_threads` cores. Call it before the first operation."""
    tf.config.set_visible_devices([], "GPU")
    share_cores(parts_at_once(config.train, config.rows_together))
    tf.config.threading.set_inter_op_parallelism_threads(num_threads)


def batch_shape(config: PretrainingConfig) -> BatchShape:
    """The sizes of a configuration's batches."""
    return BatchShape(
        config.train.batch_size,
        config.data.max_seq_length,
        config.masking.max_predictions(config.data.max_seq_length),
        config.encoder.vocab_size,
        config.masking.masked_fraction,
    )


def peer_sizes(config_file: str | Path, overrides: Sequence[str]) -> dict:
    """The `shape` of batches and, as entries of config.json, the `networks` of a configuration, for the peers.

    Raises: UserError: if the configuration is wrong, or its objective or its encoder's block is not ELECTRA's.
    """
    config = load_config(config_file, list(overrides))
    if (config.objective.name, config.encoder.block) != ("electra", "bert"):
        raise UserError(f"config {config_file}: the peers only have objective 'electra' with block 'bert'")
    generator = config.objective.generator.encoder(config.encoder)
    networks = {"discriminator": config_entries(config.encoder), "generator": config_entries(generator)}
    return {"shape": vars(batch_shape(config)), "networks": networks}


class OurStep:
    """The training step of `electra-tf pretrain` under OneDeviceStrategy. Batch k has seed k.

    Args:
        num_threads: of a CPU; None: as the command sets them, or a GPU if there is one.
    """

    def __init__(self, config_file: str | Path, overrides: Sequence[str], num_threads: int | None = None):
        config = load_config(config_file, list(overrides))
        if num_threads is not None:
            limit_threads(num_threads, config)
        strategy = build_strategy("one_device")
        seed_initial_values(config.train.seed)
        with strategy.scope():
            objective = compile_task(build_objective(config))
        self._batches = [
            {name: tf.constant(values) for name, values in synthetic_batch(batch_shape(config), seed).items()}
            for seed in range(NUM_BATCHES)
        ]
        self._num_steps_run = 0
        self._step = tf.function(lambda batch: strategy.run(objective.train_step, args=(batch,)), autograph=False)

    def run(self, num_steps: int = 1) -> dict[str, float]:
        """Runs steps on the next batches, and waits for the last. Returns: its losses, after the update."""
        for _ in range(num_steps):
            losses = self._step(self._batches[self._num_steps_run % NUM_BATCHES])
            self._num_steps_run += 1
        return {name: float(value) for name, value in losses.items()}


def answer_all(options: dict, commands: Commands) -> None:
    """Answers the commands of `benchmarks.train_step.worker`."""
    overrides = [*options["overrides"], *options["settings"]]
    answer_steps(commands, OurStep(options["config"], overrides, options["num_threads"]).run)
