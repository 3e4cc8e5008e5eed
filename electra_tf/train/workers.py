"""The workers of one run: the cluster that TF_CONFIG describes, and what happens when one of them dies.

TensorFlow notices a dead worker by itself: at once where its machine closes the connections, else when its heartbeats
have been missing for some ten seconds. It then aborts the sums in which the others wait for it, with an error in each.
None can go on alone, as a step needs every worker's share of the batch: all end, and start together again.
"""

import contextlib
import json
import re
from collections.abc import Iterator

import tensorflow as tf

from electra_tf.config.errors import EXIT_TRAINING_STOPPED, TrainingStopped, UserError, end_without_teardown

_TASK_TYPES = ("chief", "worker")  # those that train; a parameter server has no part in this strategy
_TF_CONFIG_EXAMPLE = '{"cluster": {"worker": ["host0:12345", "host1:12345"]}, "task": {"type": "worker", "index": 0}}'
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


def require_cluster(text: str | None) -> None:
    """Raises: UserError: unless `text` is a TF_CONFIG with a cluster of workers and this process's place in it."""
    if text is None:
        raise UserError(
            "--strategy=multi_worker_mirrored: the environment variable 'TF_CONFIG' is not set; set it on every "
            f"worker, e.g. {_TF_CONFIG_EXAMPLE}"
        )
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise UserError(f"TF_CONFIG is not the JSON that TensorFlow expects: {error}") from None
    if not isinstance(settings, dict):
        raise UserError(
            f"TF_CONFIG is not the JSON that TensorFlow expects: it is {settings!r}, expected an object such as "
            f"{_TF_CONFIG_EXAMPLE}"
        )
    cluster = _object_in(settings, "cluster")
    if "worker" not in cluster:
        raise UserError(f"TF_CONFIG lacks cluster.worker; give it, e.g. {_TF_CONFIG_EXAMPLE}")
    for kind in _TASK_TYPES:
        if kind in cluster:
            _check_addresses(kind, cluster[kind])
    _check_task(_object_in(settings, "task"), cluster)


def _object_in(settings: dict, key: str) -> dict:
    if key not in settings:
        raise UserError(f"TF_CONFIG lacks {key}; give it, e.g. {_TF_CONFIG_EXAMPLE}")
    if not isinstance(settings[key], dict):
        raise UserError(f"TF_CONFIG: {key} is {settings[key]!r}; expected an object, e.g. {_TF_CONFIG_EXAMPLE}")
    return settings[key]


def _check_addresses(kind: str, addresses: object) -> None:
    if not isinstance(addresses, list):
        raise UserError(f'TF_CONFIG: cluster.{kind} is {addresses!r}; expected a list such as ["host0:12345"]')
    if not addresses:
        raise UserError(f"TF_CONFIG names no {kind} in cluster.{kind}; list HOST:PORT of each")
    for index, address in enumerate(addresses):
        if not (isinstance(address, str) and _is_host_and_port(address)):
            raise UserError(
                f"TF_CONFIG: cluster.{kind}[{index}] is {address!r}; expected HOST:PORT, for example 'host0:12345'"
            )


def _is_host_and_port(address: str) -> bool:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):([0-9]{1,5})", address)  # brackets: an IPv6 address
    return match is not None and 0 < int(match[2]) < 2**16


def _check_task(task: dict, cluster: dict) -> None:
    kind, index = task.get("type"), task.get("index")
    kinds = [name for name in _TASK_TYPES if name in cluster]
    if kind not in kinds:
        found = f"is {kind!r}" if "type" in task else "is missing"
        raise UserError(f"TF_CONFIG: task.type {found}; expected a kind of task of its cluster: {' or '.join(kinds)}")
    last = len(cluster[kind]) - 1
    if type(index) is not int or not 0 <= index <= last:  # a boolean is an int to isinstance
        found = f"is {index!r}" if "index" in task else "is missing"
        raise UserError(f"TF_CONFIG: task.index {found}; expected a whole number from 0 to {last}, into cluster.{kind}")
