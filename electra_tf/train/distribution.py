"""Strategies by name, and every way in which asking for one can fail, as one line."""

import json
import os
import socket
import urllib.error
from urllib.parse import urlsplit

import tensorflow as tf

from electra_tf.config.errors import UserError

_CONNECT_SECONDS = 10
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
    try:
        cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
    except KeyError as missing:
        raise UserError(
            f"--strategy=multi_worker_mirrored: {missing} is not set in the environment variable TF_CONFIG; set it on "
            'every worker, e.g. {"cluster": {"worker": ["host0:12345", "host1:12345"]}, '
            '"task": {"type": "worker", "index": 0}}'
        ) from None
    except (ValueError, TypeError) as error:
        raise UserError(f"TF_CONFIG is not the JSON that TensorFlow expects: {error}") from None
    if not cluster:
        raise UserError("TF_CONFIG names no worker in cluster.worker; list HOST:PORT of each")
    return tf.distribute.MultiWorkerMirroredStrategy()


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
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"--strategy=tpu: no TPU answers as {tpu!r} ({reason}); {_TPU_HELP}") from None


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
