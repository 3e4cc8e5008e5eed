"""What happens to the workers of a run when one of them dies.

TensorFlow notices a dead worker by itself: at once where its machine closes the connections, else when its heartbeats
have been missing for some ten seconds. It then aborts the sums in which the others wait for it, with an error in each.
None can go on alone, as a step needs every worker's share of the batch: all end, and start together again.
"""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from electra_tf.config.errors import EXIT_TRAINING_STOPPED, TrainingStopped, end_without_teardown

# What TensorFlow puts before the reason when it ends a sum over workers.
_ABORTED = "Collective ops is aborted"


@contextlib.contextmanager
def worker_failures_reported(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Turns the error that a run's other workers meet when one has died into one line.

    Raises: TrainingStopped: if the error of the body is that of a lost worker. The process then ends without waiting
        for TensorFlow's services, which would go on looking for it.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or not _is_of_lost_worker(error):
            raise
        end_without_teardown(EXIT_TRAINING_STOPPED)
        lost = _lost_worker(str(error), strategy.cluster_resolver)
        raise TrainingStopped(
            f"{lost} no longer answers; its own log has the reason; start the same command again on every worker: the "
            "run continues from its newest checkpoint"
        ) from None


def _is_of_lost_worker(error: tf.errors.OpError) -> bool:
    return isinstance(error, tf.errors.UnavailableError) or _ABORTED in str(error)


def _lost_worker(message: str, resolver: tf.distribute.cluster_resolver.ClusterResolver) -> str:
    """Which worker an error speaks of, with its address: the first named that is not this one."""
    own = (resolver.task_type, resolver.task_id)
    cluster = resolver.cluster_spec().as_dict()
    for kind, number in re.findall(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)", message):
        if (kind, int(number)) != own and int(number) < len(cluster.get(kind, ())):
            return f"{kind} {number} of TF_CONFIG ({cluster[kind][int(number)]})"
    return "a worker of TF_CONFIG"
