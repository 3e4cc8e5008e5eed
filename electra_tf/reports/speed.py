"""The training speed of a configuration: measured here on random batches, or read from a run's reports."""

import os
import statistics
import time

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.batch import PRETRAINING_BATCH
from electra_tf.flops.budget import RunCost, StepRange
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.train.run_directory import run_in
from electra_tf.train.step import compile_task


def measured_speed(config: PretrainingConfig, strategy: tf.distribute.Strategy, num_steps: int) -> float:
    """Times training steps on random tokens in memory, without padding.

    The steps are those of the longest `StepRange`. Reading data, reports, evaluations and checkpoints are not included.

    Args:
        num_steps: number of timed steps; two more run before them, to compile and to warm up.
    Returns: the median FLOP/s in matrix products of the model.
    """
    longest = max(RunCost(config).ranges, key=lambda steps: steps.num_steps)
    with strategy.scope():
        objective = compile_task(build_objective(config))
    phase = objective.phases[longest.phase]

    @tf.function
    def step(batch):
        losses = strategy.run(lambda share: phase.train_step(share)["loss"], args=(batch,))
        return strategy.experimental_local_results(losses)[0]

    batch = _batch(config, longest, strategy)
    seconds = []
    for _ in range(num_steps + 2):
        started = time.perf_counter()
        step(batch).numpy()  # waits for the device
        seconds.append(time.perf_counter() - started)
    return longest.step().hardware.products / statistics.median(seconds[2:])


def reported_speed(model_dir: str | os.PathLike) -> float:
    """Reads a run's speed from its reports. The first report does not count, because it includes the compilation.

    Returns: the median FLOP/s in matrix products of the model.
    Raises: UserError: there is no run, or it has fewer than two reports.
    """
    directory = run_in(model_dir)
    cost = RunCost(load_config(directory.config_file))
    reports = directory.reports("train")[1:]
    if not reports:
        raise UserError(f"{directory.metrics_file} has fewer than two reports; use --measure_speed instead")
    rates = []
    for report in reports:
        spent = cost.of_step(report["step"])
        rates.append(report["examples_per_second"] * spent.hardware.products / spent.examples)
    return statistics.median(rates)


def _batch(config: PretrainingConfig, steps: StepRange, strategy: tf.distribute.Strategy):
    """A distributed batch of random tokens, without padding and without empty slots for masked positions."""
    batch_size = steps.batch_size // strategy.num_replicas_in_sync
    specs = PRETRAINING_BATCH.specs(batch_size, S=steps.seq_length, M=steps.max_predictions)
    random = tf.random.Generator.from_seed(0)
    limits = {"input_mask": (1, 2), "segment_ids": (0, 2), "masked_lm_positions": (0, steps.seq_length)}
    batch = {
        name: tf.ones(spec.shape, spec.dtype)
        if spec.dtype.is_floating
        else random.uniform(spec.shape, *limits.get(name, (0, config.encoder.vocab_size)), dtype=spec.dtype)
        for name, spec in specs.items()
    }
    return strategy.experimental_distribute_values_from_function(lambda context: batch)
