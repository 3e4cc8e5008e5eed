"""Strategies by name, and every way in which asking for one can fail, as one line."""

import json
import os
import re
import socket
import urllib.error
from urllib.parse import urlsplit

import tensorflow as tf

from electra_tf.config.errors import UserError

_CONNECT_SECONDS = 10
_TASK_TYPES = ("chief", "worker")  # those that train; a parameter server has no part in this strategy
_TF_CONFIG_EXAMPLE = '{"cluster": {"worker": ["host0:12345", "host1:12345"]}, "task": {"type": "worker", "index": 0}}'
_TPU_HELP = (
    "run on a TPU VM with tensorflow-tpu installed and --tpu=local, or give the TPU's name or grpc://HOST:PORT; "
    "--strategy=one_device runs without a TPU"
)


def split_cpu(num_devices: int) -> None:
    """Makes `num_devices` logical devices of the CPU, to try a distributed run on one machine.

    Raises: UserError: if TensorFlow has set up its devices already.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_devices)
    except RuntimeError as error:
        raise UserError(f"--logical_cpu_devices={num_devices}: {error}; set it before anything else runs") from None


def one_device(tpu: str) -> tf.distribute.Strategy:
    """The first GPU, or the CPU."""
    return tf.distribute.OneDeviceStrategy("GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0")


def mirrored(tpu: str) -> tf.distribute.Strategy:
    """Every GPU of this machine, or every logical CPU device, as one replica each."""
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    devices = [device.name for device in tf.config.list_logical_devices(kind)]
    return tf.distribute.MirroredStrategy(devices)


def multi_worker_mirrored(tpu: str) -> tf.distribute.Strategy:
    """Every GPU of every machine in the TF_CONFIG environment variable."""
    _check_cluster(os.environ.get("TF_CONFIG"))
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (ValueError, TypeError, tf.errors.OpError, RuntimeError) as error:
        raise UserError(
            f"--strategy=multi_worker_mirrored: the cluster of TF_CONFIG does not start ({_first_line(error)}); check "
            "that every worker runs and that this one may listen at its port"
        ) from None


def _check_cluster(text: str | None) -> None:
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


def tpu(tpu: str) -> tf.distribute.Strategy:
    """Every core of a TPU. `tpu` is `local` on a TPU VM, a TPU's name, or grpc://HOST:PORT."""
    if tpu.startswith("grpc://"):
        _require_listening(tpu)
    try:
        tf.get_logger().setLevel("ERROR")  # its notes on every step of the search would bury the one line below
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, tf.errors.OpError, urllib.error.URLError, OSError, RuntimeError) as error:
        raise UserError(f"--strategy=tpu: no TPU answers as {tpu!r} ({_first_line(error)}); {_TPU_HELP}") from None


def _first_line(error: Exception) -> str:
    """What an error says, as far as a message of one line can hold it."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _require_listening(address: str) -> None:
    """Connecting TensorFlow to an address where nothing listens waits for ever, so that is found out first."""
    try:
        parts = urlsplit(address)
        socket.create_connection((parts.hostname or "", parts.port or 8470), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise UserError(f"--strategy=tpu: nothing listens at {address} ({error}); {_TPU_HELP}") from None


STRATEGIES = {
    "one_device": one_device,
    "mirrored": mirrored,
    "multi_worker_mirrored": multi_worker_mirrored,
    "tpu": tpu,
}


def build_strategy(name: str, tpu: str = "local") -> tf.distribute.Strategy:
    """The strategy of that name. Raises: UserError: if its devices are not there."""
    return STRATEGIES[name](tpu)


def require_divisible(batch_size: int, strategy: tf.distribute.Strategy, setting: str) -> None:
    """Raises: UserError: unless the global batch divides among the replicas."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise UserError(
            f"{setting} is {batch_size}, which does not divide among {replicas} replicas; "
            f"give --set {setting}={max(replicas, batch_size // replicas * replicas)}"
        )


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the run's files: the only one, or worker 0."""
    resolver = strategy.cluster_resolver
    if resolver is None or not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    return resolver.task_type in (None, "chief") or (resolver.task_type == "worker" and resolver.task_id == 0)
