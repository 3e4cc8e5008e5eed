"""Training and evaluation loops on the device: many steps a call, under any strategy."""

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from electra_tf.tasks.base import Evaluated, Task
from electra_tf.tasks.terms import Term
from electra_tf.train.distribution import num_cores
from electra_tf.train.metrics import MetricAccumulator, metric_accumulator, metric_names
from electra_tf.train.step import evaluation_step, sum_over_replicas

BatchesFunction = Callable[[tf.distribute.InputContext], tf.data.Dataset]
MeanMetrics = dict[str, float]
# Whether a stop is requested; the terms; the outputs of each example.
_BatchResults = tuple[bool | tf.Tensor, dict[str, Term], dict[str, tf.Tensor]]
_SECONDS_WITHOUT_BAR = 10.0
_MAX_BATCHES_IN_FLIGHT = 4  # each needs the memory of a batch


class StopRequest:
    """A request to end the run early, made on the host at any time and read on the device between two steps.

    All workers of a cluster must leave a loop after the same step, because those that stay would wait for the others
    for ever. So each worker's request is summed over all of them in every step, like the gradients.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._is_shared = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        with tf.device("CPU:0"):  # the host writes it and the loop's condition reads it, without waiting for a device
            self._requested = tf.Variable(False, trainable=False, name="stop_request")

    def make(self) -> None:
        """Requests the end. May be called from any thread, while the device is at work."""
        self._requested.assign(True)

    @property
    def is_made(self) -> bool:
        """Whether the end is requested in this process."""
        return bool(self._requested)

    def read_on_replica(self) -> tf.Tensor:
        """True if any worker of a cluster requests the end. Scalar bool, the same on all replicas.

        Runs in a replica context. Always False outside a cluster, where `read` reads the request.
        """
        if not self._is_shared:
            return tf.constant(False)
        return sum_over_replicas(tf.cast(self._requested.read_value(), tf.float32)) > 0.0

    def read(self, of_workers: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
        """True if the run must end. Scalar bool. Runs outside the replica context.

        Args:
            of_workers: the result of `read_on_replica`.
            after: a tensor of the step; the request is read after it is computed.
        """
        if self._is_shared:
            return of_workers
        with tf.control_dependencies([after]):
            return self._requested.read_value()


class EarlyEnd(NamedTuple):
    """Why a loop on the device ended before its last step: scalars bool, both False if it did not.

    Attributes:
        metrics: of the last step that counts, or of the step that ended the run, by the names of `metric_names`.
    """

    stop_requested: tf.Tensor
    nonfinite: tf.Tensor
    metrics: dict[str, tf.Tensor]


class Trainer:
    """Trains a task by its `train_step` under a strategy.

    Args:
        task: compiled, built under the strategy's scope.
        metrics: sums the metrics of the steps.
        stop_request: read after every step.

    Attributes:
        reads_every_step: whether the host reads after each step whether it was finite.
    """

    def __init__(
        self, task: Task, strategy: tf.distribute.Strategy, metrics: MetricAccumulator, stop_request: StopRequest
    ):
        self._task = task
        self._strategy = strategy
        self._metrics = metrics
        self._stop_request = stop_request
        self.reads_every_step = "CPU" in strategy.extended.worker_devices[0]
        self.train = _traced_once(self._train)

    def read(self, batches: BatchesFunction):
        """An iterator over distributed batches. `batches` builds the per-replica pipeline, from the current step on."""
        return iter(_distributed(batches, self._strategy))

    def _train(self, iterator, num_steps: tf.Tensor) -> EarlyEnd:
        """Trains for `num_steps`, or up to the step at which a stop is requested. Call it as `train`.

        Steps that are not finite end the loop too: with `train.on_nonfinite: stop` the first one, which changes
        nothing; with `skip` the first one beyond `train.max_nonfinite_steps`. On an accelerator the loop goes on, and
        its further steps change nothing: to read in each step how it went, the host would wait for the device.

        Args:
            iterator: of `read`.        num_steps: scalar int32.
        """

        def train_one_step(done, end):
            results = self._strategy.run(self._train_on_replica, args=(iterator.get_next(), ~end.nonfinite))
            stop, nonfinite, metrics = first_replica(self._strategy, results)
            metrics = {name: tf.where(end.nonfinite, end.metrics[name], value) for name, value in metrics.items()}
            return done + 1, EarlyEnd(self._stop_request.read(stop, after=nonfinite), nonfinite, metrics)

        def goes_on(done, end):
            ends = end.stop_requested | end.nonfinite if self.reads_every_step else end.stop_requested
            return (done < num_steps) & ~ends

        no_metrics = {name: tf.zeros([]) for name in metric_names(self._task)}
        _, early_end = tf.while_loop(
            goes_on,
            train_one_step,
            (tf.constant(0), EarlyEnd(tf.constant(False), tf.constant(False), no_metrics)),
            parallel_iterations=1,
        )
        return early_end

    def _train_on_replica(self, batch, wanted: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        """One step. Returns: whether a worker requests the end, whether nonfinite steps end the run; its metrics."""
        metrics = self._task.train_step_if(wanted, batch)
        nonfinite = self._metrics.add(metrics, wanted)
        with tf.control_dependencies([nonfinite]):
            stop = self._stop_request.read_on_replica()
        return stop, nonfinite, {name: metrics[name] for name in metric_names(self._task)}


class Evaluation(NamedTuple):
    """The result of one pass over a held-out split.

    Attributes:
        metrics: the means of the task's terms.
        outputs: the results of `Task.example_outputs` by name, one array [B, ...] for each batch.
    """

    metrics: MeanMetrics
    outputs: dict[str, list[np.ndarray]]


class Evaluator:
    """Evaluates a task under a strategy, every time on the same batches with the same masks and samples.

    Args:
        task: built under the strategy's scope.
        stop_request: read after every batch.
    """

    def __init__(self, task: Evaluated, strategy: tf.distribute.Strategy, stop_request: StopRequest):
        self._task = task
        self._strategy = strategy
        self._stop_request = stop_request
        self._evaluate_on_device = _traced_once(self._evaluate_batch)
        self._evaluate_on_cpu = _traced_once(functools.partial(evaluation_step, task))
        is_one_device = isinstance(strategy, tf.distribute.OneDeviceStrategy)
        self._is_on_one_cpu = is_one_device and "CPU" in strategy.extended.worker_devices[0]

    def evaluate(self, batches: BatchesFunction, num_batches: int) -> Evaluation | None:
        """Evaluates `num_batches` batches; shows a progress bar if that takes longer than some seconds.

        Args:
            batches: builds the per-replica pipeline of one pass over the held-out split.
        Returns: None if a stop was requested before the last batch.
        """
        totals: dict[str, Term] = {}
        outputs: dict[str, list[np.ndarray]] = {}
        options = {"delay": _SECONDS_WITHOUT_BAR, "mininterval": _SECONDS_WITHOUT_BAR}
        # A terminal's line is cleared. In a file the bar ends its line, so that an error has a line of its own.
        options["leave"] = not sys.stderr.isatty()
        compute = self._in_flight if self._is_on_one_cpu else self._one_after_the_other
        numbers = tqdm(range(num_batches), desc="evaluation", unit="batch", **options)
        for number, (stop, terms, outputs_of_batch) in zip(numbers, compute(batches, num_batches), strict=True):
            if stop and number + 1 < num_batches:
                return None
            # Summed in double precision: a long evaluation counts more tokens than float32 can.
            terms = tf.nest.map_structure(lambda value: value.numpy().astype("float64"), terms)
            totals = tf.nest.map_structure(lambda a, b: a + b, totals, terms) if totals else terms
            for name, values in outputs_of_batch.items():
                outputs.setdefault(name, []).append(values.numpy())
        return Evaluation({name: term.value() for name, term in totals.items()}, outputs)

    def _in_flight(self, batches: BatchesFunction, num_batches: int) -> Iterator[_BatchResults]:
        """Yields the results of all batches, in order; threads compute as many at once as the CPU has cores.

        TensorFlow computes the products of a small batch, and much else, on one core.
        """
        dataset = batches(tf.distribute.InputContext()).take(num_batches)
        evaluate = self._evaluate_on_cpu.get_concrete_function(dataset.element_spec, tf.TensorSpec([], tf.int64))
        num_threads = min(num_cores(), _MAX_BATCHES_IN_FLIGHT)
        in_flight: deque[Future] = deque()
        with ThreadPoolExecutor(num_threads) as executor:
            for number, batch in enumerate(dataset):
                in_flight.append(executor.submit(evaluate, batch, tf.constant(number, tf.int64)))
                if len(in_flight) > num_threads:  # one waits, so that no thread does
                    yield self._stop_request.is_made, *in_flight.popleft().result()
            for future in in_flight:
                yield self._stop_request.is_made, *future.result()

    def _one_after_the_other(self, batches: BatchesFunction, num_batches: int) -> Iterator[_BatchResults]:
        iterator = iter(_distributed(batches, self._strategy))
        for number in range(num_batches):
            yield self._evaluate_on_device(iterator, tf.constant(number, tf.int64))

    def _evaluate_batch(self, iterator, number: tf.Tensor):
        def evaluate(share):
            terms, outputs = evaluation_step(self._task, share, number)
            return self._stop_request.read_on_replica(), terms, outputs

        results = self._strategy.run(evaluate, args=(iterator.get_next(),))
        stop, terms, outputs = first_replica(self._strategy, results)
        return self._stop_request.read(stop, after=stop), terms, outputs


def _distributed(batches: BatchesFunction, strategy: tf.distribute.Strategy):
    """The distributed batches; for one replica the pipeline as it is.

    tf.distribute adds buffers that TensorFlow tunes. Such an iterator ends only when the tuner wakes: 1.3, 2.5, 5.1 and
    so on seconds after its start, at last once a minute (TensorFlow 2.20). A run on one device does not wait for that.
    """
    if strategy.num_replicas_in_sync == 1:
        return batches(tf.distribute.InputContext())
    return strategy.distribute_datasets_from_function(batches)


class Loops:
    """The loops of a task and its phases, each traced once, for one run after another.

    Attributes:
        task: compiled, built under the strategy's scope.
        metrics: sums the metrics of the training steps.
        stop_request: read by all loops.
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
        """The evaluator of a phase of the task, or of a model made from one."""
        if model not in self._evaluators:
            self._evaluators[model] = Evaluator(model, self.strategy, self.stop_request)
        return self._evaluators[model]


def first_replica(strategy: tf.distribute.Strategy, results):
    """The first replica's results of `strategy.run`, for results that are equal on all replicas."""
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)


def _traced_once(method: Callable) -> Callable:
    """A `tf.function` of a method, without TensorFlow's warning of repeated tracing.

    TensorFlow counts the traces of a method for all objects together, although it is traced once for each. It counts
    each partial separately.
    """
    return tf.function(functools.partial(method), autograph=False)
