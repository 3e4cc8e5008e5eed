"""The objective as Orbit's controller drives it: many steps a call on the device, one evaluation a call."""

from collections.abc import Callable

import orbit
import tensorflow as tf

from electra_tf.objectives.base import Objective
from electra_tf.objectives.terms import Term
from electra_tf.train.step import evaluation_step

BatchesFunction = Callable[[tf.distribute.InputContext], tf.data.Dataset]
MeanMetrics = dict[str, float]


class Pretrainer(orbit.AbstractTrainer, orbit.AbstractEvaluator):
    """Runs an objective's `train_step` and evaluation under a strategy.

    Args:
        objective: compiled, built under the strategy's scope.
        training_batches: gives a pipeline's per-replica batches from the objective's current step on; None if only
            evaluated.
        evaluation_batches: gives one pass over the held-out split; None where there is none.
    """

    def __init__(
        self,
        objective: Objective,
        strategy: tf.distribute.Strategy,
        training_batches: BatchesFunction | None,
        evaluation_batches: BatchesFunction | None,
    ):
        self._objective = objective
        self._strategy = strategy
        self._iterator = None
        if training_batches is not None:
            self._iterator = iter(strategy.distribute_datasets_from_function(training_batches))
        self._evaluation_batches = evaluation_batches
        self._train_steps_on_device = tf.function(self._train_steps)
        self._evaluate_on_device = tf.function(self._evaluate_batch)

    def train(self, num_steps: tf.Tensor) -> MeanMetrics:
        """Trains for `num_steps`; returns means over them, and the learning rate of the last."""
        assert self._iterator is not None, "no training batches were given"
        return {name: float(value) for name, value in self._train_steps_on_device(self._iterator, num_steps).items()}

    def evaluate(self, num_steps: tf.Tensor) -> MeanMetrics:
        """Evaluates `num_steps` batches of the held-out split, always the same ones with the same masks and samples."""
        assert self._evaluation_batches is not None, "no held-out batches were given"
        iterator = iter(self._strategy.distribute_datasets_from_function(self._evaluation_batches))
        totals: dict[str, Term] | None = None
        for step in range(int(num_steps)):
            terms = self._evaluate_on_device(next(iterator), tf.constant(step, tf.int64))
            # Summed in double precision: a long evaluation counts more tokens than float32 can.
            terms = tf.nest.map_structure(lambda value: value.numpy().astype("float64"), terms)
            totals = terms if totals is None else tf.nest.map_structure(lambda a, b: a + b, totals, terms)
        return {name: term.value() for name, term in (totals or {}).items()}

    def _train_steps(self, iterator, num_steps: tf.Tensor) -> dict[str, tf.Tensor]:
        names = ("loss", *self._objective.loss_weights, "gradient_norm")
        sums = {name: tf.constant(0.0) for name in names}
        learning_rate = tf.constant(0.0)
        for _ in tf.range(num_steps):
            metrics = self._on_first_replica(self._objective.train_step, next(iterator))
            sums = {name: sums[name] + metrics[name] for name in names}
            learning_rate = metrics["learning_rate"]
        means = {name: total / tf.cast(num_steps, tf.float32) for name, total in sums.items()}
        return {**means, "learning_rate": learning_rate}

    def _evaluate_batch(self, batch, step: tf.Tensor) -> dict[str, Term]:
        return self._on_first_replica(lambda share: evaluation_step(self._objective, share, step), batch)

    def _on_first_replica(self, step: Callable, batch):
        """Runs a step on every replica; its results are equal on all, so the first one's are returned."""
        results = self._strategy.run(step, args=(batch,))
        return tf.nest.map_structure(lambda value: self._strategy.experimental_local_results(value)[0], results)
