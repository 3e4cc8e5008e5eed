"""The loop of training and evaluation on the device: many steps a call, under any strategy."""

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeAlias, TypeVar

import numpy.typing as npt
import tensorflow as tf
from tqdm.auto import tqdm

from electra_tf.data.batch import Batch
from electra_tf.tasks.base import Evaluated, Evaluation, Stage, Task
from electra_tf.tasks.terms import Term, scaled
from electra_tf.train.distribution import BATCHES_IN_FLIGHT, num_cores
from electra_tf.train.metrics import MetricAccumulator, metric_names
from electra_tf.train.step import NestT, evaluation_step, sum_over_replicas, training_step

EvaluatedT = TypeVar("EvaluatedT", bound=Evaluated)
BatchesFunction = Callable[[tf.distribute.InputContext], tf.data.Dataset]
BatchIterator: TypeAlias = tf.data.Iterator | tf.distribute.DistributedIterator
_Steps = tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]  # the result of `DeviceLoop.train`
_Results = tuple[dict[str, Term], dict[str, tf.Tensor]]  # the terms; the outputs of each example
_BatchResults = tuple[tf.Tensor, dict[str, Term], dict[str, tf.Tensor]]  # with whether a stop is requested
_SECONDS_WITHOUT_BAR = 10.0


class DeviceLoop(Generic[EvaluatedT]):
    """Trains and evaluates a task and its phases under a strategy. Each is traced once, for one run after another.

    A stop may be requested at any time. All workers of a cluster must leave a loop after the same step, because those
    that stay would wait for the others for ever. So each worker's request is summed over all of them in every step,
    like the gradients.

    Args:
        task: built under the strategy's scope, and compiled if it is to be trained.

    Attributes:
        reads_every_step: whether the host reads after each step whether it was finite.
    """

    def __init__(self, task: EvaluatedT, strategy: tf.distribute.Strategy):
        self.task, self.strategy = task, strategy
        self.reads_every_step = "CPU" in strategy.extended.worker_devices[0]
        self._is_cluster = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        with tf.device("CPU:0"):  # the host writes it and the loop's condition reads it, without waiting for a device
            self._stop = tf.Variable(False, trainable=False, name="stop_request")
        # TensorFlow counts the traces of a method for all objects together, and warns of many, although it is traced
        # once for each. It counts each partial separately.
        self._function = functools.cache(
            lambda method, phase: tf.function(functools.partial(method, phase), autograph=False)
        )

    @functools.cached_property
    def metrics(self: "DeviceLoop[Task]") -> MetricAccumulator:
        """Sums the metrics of the training steps of all phases."""
        names = dict.fromkeys(name for phase in self.task.phases() for name in metric_names(phase))  # unique, in order
        train = self.task.config.train
        with self.strategy.scope():
            return MetricAccumulator(tuple(names), train.max_nonfinite_steps if train.on_nonfinite == "skip" else None)

    def request_stop(self) -> None:
        """Ends the loop after its next step or batch. May be called from any thread, while the device is at work."""
        self._stop.assign(True)

    def read(self, batches: BatchesFunction) -> BatchIterator:
        """An iterator over distributed batches. `batches` builds the per-replica pipeline.

        For one replica it is the pipeline as it is. tf.distribute adds buffers that TensorFlow tunes. Such an iterator
        ends only when the tuner wakes: 1.3, 2.5, 5.1 and so on seconds after its start, at last once a minute
        (TensorFlow 2.20). A run on one device does not wait for that.
        """
        if self.strategy.num_replicas_in_sync == 1:
            return iter(batches(tf.distribute.InputContext()))
        return iter(self.strategy.distribute_datasets_from_function(batches))

    def train(self: "DeviceLoop[Task]", phase: Task, batches: BatchIterator, num_steps: int) -> _Steps:
        """Trains for `num_steps`, or up to the step at which a stop is requested.

        Steps that are not finite end the loop too: with `train.on_nonfinite: stop` the first one, which changes
        nothing; with `skip` the first one beyond `train.max_nonfinite_steps`. On an accelerator the loop goes on, and
        its further steps change nothing: to read in each step how it went, the host would wait for the device.

        Args:
            phase: one of the task's phases.        batches: an iterator of `read`.
        Returns: whether a stop is requested, and whether steps that are not finite end the run, scalars bool; the
            metrics of the last step that counts, or of the step that ends the run, by the names of `metric_names`.
        """
        self.metrics  # noqa: B018  created on first access, which must not be in a graph
        return self._function(self._train, phase)(batches, tf.constant(num_steps))

    def evaluate(self, stage: Stage, task: Evaluated | None = None) -> Evaluation | None:
        """One pass over a stage's held-out split; shows a progress bar if that takes longer than some seconds.

        Every evaluation has the same batches with the same masks and samples. Of a mixture the means of each source
        are reported too, as `SOURCE/METRIC`.

        Args: task: another use of the task's networks; None: the loop's task.
        Returns: None if a stop was requested before the last batch.
        """
        num_batches = stage.num_evaluation_batches
        source_of = [source for source in stage.sources for _ in range(source.num_evaluation_batches)]
        sums: dict[Stage, dict[str, Term]] = {}
        outputs: dict[str, list[npt.NDArray[Any]]] = {}
        options = {"delay": _SECONDS_WITHOUT_BAR, "mininterval": _SECONDS_WITHOUT_BAR}
        # A terminal's line is cleared. In a file the bar ends its line, so that an error has a line of its own.
        options["leave"] = not sys.stderr.isatty()
        is_one_device = isinstance(self.strategy, tf.distribute.OneDeviceStrategy)
        compute = self._in_flight if is_one_device and self.reads_every_step else self._one_after_the_other
        results = compute(task or self.task, stage.evaluation_batches, num_batches)
        numbers = tqdm(range(num_batches), desc="evaluation", unit="batch", **options)
        for number, (stop, terms, outputs_of_batch) in zip(numbers, results, strict=True):
            if stop and number + 1 < num_batches:
                return None
            # Summed in double precision: a long evaluation counts more tokens than float32 can.
            terms = tf.nest.map_structure(lambda value: value.numpy().astype("float64"), terms)
            source = source_of[number]
            sums[source] = _added(sums[source], terms) if source in sums else terms
            for name, values in outputs_of_batch.items():
                outputs.setdefault(name, []).append(values.numpy())
        return Evaluation(_means(sums), outputs)

    def _train(self: "DeviceLoop[Task]", phase: Task, iterator: BatchIterator, num_steps: tf.Tensor) -> _Steps:
        def train_on_replica(batch: Batch, apply_update: tf.Tensor) -> _Steps:
            metrics = training_step(phase, batch, apply_update=apply_update)
            nonfinite = self.metrics.add(metrics, apply_update)
            return self._stop_on_replica(nonfinite), nonfinite, {name: metrics[name] for name in metric_names(phase)}

        def train_one_step(done: tf.Tensor, before: _Steps) -> tuple[tf.Tensor, _Steps]:
            _, has_ended, metrics_before = before
            results = self.strategy.run(train_on_replica, args=(iterator.get_next(), ~has_ended))
            stop, nonfinite, metrics = first_replica(self.strategy, results)
            metrics = {name: tf.where(has_ended, metrics_before[name], value) for name, value in metrics.items()}
            return done + 1, (self._read_stop(stop, after=nonfinite), nonfinite, metrics)

        def goes_on(done: tf.Tensor, steps: _Steps) -> tf.Tensor:
            stop, nonfinite, _ = steps
            return (done < num_steps) & ~(stop | nonfinite if self.reads_every_step else stop)

        no_steps = tf.constant(False), tf.constant(False), {name: tf.zeros([]) for name in metric_names(phase)}
        return tf.while_loop(goes_on, train_one_step, (tf.constant(0), no_steps), parallel_iterations=1)[1]

    def _in_flight(self, phase: Evaluated, batches: BatchesFunction, num_batches: int) -> Iterator[_BatchResults]:
        """Yields the results of all batches, in order; threads compute as many at once as the CPU has cores.

        TensorFlow computes the products of a small batch, and much else, on one core.
        """
        dataset = batches(tf.distribute.InputContext()).take(num_batches)
        function = self._function(evaluation_step, phase)
        evaluate = function.get_concrete_function(dataset.element_spec, tf.TensorSpec([], tf.int64))
        num_threads = min(num_cores(), BATCHES_IN_FLIGHT)
        in_flight: deque[Future[_Results]] = deque()
        with ThreadPoolExecutor(num_threads) as executor:
            for number, batch in enumerate(dataset):
                in_flight.append(executor.submit(evaluate, batch, tf.constant(number, tf.int64)))
                if len(in_flight) > num_threads:  # one waits, so that no thread does
                    yield bool(self._stop), *in_flight.popleft().result()
            for future in in_flight:
                yield bool(self._stop), *future.result()

    def _one_after_the_other(
        self, phase: Evaluated, batches: BatchesFunction, num_batches: int
    ) -> Iterator[_BatchResults]:
        evaluate, iterator = self._function(self._evaluate_batch, phase), self.read(batches)
        for number in range(num_batches):
            yield evaluate(iterator, tf.constant(number, tf.int64))

    def _evaluate_batch(self, phase: Evaluated, iterator: BatchIterator, number: tf.Tensor) -> _BatchResults:
        def evaluate(share: Batch) -> _BatchResults:
            terms, outputs = evaluation_step(phase, share, number)
            return self._stop_on_replica(), terms, outputs

        results = self.strategy.run(evaluate, args=(iterator.get_next(),))
        stop, terms, outputs = first_replica(self.strategy, results)
        return self._read_stop(stop, after=stop), terms, outputs

    def _stop_on_replica(self, after: tf.Tensor | None = None) -> tf.Tensor:
        """True if any worker of a cluster requests a stop; False outside a cluster. In a replica context."""
        with tf.control_dependencies([] if after is None else [after]):
            if not self._is_cluster:
                return tf.constant(False)
            return sum_over_replicas(tf.cast(self._stop.read_value(), tf.float32)) > 0.0

    def _read_stop(self, of_workers: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
        """True if the loop must end: as a worker requests, or as this process does, read when `after` is computed."""
        if self._is_cluster:
            return of_workers
        with tf.control_dependencies([after]):
            return self._stop.read_value()


def _added(*sums: dict[str, Term]) -> dict[str, Term]:
    return tf.nest.map_structure(lambda *values: sum(values), *sums)


def _means(sums: Mapping[Stage, dict[str, Term]]) -> dict[str, float]:
    """The means over all sources, in which each counts by its share, and those of each source of a mixture."""
    weights = [1.0] if len(sums) == 1 else [source.share / source.num_evaluation_examples for source in sums]
    weighted = [
        {name: scaled(term, weight) for name, term in terms.items()}
        for weight, terms in zip(weights, sums.values(), strict=True)
    ]
    means = {name: term.value() for name, term in _added(*weighted).items()}
    for source, terms in sums.items():
        if source.source_name:
            means |= {f"{source.source_name}/{name}": term.value() for name, term in terms.items()}
    return means


def first_replica(strategy: tf.distribute.Strategy, results: NestT) -> NestT:
    """The first replica's results of `strategy.run`, for results that are equal on all replicas."""
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)
