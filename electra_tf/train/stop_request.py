"""A wish to end the run, made on the host at any time and looked at on the device between two steps."""

import tensorflow as tf

from electra_tf.train.step import sum_over_replicas


class StopRequest:
    """Says to a loop on the device that it should end early.

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
