"""Our own training step, ready to run on synthetic batches; imports TensorFlow, so choose the environment before."""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf

from benchmarks.train_step_batches import BatchShape, synthetic_batch
from electra_tf.runs.checkpoint import seed_everything
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.train.step import compile_objective

SMALL = Path(__file__).resolve().parents[1] / "configs" / "pretrain" / "small.yaml"


def limit_threads(num_threads: int, inter_op_threads: int | None = None) -> None:
    """How many threads an operation, and how many operations, may take. Call it before anything runs on a device."""
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads or num_threads)


def batch_shape(config: PretrainingConfig) -> BatchShape:
    """The sizes of a batch of a configuration."""
    return BatchShape(
        config.train.batch_size,
        config.data.max_seq_length,
        config.max_predictions,
        config.encoder.vocab_size,
        config.masking.masked_fraction,
    )


class OurStep:
    """The step of `run_pretraining.py` under OneDeviceStrategy; batch k of seed k, a few of them in turn.

    Args:
        config: whose model, objective, optimizer and batch to use.
        num_batches: how many different batches there are.
    """

    def __init__(self, config: PretrainingConfig, num_batches: int = 4):
        self.config = config
        self._strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        seed_everything(config.train.seed)
        with self._strategy.scope():
            self.objective = compile_objective(build_objective(config))
        self._batches = [
            {name: tf.constant(values) for name, values in synthetic_batch(batch_shape(config), seed).items()}
            for seed in range(num_batches)
        ]
        self._num_steps_run = 0
        self._step = tf.function(lambda batch: self._strategy.run(self.objective.train_step, args=(batch,)))

    @classmethod
    def of_file(cls, path: str | Path, overrides: Sequence[str]) -> "OurStep":
        return cls(load_config(path, list(overrides)))

    def run(self) -> dict[str, float]:
        """One step on the next batch; returns when its update is done."""
        batch = self._batches[self._num_steps_run % len(self._batches)]
        self._num_steps_run += 1
        return {name: float(value) for name, value in self._step(batch).items()}

    def seconds_per_step(self, num_steps: int) -> float:
        """The median of so many steps."""
        seconds = []
        for _ in range(num_steps):
            start = time.perf_counter()
            self.run()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)


def matmul(precision: str, size: int) -> Callable[[], object]:
    """A product of two square matrices, as a function without arguments."""
    left, right = (tf.cast(tf.random.normal([size, size]), precision) for _ in range(2))
    multiply = tf.function(lambda: tf.linalg.matmul(left, right)[0, 0])
    return lambda: multiply().numpy()
