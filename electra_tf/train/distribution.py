"""The tf.distribute strategies by name: their start, the loss of a worker, and the peak of their devices."""

import contextlib
import functools
import glob
import itertools
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import tensorflow as tf

from electra_tf.config.errors import EXIT_TRAINING_STOPPED, TrainingStopped, UserError, first_line
from electra_tf.config.schema import TrainConfig
from electra_tf.flops.devices import published_gpu_peak, published_tpu_peak
from electra_tf.train.signals import end_without_teardown

logger = logging.getLogger(__name__)

_NVIDIA_DEVICES = "/dev/nvidia[0-9]*"
_TF_CONFIG_EXAMPLE = '{"cluster": {"worker": ["host0:12345", "host1:12345"]}, "task": {"type": "worker", "index": 0}}'
_TPU_HELP = (
    "run on a TPU VM with tensorflow-tpu installed and tpu=local, or give the TPU's name or grpc://HOST:PORT; "
    "strategy=one_device runs without a TPU"
)
_TPU_TYPE_VARIABLE = "TPU_ACCELERATOR_TYPE"  # a TPU VM sets it, for example to "v5litepod-8"
BATCHES_IN_FLIGHT = 4  # that an evaluation on a CPU computes at once, if it has the cores; each needs a batch's memory
_PROCESSOR_FILE = Path("/proc/cpuinfo")  # of Linux


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_cores(num_at_once: int) -> None:
    """Gives an operation one thread if a CPU has at most as many cores as batches that it computes at the same time.

    With more cores TensorFlow's default stays: one pool of as many threads as cores, which all operations share and
    which does nearly all of their work (docs/notes/performance.md), whoever starts them. A pool of one is not used.

    Without effect after TensorFlow's first operation, with a GPU, or if TF_NUM_INTRAOP_THREADS is set.

    Args: num_at_once: batches, or parts of one.
    """
    is_free = "TF_NUM_INTRAOP_THREADS" not in os.environ and not tf.config.list_physical_devices("GPU")
    if is_free and num_cores() <= num_at_once:
        with contextlib.suppress(RuntimeError):  # in a process that has used TensorFlow, such as a notebook's
            tf.config.threading.set_intra_op_parallelism_threads(1)


def split_cpu(num_devices: int) -> None:
    """Splits the CPU into `num_devices` logical devices, to try a distributed run on one machine.

    Raises: RuntimeError: if TensorFlow has set up its devices already.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_devices)


def one_device() -> tf.distribute.Strategy:
    """The first GPU, or the CPU. TensorFlow reserves the memory of all GPUs that it sees, so it sees no other one."""
    gpus = tf.config.get_visible_devices("GPU")
    if len(gpus) > 1:
        with contextlib.suppress(RuntimeError):  # in a process that has used TensorFlow, such as a notebook's
            tf.config.set_visible_devices(gpus[0], "GPU")
    return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")


@functools.cache
def mirrored() -> tf.distribute.Strategy:
    """Every GPU of this machine, or every logical CPU device, as one replica each.

    A process has one such strategy: TensorFlow numbers the sums of each from 100, and those of two would be confused.
    """
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    devices = [device.name for device in tf.config.list_logical_devices(kind)]
    return tf.distribute.MirroredStrategy(devices)


def multi_worker_mirrored() -> tf.distribute.Strategy:
    """Every GPU of every machine in the TF_CONFIG environment variable."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _wait_for_workers(tf.distribute.cluster_resolver.TFConfigClusterResolver())
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # which TensorFlow's cluster runtime has replaced
        if strategy.cluster_resolver.cluster_spec():  # else TensorFlow would train on this machine alone
            return strategy
        reason = "TF_CONFIG is not set, or has no cluster"
    except (ValueError, TypeError, OSError, tf.errors.OpError, RuntimeError) as error:
        reason = f"the cluster of TF_CONFIG does not start ({first_line(error)})"
    raise UserError(
        f"strategy=multi_worker_mirrored: {reason}; start every worker, with a free port and a TF_CONFIG such as "
        f"{_TF_CONFIG_EXAMPLE}"
    )


def _wait_for_workers(resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    """Waits until every worker listens. TensorFlow's own wait holds back all signals, and names nobody."""
    addresses, own = _addresses(resolver), (resolver.task_type, resolver.task_id)
    if own not in addresses:  # TensorFlow has an error for it
        return
    urls = {task: urlsplit(f"//{address}") for task, address in addresses.items()}
    ports = {task: int(url.netloc.rpartition(":")[2]) for task, url in urls.items()}
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    with socket.create_server(("", ports.pop(own)), family=family, dualstack_ipv6=is_dual):
        for task, port in ports.items():
            for tries in itertools.count():
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection((urls[task].hostname, port), timeout=5),
                ):
                    break
                if not tries:
                    logger.info("waiting for %s %d of TF_CONFIG (%s)", *task, addresses[task])
                time.sleep(0.5)


def tpu_strategy(tpu: str) -> tf.distribute.Strategy:
    """Every core of a TPU. `tpu` is `local` on a TPU VM, a TPU's name, or grpc://HOST:PORT."""
    tf.get_logger().setLevel("ERROR")  # without TensorFlow's notes on the search
    try:
        if tpu.startswith("grpc://"):
            # TensorFlow waits for ever for an address where nothing listens.
            address = urlsplit(tpu)
            socket.create_connection((address.hostname, address.port or 8470), timeout=10).close()
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        raise UserError(f"strategy=tpu: cannot connect to a TPU {tpu!r} ({first_line(error)}); {_TPU_HELP}") from None


STRATEGIES: dict[str, Callable[..., tf.distribute.Strategy]] = {
    "one_device": one_device,
    "mirrored": mirrored,
    "multi_worker_mirrored": multi_worker_mirrored,
    "tpu": tpu_strategy,
}


def build_strategy(name: str, tpu: str = "local") -> tf.distribute.Strategy:
    """The strategy of that name. Raises: UserError: if its devices are not there."""
    strategy = tpu_strategy(tpu) if name == "tpu" else STRATEGIES[name]()
    if not tf.config.list_physical_devices("GPU"):
        if "CUDA_VISIBLE_DEVICES" not in os.environ and glob.glob(_NVIDIA_DEVICES):
            logger.warning(
                "this machine has an NVIDIA GPU, but TensorFlow does not find it and computes on the CPU; install the "
                "packages of tensorflow[and-cuda], see docs/installation.md"
            )
        # Grappler rewrites graphs before their first run, which takes seconds at the start of every training and
        # evaluation and makes no step faster on a CPU (docs/notes/performance.md). TPU programs do not use it.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    return strategy


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the run's files: the only one, the chief, or worker 0 of a cluster without one."""
    resolver = strategy.cluster_resolver
    is_cluster = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    if not is_cluster or resolver is None or resolver.task_type is None:
        return True
    chief = ("chief" if "chief" in resolver.cluster_spec().jobs else "worker", 0)
    return (resolver.task_type, resolver.task_id) == chief


def require_same_step(strategy: tf.distribute.Strategy, step: int) -> None:
    """Raises: UserError: unless every worker has restored this step, as if each had a directory of its own."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    steps = sorted(set(tf.function(lambda: strategy.gather(strategy.run(lambda: tf.constant([step])), 0))().numpy()))
    if len(steps) > 1:
        raise UserError(
            f"model_dir: the workers found checkpoints of different steps ({', '.join(map(str, steps))}); give all "
            "of them the same directory, on a disk that they share"
        )


@contextlib.contextmanager
def worker_failures_reported(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Turns the error of a lost worker into one line.

    TensorFlow notices a dead worker at once if its machine closes the connections, else when its heartbeats have been
    missing for some ten seconds. It then aborts the sums in which the other workers wait, with an error in each. All of
    them end, as a step needs every worker's share of the batch.

    Raises: TrainingStopped: a worker is lost. The process then ends without waiting for TensorFlow's services, which
        would go on looking for it.
    """
    try:
        yield
    except tf.errors.OpError as error:
        is_aborted = isinstance(error, tf.errors.UnavailableError) or "Collective ops is aborted" in str(error)
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or not is_aborted:
            raise
        end_without_teardown(EXIT_TRAINING_STOPPED)
        raise TrainingStopped(
            f"{_lost_worker(str(error), strategy.cluster_resolver)} no longer answers; its own log has the reason; "
            "start the same command again on every worker: the run continues from its newest checkpoint"
        ) from None


def _lost_worker(message: str, resolver: tf.distribute.cluster_resolver.ClusterResolver) -> str:
    """The first worker that an error names, apart from this one, with its address."""
    addresses, own = _addresses(resolver), (resolver.task_type, resolver.task_id)
    for kind, number in re.findall(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)", message):
        if (task := (kind, int(number))) != own and task in addresses:
            return f"{kind} {number} of TF_CONFIG ({addresses[task]})"
    return "a worker of TF_CONFIG"


def _addresses(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> dict[tuple[str, int], str]:
    """The address of each process that trains, by its kind and number in TF_CONFIG."""
    cluster = resolver.cluster_spec().as_dict()
    kinds = ("chief", "worker")
    return {(kind, number): address for kind in kinds for number, address in enumerate(cluster.get(kind, ()))}


def device_kind(strategy: tf.distribute.Strategy) -> str:
    """The kind of a strategy's devices: `cpu`, `gpu` or `tpu`. TensorFlow's default strategy has all devices."""
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return "tpu"
    is_default = not tf.distribute.has_strategy() and strategy is tf.distribute.get_strategy()
    devices = tf.config.list_logical_devices() if is_default else strategy.extended.worker_devices
    return "gpu" if "GPU" in str(devices) else "cpu"


def peak_of_run(train: TrainConfig, strategy: tf.distribute.Strategy) -> float | None:
    """The peak FLOP/s of all replicas together, in the precision of the run.

    Returns: None for a CPU and for a device without a published peak, if the run does not set one.
    """
    kind = device_kind(strategy)
    if kind == "cpu" and train.precision == "bfloat16" and _lacks_bfloat16():
        logger.warning("this processor has no bfloat16 instructions; train.precision=float32 is faster")
    name = _device_name(kind)
    published = published_gpu_peak(name, train.precision) if kind == "gpu" else published_tpu_peak(name)
    peak = train.peak_flops or published
    return None if peak is None else strategy.num_replicas_in_sync * peak


def describe_devices(strategy: tf.distribute.Strategy) -> str:
    """The devices of all replicas, for the log: "2 x GPU (NVIDIA H100 80GB HBM3)"."""
    kind = device_kind(strategy)
    name = _device_name(kind)
    return f"{strategy.num_replicas_in_sync} x {kind.upper()}" + (f" ({name})" if name else "")


def _lacks_bfloat16() -> bool:
    """True if Linux lists the instructions of this processor, and none for bfloat16."""
    return _PROCESSOR_FILE.exists() and "bf16" not in _PROCESSOR_FILE.read_text(errors="replace")


def _device_name(kind: str) -> str:
    if kind == "gpu":
        details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
        return details.get("device_name", "")
    return os.environ.get(_TPU_TYPE_VARIABLE, "") if kind == "tpu" else ""
