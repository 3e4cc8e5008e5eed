"""The loop on the device: evaluations of one or several replicas, stop requests, the input of one replica."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.base import Evaluated
from electra_tf.tasks.terms import Ratio, Sum
from electra_tf.train.device_loop import DeviceLoop
from tests.toy import ToyStage, toy_config

ONE_CPU = tf.distribute.OneDeviceStrategy("CPU:0")


class Sums(Evaluated):
    """The sum of each example's numbers, and their mean with noise from the step's random stream."""

    def __init__(self, xla=None):
        self.config = SimpleNamespace(train=SimpleNamespace(seed=3, xla=xla))

    def evaluation_terms(self, batch, context):
        noise = context.random.fold_in("noise").uniform(tf.shape(batch["x"])[0], (1,))
        return {"mean": Ratio(tf.reduce_sum(batch["x"] + noise), tf.constant(7.0))}

    def example_outputs(self, batch, context):
        return {"sum": tf.reduce_sum(batch["x"], axis=1)}


class Batches(ToyStage):
    """Seven batches of two examples, of one to seven numbers."""

    def evaluation_batches(self, context):
        numbers = tf.data.Dataset.range(1, 8)
        return numbers.map(lambda n: {"x": tf.fill([2, n], tf.cast(n, tf.float32))})


def stage_of(num_batches: int, sources=()) -> Batches:
    kind = type("Mixture", (Batches,), {"sources": sources}) if sources else Batches
    return kind(toy_config(), num_batches)


def test_batches_that_are_computed_at_once_give_the_results_of_one_after_the_other():
    one = DeviceLoop(Sums(), ONE_CPU).evaluate(stage_of(7))
    mirrored = tf.distribute.MirroredStrategy(["CPU:0"])
    other = DeviceLoop(Sums(), mirrored).evaluate(stage_of(7))
    assert one.metrics == other.metrics
    sums = [[1, 1], [4, 4], [9, 9], [16, 16], [25, 25], [36, 36], [49, 49]]
    assert np.array(one.outputs["sum"]).tolist() == np.array(other.outputs["sum"]).tolist() == sums


def test_each_source_of_a_mixture_has_its_means_and_counts_by_its_share_in_those_of_all():
    class Means(Sums):
        def evaluation_terms(self, batch, context):
            rows, columns = tf.unstack(tf.cast(tf.shape(batch["x"]), tf.float32))
            return {"mean": Ratio(tf.reduce_sum(batch["x"]), rows * columns), "rows": Sum(rows)}

    first = {"num_evaluation_batches": 3, "source_name": "a", "share": 0.75, "num_evaluation_examples": 5}
    second = {"num_evaluation_batches": 4, "source_name": "b", "share": 0.25, "num_evaluation_examples": 8}
    sources = [ToyStage(toy_config(), **each) for each in (first, second)]
    metrics = DeviceLoop(Means(), ONE_CPU).evaluate(stage_of(7, sources)).metrics
    # Sums of 2 rows of n numbers n: 2 * (1 + 4 + 9) = 28 of 2 * (1 + 2 + 3) = 12, and 252 of 44.
    mean = (0.75 / 5 * 28 + 0.25 / 8 * 252) / (0.75 / 5 * 12 + 0.25 / 8 * 44)
    of_sources = {"a/mean": 28 / 12, "a/rows": 6, "b/mean": 252 / 44, "b/rows": 8}
    assert metrics == pytest.approx({"mean": mean, "rows": 14, **of_sources})


def test_an_evaluation_as_one_program_gives_the_same():
    plain, compiled = (DeviceLoop(Sums(xla), ONE_CPU).evaluate(stage_of(2)) for xla in (None, True))
    assert compiled.metrics == pytest.approx(plain.metrics, rel=1e-6)
    assert np.array(compiled.outputs["sum"]).tolist() == np.array(plain.outputs["sum"]).tolist()


def test_two_batches_are_computed_at_once(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    both = threading.Barrier(2, timeout=20)  # each waits for another one

    def evaluate(batch, number):
        both.wait()
        return {}, {"number": number}

    loop = DeviceLoop(Sums(), ONE_CPU)
    monkeypatch.setattr(loop, "_function", lambda *_: SimpleNamespace(get_concrete_function=lambda *specs: evaluate))
    assert loop.evaluate(stage_of(6)).outputs["number"] == [0, 1, 2, 3, 4, 5]


def test_a_stop_request_ends_an_evaluation():
    loop = DeviceLoop(Sums(), ONE_CPU)
    loop.request_stop()
    assert loop.evaluate(stage_of(7)) is None


def test_an_error_in_a_batch_is_raised():
    class Failing(Sums):
        def example_outputs(self, batch, context):
            return {"checked": tf.debugging.check_numerics(tf.math.log(batch["x"] - 5.0), "no such batch")}

    with pytest.raises(tf.errors.InvalidArgumentError, match="no such batch"):
        DeviceLoop(Failing(), ONE_CPU).evaluate(stage_of(7))


def test_the_batches_of_one_replica_have_no_buffer_of_tf_distribute():
    # Its iterator would end up to a minute after the run.
    for strategy in (tf.distribute.OneDeviceStrategy("CPU:0"), tf.distribute.MirroredStrategy(["CPU:0"])):
        batches = DeviceLoop(Sums(), strategy).read(lambda context: tf.data.Dataset.range(3, 8))
        assert isinstance(batches, tf.data.Iterator) and next(batches) == 3
