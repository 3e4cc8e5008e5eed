import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.base import Evaluated
from electra_tf.tasks.terms import Ratio
from electra_tf.train.trainer import Evaluator, StopRequest

ONE_CPU = tf.distribute.OneDeviceStrategy("CPU:0")


class Sums(Evaluated):
    """The sum of each example's numbers, and their mean with noise from the step's random stream.

    Args:
        meanwhile: called on the host while a batch is computed.
    """

    def __init__(self, meanwhile=lambda: None):
        self._meanwhile = meanwhile
        self.config = SimpleNamespace(train=SimpleNamespace(seed=3))

    def evaluation_terms(self, batch, context):
        noise = context.random.scope("noise").uniform(tf.shape(batch["x"])[0], (1,))
        return {"mean": Ratio(tf.reduce_sum(batch["x"] + noise), tf.constant(7.0))}

    def example_outputs(self, batch, context):
        def sums(x):
            self._meanwhile()
            return tf.reduce_sum(x, axis=1)

        return {"sum": tf.ensure_shape(tf.py_function(sums, [batch["x"]], tf.float32), [None])}


def batches(context):
    """Seven batches of two examples, of one to seven numbers."""
    numbers = tf.data.Dataset.range(1, 8)
    return numbers.map(lambda n: {"x": tf.fill([2, n], tf.cast(n, tf.float32))})


def test_batches_that_are_computed_at_once_give_the_results_of_one_after_the_other():
    one = Evaluator(Sums(), ONE_CPU, StopRequest(ONE_CPU)).evaluate(batches, 7)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0"])
    other = Evaluator(Sums(), mirrored, StopRequest(mirrored)).evaluate(batches, 7)
    assert one.metrics == other.metrics
    sums = [[1, 1], [4, 4], [9, 9], [16, 16], [25, 25], [36, 36], [49, 49]]
    assert np.array(one.outputs["sum"]).tolist() == np.array(other.outputs["sum"]).tolist() == sums


def test_two_batches_are_computed_at_once(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    # Each waits for another one.
    both = threading.Barrier(2, timeout=20)
    result = Evaluator(Sums(both.wait), ONE_CPU, StopRequest(ONE_CPU)).evaluate(batches, 6)
    assert len(result.outputs["sum"]) == 6


def test_a_stop_request_ends_an_evaluation():
    stop_request = StopRequest(ONE_CPU)
    stop_request.make()
    assert Evaluator(Sums(), ONE_CPU, stop_request).evaluate(batches, 7) is None


def test_an_error_in_a_batch_is_raised():
    def fail():
        raise ValueError("no such batch")

    with pytest.raises(tf.errors.InvalidArgumentError, match="no such batch"):
        Evaluator(Sums(fail), ONE_CPU, StopRequest(ONE_CPU)).evaluate(batches, 7)
