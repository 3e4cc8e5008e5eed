"""The peak FLOP/s of a run's devices, to which model FLOPs utilisation is relative.

It is the setting `train.peak_flops`, or else the published peak, or else the measured rate of a large matrix product.
"""

import functools
import logging
import os
import timeit
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.schema import TrainConfig
from electra_tf.flops.devices import published_gpu_peak, published_tpu_peak
from electra_tf.train.distribution import num_cores

logger = logging.getLogger(__name__)

_TPU_TYPE_VARIABLE = "TPU_ACCELERATOR_TYPE"  # a TPU VM sets it, for example to "v5litepod-8"
# So large that the rate does not depend on the size; smaller on a CPU, where a short product is disturbed less often.
_CPU_SIZE, _ACCELERATOR_SIZE = 1024, 8192
_NUM_PRODUCTS = 30
_PROCESSOR_FILE = Path("/proc/cpuinfo")  # of Linux


class Peak(NamedTuple):
    """The peak of all devices of a run together, and the source of the number, for messages.

    Attributes:
        is_lower_bound: True for a measured peak: on a busy machine the true one is higher, and utilisation lower.
    """

    flops_per_second: float
    source: str
    is_lower_bound: bool = False

    def __str__(self) -> str:
        return f"{'at least ' if self.is_lower_bound else ''}{self.flops_per_second:.4g} FLOP/s, {self.source}"


def peak_of_run(train: TrainConfig, strategy: tf.distribute.Strategy) -> Peak | None:
    """The peak of all replicas together, in the precision of the run. A measurement takes about a second.

    Returns: None if the device is unknown and cannot compute the product.
    """
    replicas, device = strategy.num_replicas_in_sync, strategy.extended.worker_devices[0]
    if train.peak_flops is not None:
        return Peak(replicas * train.peak_flops, "train.peak_flops")
    kind = tf.DeviceSpec.from_string(device).device_type
    if kind == "CPU" and train.precision == "bfloat16" and _lacks_bfloat16():
        logger.warning("this processor has no bfloat16 instructions; --set train.precision=float32 is faster")
    name, published = _published(kind, train.precision)
    if published is not None:
        return Peak(replicas * published, f"published for {name}")
    try:
        rate = measured_rate(train.precision, device)
    except tf.errors.OpError as error:
        logger.warning("the speed of %s cannot be measured (%s); set train.peak_flops", device, error.message)
        return None
    # The logical CPU devices of a process share one processor, and the product has used all of it.
    measured = replicas // len(strategy.extended.worker_devices) if kind == "CPU" else replicas
    return Peak(measured * rate, f"measured now, a product of {train.precision} matrices", is_lower_bound=True)


def _lacks_bfloat16() -> bool:
    """True if Linux lists the instructions of this processor, and none for bfloat16."""
    return _PROCESSOR_FILE.exists() and "bf16" not in _PROCESSOR_FILE.read_text(errors="replace")


def _published(kind: str, precision: str) -> tuple[str, float | None]:
    """The name of this machine's devices, and the published FLOP/s of one of them; None if unknown."""
    if kind == "GPU":
        details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
        name = details.get("device_name", "")
        return name, published_gpu_peak(name, precision)
    name = os.environ.get(_TPU_TYPE_VARIABLE, "") if kind == "TPU" else ""
    return name, published_tpu_peak(name)


@functools.cache
def measured_rate(precision: str, device: str, size: int | None = None) -> float:
    """FLOP/s of products of square matrices on a device: the best of many, measured once in a process.

    On a CPU whose operations use a part of the cores each, as many products run at once as fill them.

    Args:
        precision: `float32` or `bfloat16`.
        device: such as `/CPU:0`.
        size: rows of the matrices; None: a size that suits the device.
    """
    size = size or (_CPU_SIZE if "CPU" in device else _ACCELERATOR_SIZE)
    num_threads = tf.config.threading.get_intra_op_parallelism_threads() if "CPU" in device else 0
    num_products = max(1, num_cores() // num_threads) if num_threads else 1
    with tf.device(device):
        matrices = [tf.cast(tf.fill([size, size], (i + 1.0) / size), precision) for i in range(num_products)]

        @tf.function(autograph=False)
        def products() -> tf.Tensor:
            return tf.add_n([tf.reduce_sum(tf.cast(tf.matmul(each, each)[0], tf.float32)) for each in matrices])

        products()  # traces
        seconds = timeit.repeat(lambda: products().numpy(), number=1, repeat=_NUM_PRODUCTS)
    return num_products * 2.0 * size**3 / min(seconds)
