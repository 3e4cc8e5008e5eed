"""The objective under a strategy: many training steps a call on the device, one evaluation a call."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from electra_tf.tasks.base import Objective
from electra_tf.tasks.terms import Term
from electra_tf.train.metrics import MetricAccumulator
from electra_tf.train.step import evaluation_step
from electra_tf.train.stop_request import StopRequest

BatchesFunction = Callable[[tf.distribute.InputContext], tf.data.Dataset]
MeanMetrics = dict[str, float]


class EarlyEnd(NamedTuple):
    """Why a loop on the device ended before its last step; both False if it did not."""

    stop_requested: bool
    nonfinite: bool


class Pretrainer:
    """Trains an objective by its `train_step` under a strategy.

    Args:
        objective: compiled, built under the strategy's scope.
        window: where the metrics of the steps are added up.
        stop_request: looked at after every step.
        batches: gives a pipeline's per-replica batches from the objective's current step on.
    """

    def __init__(
        self,
        objective: Objective,
        strategy: tf.distribute.Strategy,
        window: MetricAccumulator,
        stop_request: StopRequest,
        batches: BatchesFunction,
    ):
        self._objective = objective
        self._strategy = strategy
        self._window = window
        self._stop_request = stop_request
        self._iterator = iter(strategy.distribute_datasets_from_function(batches))
        self._train_steps_on_device = tf.function(self._train_steps)

    def train(self, num_steps: int) -> EarlyEnd:
        """Trains for `num_steps`, or up to the step at which a stop was asked for.

        Steps that are not finite end the loop too. Where `train.on_nonfinite` is `stop` the first one does, and nothing
        has changed by it; where it is `skip`, the first one beyond `train.max_nonfinite_steps`.
        """
        stop, nonfinite = self._train_steps_on_device(self._iterator, tf.constant(num_steps))
        return EarlyEnd(bool(stop), bool(nonfinite))

    def _train_steps(self, iterator, num_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        stop, nonfinite, done = tf.constant(False), tf.constant(False), tf.constant(0)
        while done < num_steps and not (stop or nonfinite):
            stop, nonfinite = self._train_step(next(iterator))
            done += 1
        return stop, nonfinite

    def _train_step(self, batch) -> tuple[tf.Tensor, tf.Tensor]:
        """One step on every replica: whether a stop is wanted, and whether it must be as steps are not finite."""
        if self._stop_request.is_shared:
            return on_first_replica(self._strategy, self._train_and_agree, batch)
        nonfinite = on_first_replica(self._strategy, self._train_on_replica, batch)
        with tf.control_dependencies([nonfinite]):  # the answer of now, not of a step ago
            return self._stop_request.read(), nonfinite

    def _train_and_agree(self, batch) -> tuple[tf.Tensor, tf.Tensor]:
        nonfinite = self._train_on_replica(batch)
        with tf.control_dependencies([nonfinite]):
            return self._stop_request.read_from_all_workers(), nonfinite

    def _train_on_replica(self, batch) -> tf.Tensor:
        return self._window.add(self._objective.train_step(batch))


class Evaluator:
    """Evaluates an objective under a strategy, always on the same batches with the same masks and samples.

    Args:
        objective: built under the strategy's scope.
        stop_request: looked at after every batch.
        batches: gives a pipeline's per-replica batches of one pass over the held-out split.
    """

    def __init__(
        self,
        objective: Objective,
        strategy: tf.distribute.Strategy,
        stop_request: StopRequest,
        batches: BatchesFunction,
    ):
        self._objective = objective
        self._strategy = strategy
        self._stop_request = stop_request
        self._batches = batches
        self._evaluate_on_device = tf.function(self._evaluate_batch)

    def evaluate(self, num_batches: int, after_batch: Callable[[int], None] | None = None) -> MeanMetrics | None:
        """The metrics over `num_batches` batches; None if a stop was asked for before the last of them.

        Args:
            after_batch: told how many batches are done.
        """
        iterator = iter(self._strategy.distribute_datasets_from_function(self._batches))
        totals: dict[str, Term] = {}
        for number in range(num_batches):
            stop, terms = self._evaluate_on_device(next(iterator), tf.constant(number, tf.int64))
            if stop and number + 1 < num_batches:
                return None
            # Summed in double precision: a long evaluation counts more tokens than float32 can.
            terms = tf.nest.map_structure(lambda value: value.numpy().astype("float64"), terms)
            totals = tf.nest.map_structure(lambda a, b: a + b, totals, terms) if totals else terms
            if after_batch is not None:
                after_batch(number + 1)
        return {name: term.value() for name, term in totals.items()}

    def _evaluate_batch(self, batch, number: tf.Tensor) -> tuple[tf.Tensor, dict[str, Term]]:
        def evaluate(share) -> tuple[tf.Tensor, dict[str, Term]]:
            terms = evaluation_step(self._objective, share, number)
            stop = self._stop_request.read_from_all_workers() if self._stop_request.is_shared else tf.constant(False)
            return stop, terms

        stop, terms = on_first_replica(self._strategy, evaluate, batch)
        return stop if self._stop_request.is_shared else self._stop_request.read(), terms


def on_first_replica(strategy: tf.distribute.Strategy, step: Callable, batch):
    """Runs a step on every replica; its results are equal on all, so the first one's are returned."""
    results = strategy.run(step, args=(batch,))
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)
