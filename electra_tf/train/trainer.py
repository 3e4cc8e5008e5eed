"""Training and evaluation loops on the device: many steps a call, under any strategy."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf.tasks.base import Evaluated, Task
from electra_tf.tasks.terms import Term
from electra_tf.train.metrics import MetricAccumulator, metric_accumulator
from electra_tf.train.step import evaluation_step, sum_over_replicas

BatchesFunction = Callable[[tf.distribute.InputContext], tf.data.Dataset]
MeanMetrics = dict[str, float]


class StopRequest:
    """A wish to end the run early, made on the host at any time and read on the device between two steps.

    The workers of a cluster must leave a loop after the same step, or those that stay would wait for the others for
    ever. So there each worker's wish is summed over all of them in every step, by the collectives of the gradients.

    Attributes:
        is_shared: whether several workers have to agree.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.is_shared = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        with tf.device("CPU:0"):  # where the host can write and the loop's condition can read without a device's queue
            self._wanted = tf.Variable(False, trainable=False, name="stop_request")

    def make(self) -> None:
        """Asks for the end. May be called from any thread, while the device is at work."""
        self._wanted.assign(True)

    def is_decided(self) -> bool:
        """Whether to end without another step: a stop was asked for, and nobody else has to agree."""
        return not self.is_shared and bool(self._wanted.numpy())

    def read(self) -> tf.Tensor:
        """Whether this worker wants to end. Scalar bool."""
        return self._wanted.read_value()

    def read_from_all_workers(self) -> tf.Tensor:
        """Whether any worker wants to end: the same answer for all. Scalar bool. Runs in a replica context."""
        return sum_over_replicas(tf.cast(self.read(), tf.float32)) > 0.0


class EarlyEnd(NamedTuple):
    """Why a loop on the device ended before its last step; both False if it did not."""

    stop_requested: bool
    nonfinite: bool


class Trainer:
    """Trains a task by its `train_step` under a strategy. Call `read` first.

    Args:
        task: compiled, built under the strategy's scope.
        metrics: where the metrics of the steps are added up.
        stop_request: looked at after every step.
    """

    def __init__(
        self, task: Task, strategy: tf.distribute.Strategy, metrics: MetricAccumulator, stop_request: StopRequest
    ):
        self._task = task
        self._strategy = strategy
        self._metrics = metrics
        self._stop_request = stop_request
        self._iterator = None
        self._train_steps_on_device = _traced_once(self._train_steps)

    def read(self, batches: BatchesFunction) -> None:
        """Begins to read: `batches` gives a pipeline's per-replica batches from the task's current step on."""
        self._iterator = iter(self._strategy.distribute_datasets_from_function(batches))

    def train(self, num_steps: int) -> EarlyEnd:
        """Trains for `num_steps`, or up to the step at which a stop was asked for.

        Steps that are not finite end the loop too. Where `train.on_nonfinite` is `stop` the first one does, and nothing
        has changed by it; where it is `skip`, the first one beyond `train.max_nonfinite_steps`.
        """
        stop, nonfinite = self._train_steps_on_device(self._iterator, tf.constant(num_steps))
        return EarlyEnd(bool(stop), bool(nonfinite))

    def _train_steps(self, iterator, num_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        _, stop, nonfinite = tf.while_loop(
            lambda done, stop, nonfinite: (done < num_steps) & ~(stop | nonfinite),
            lambda done, *_: (done + 1, *self._train_step(iterator.get_next())),
            (tf.constant(0), tf.constant(False), tf.constant(False)),
            parallel_iterations=1,
        )
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
        return self._metrics.add(self._task.train_step(batch))


class Evaluation(NamedTuple):
    """What one pass over a held-out split gives.

    Attributes:
        metrics: of the task's terms.        outputs: `Task.example_outputs` by name, for each batch [B, ...].
    """

    metrics: MeanMetrics
    outputs: dict[str, list[np.ndarray]]


class Evaluator:
    """Evaluates a task under a strategy, always on the same batches with the same masks and samples.

    Args:
        task: built under the strategy's scope.
        stop_request: looked at after every batch.
    """

    def __init__(self, task: Evaluated, strategy: tf.distribute.Strategy, stop_request: StopRequest):
        self._task = task
        self._strategy = strategy
        self._stop_request = stop_request
        self._evaluate_on_device = _traced_once(self._evaluate_batch)

    def evaluate(
        self, batches: BatchesFunction, num_batches: int, after_batch: Callable[[int], None] | None = None
    ) -> Evaluation | None:
        """Evaluates `num_batches` batches; None if a stop was asked for before the last of them.

        Args:
            batches: gives a pipeline's per-replica batches of one pass over the held-out split.
            after_batch: told how many batches are done.
        """
        iterator = iter(self._distributed(batches))
        totals: dict[str, Term] = {}
        outputs: dict[str, list[np.ndarray]] = {}
        for number in range(num_batches):
            stop, terms, outputs_of_batch = self._evaluate_on_device(iterator, tf.constant(number, tf.int64))
            if stop and number + 1 < num_batches:
                return None
            # Summed in double precision: a long evaluation counts more tokens than float32 can.
            terms = tf.nest.map_structure(lambda value: value.numpy().astype("float64"), terms)
            totals = tf.nest.map_structure(lambda a, b: a + b, totals, terms) if totals else terms
            for name, values in outputs_of_batch.items():
                outputs.setdefault(name, []).append(values.numpy())
            if after_batch is not None:
                after_batch(number + 1)
        return Evaluation({name: term.value() for name, term in totals.items()}, outputs)

    def _distributed(self, batches: BatchesFunction):
        """The batches for one device are read as they are.

        What tf.distribute puts around them is tuned, and an iterator that is tuned may not end before the tuner's next
        turn: 1.3, 2.5, 5.1, ... seconds after its begin (TensorFlow 2.20). An evaluation of a small set takes less.
        """
        if self._strategy.num_replicas_in_sync == 1:
            return batches(tf.distribute.InputContext())
        return self._strategy.distribute_datasets_from_function(batches)

    def _evaluate_batch(self, iterator, number: tf.Tensor):
        def evaluate(share):
            terms, outputs = evaluation_step(self._task, share, number)
            stop = self._stop_request.read_from_all_workers() if self._stop_request.is_shared else tf.constant(False)
            return stop, terms, outputs

        stop, terms, outputs = on_first_replica(self._strategy, evaluate, iterator.get_next())
        return stop if self._stop_request.is_shared else self._stop_request.read(), terms, outputs


class Loops:
    """The loops of a task and its phases, each traced once, for one run after another.

    Attributes:
        task: compiled, built under the strategy's scope.        metrics: where training adds its metrics up.
        stop_request: what all loops look at.
    """

    def __init__(self, task: Task, strategy: tf.distribute.Strategy):
        self.task, self.strategy = task, strategy
        with strategy.scope():
            self.metrics = metric_accumulator(task)
        self.stop_request = StopRequest(strategy)
        self._trainers: dict[Task, Trainer] = {}
        self._evaluators: dict[Evaluated, Evaluator] = {}

    def trainer(self, phase: Task) -> Trainer:
        """The trainer of a phase of the task."""
        if phase not in self._trainers:
            self._trainers[phase] = Trainer(phase, self.strategy, self.metrics, self.stop_request)
        return self._trainers[phase]

    def evaluator(self, model: Evaluated) -> Evaluator:
        """The evaluator of a phase of the task, or of what is made from one."""
        if model not in self._evaluators:
            self._evaluators[model] = Evaluator(model, self.strategy, self.stop_request)
        return self._evaluators[model]


def _traced_once(method: Callable) -> Callable:
    """A `tf.function` of a method.

    TensorFlow counts the traces of a method over all objects and warns from the fifth on, though each of several tasks
    is traced once; a partial it takes for a function of its own.
    """
    return tf.function(functools.partial(method), autograph=False)


def on_first_replica(strategy: tf.distribute.Strategy, step: Callable, batch):
    """Runs a step on every replica; its results are equal on all, so the first one's are returned."""
    results = strategy.run(step, args=(batch,))
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)
