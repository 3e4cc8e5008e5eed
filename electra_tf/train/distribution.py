"""The tf.distribute strategies by name; a failure to start one is an error of one line."""

import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.train.tpu import tpu_strategy

_TF_CONFIG_EXAMPLE = '{"cluster": {"worker": ["host0:12345", "host1:12345"]}, "task": {"type": "worker", "index": 0}}'


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
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (ValueError, TypeError, tf.errors.OpError, RuntimeError) as error:
        raise UserError(
            f"--strategy=multi_worker_mirrored: the cluster of TF_CONFIG does not start ({first_line(error)}); check "
            f"TF_CONFIG, e.g. {_TF_CONFIG_EXAMPLE}, that every worker runs and that this one may listen at its port"
        ) from None
    if not strategy.cluster_resolver.cluster_spec():  # TensorFlow would train on this machine alone
        raise UserError(
            "--strategy=multi_worker_mirrored: TF_CONFIG is not set, or names no cluster; set it on every worker, e.g. "
            f"{_TF_CONFIG_EXAMPLE}"
        )
    return strategy


def tpu(tpu: str) -> tf.distribute.Strategy:
    """Every core of a TPU. `tpu` is `local` on a TPU VM, a TPU's name, or grpc://HOST:PORT."""
    return tpu_strategy(tpu)


STRATEGIES = {
    "one_device": one_device,
    "mirrored": mirrored,
    "multi_worker_mirrored": multi_worker_mirrored,
    "tpu": tpu,
}


def build_strategy(name: str, tpu: str = "local") -> tf.distribute.Strategy:
    """The strategy of that name. Raises: UserError: if its devices are not there."""
    strategy = STRATEGIES[name](tpu)
    if not tf.config.list_physical_devices("GPU"):
        # Grappler rewrites graphs before their first run, which takes seconds at the start of every training and
        # evaluation and makes no step faster on a CPU (docs/notes/performance.md). TPU programs do not use it.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    return strategy


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the run's files: the only one, or worker 0."""
    resolver = strategy.cluster_resolver
    if resolver is None or not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    return resolver.task_type in (None, "chief") or (resolver.task_type == "worker" and resolver.task_id == 0)
