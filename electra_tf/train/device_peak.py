"""How many FLOPs a second the devices of a run could do at most: what model FLOPs utilisation is a share of.

Stated by the configuration, published by the maker for devices that are known by their name, or else what a large
product of matrices reaches on the device itself.
"""

import functools
import logging
import os
import re
import time
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.schema import TrainConfig

logger = logging.getLogger(__name__)

_TERA = 1e12
# Dense products, without sparsity, by the makers' data sheets. float32 on an NVIDIA GPU of the Ampere generation or
# later is TensorFloat-32, as TensorFlow multiplies there; a V100 has neither that nor bfloat16. Of a TPU it is one core
# as TensorFlow sees it (of v2 and v3 half a chip), whose float32 products are made of bfloat16 ones.
_GPU_PEAKS = (
    (r"\bH[12]00 NVL\b", {"bfloat16": 835.5 * _TERA, "float32": 417.7 * _TERA}),
    (r"\bH200\b|\bGH200\b|\bH100\b.*(SXM|HBM3)|\bH800\b.*SXM", {"bfloat16": 989.4 * _TERA, "float32": 494.7 * _TERA}),
    (r"\bH100\b", {"bfloat16": 756.0 * _TERA, "float32": 378.0 * _TERA}),
    (r"\bA100\b|\bA800\b", {"bfloat16": 312.0 * _TERA, "float32": 156.0 * _TERA}),
    (r"\bA10G\b", {"bfloat16": 70.0 * _TERA, "float32": 35.0 * _TERA}),
    (r"\bL4\b", {"bfloat16": 121.0 * _TERA, "float32": 60.0 * _TERA}),
    (r"\bV100\b.*PCIE", {"bfloat16": 14.0 * _TERA, "float32": 14.0 * _TERA}),
    (r"\bV100\b", {"bfloat16": 15.7 * _TERA, "float32": 15.7 * _TERA}),
)
_TPU_PEAKS = {
    "v2": 22.5 * _TERA,
    "v3": 61.5 * _TERA,
    "v4": 275.0 * _TERA,
    "v5litepod": 197.0 * _TERA,
    "v5e": 197.0 * _TERA,
    "v5p": 459.0 * _TERA,
    "v6e": 918.0 * _TERA,
}
# A TPU VM says so itself, as "v5litepod-8".
_TPU_TYPE_VARIABLE = "TPU_ACCELERATOR_TYPE"
# Large enough for the rate not to depend on it; on a CPU no larger, for a short product is more likely to be left alone
# by whatever else the machine does.
_CPU_SIZE, _ACCELERATOR_SIZE = 1024, 8192
# Bursts with a rest between them: what disturbs one of them need not disturb the next.
_BURSTS, _BURST_SECONDS, _REST_SECONDS = 6, 0.2, 0.06


class Peak(NamedTuple):
    """The most that the devices of a run can do together.

    Attributes:
        flops_per_second: over all devices.        source: where the number is from, for messages.
    """

    flops_per_second: float
    source: str


def peak_of_run(train: TrainConfig, strategy: tf.distribute.Strategy) -> Peak | None:
    """The peak of all replicas together, in the precision of the run. Measures, if it must, for 1.5 s.

    Returns: None if the device is not known and refuses the product: no reason for a training not to start.
    """
    replicas = strategy.num_replicas_in_sync
    if train.peak_flops is not None:
        return Peak(replicas * train.peak_flops, "train.peak_flops")
    known = _published(train.precision, strategy)
    if known is not None:
        return Peak(replicas * known.flops_per_second, known.source)
    device = strategy.extended.worker_devices[0]
    try:
        rate = measured_rate(train.precision, device)
    except tf.errors.OpError as error:
        logger.warning("how fast %s multiplies cannot be measured (%s); give train.peak_flops", device, error.message)
        return None
    kind = tf.DeviceSpec.from_string(device).device_type
    # The CPU devices of a process are one processor, and its product has used all of it.
    machines = replicas // len(strategy.extended.worker_devices)
    return Peak((machines if kind == "CPU" else replicas) * rate, f"measured, a product of {train.precision} matrices")


def published_gpu_peak(device_name: str, precision: str) -> float | None:
    """FLOP/s of a GPU by the name that its driver gives, such as `NVIDIA A100-SXM4-40GB`; None if it is not known."""
    return next((peaks[precision] for name, peaks in _GPU_PEAKS if re.search(name, device_name)), None)


def published_tpu_peak(accelerator_type: str) -> float | None:
    """FLOP/s of a core of a TPU by its type, such as `v5litepod-8`; None if it is not known."""
    return _TPU_PEAKS.get(accelerator_type.partition("-")[0])


def _published(precision: str, strategy: tf.distribute.Strategy) -> Peak | None:
    """The published peak of one device of a strategy; None if the device is not known."""
    kind = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0]).device_type
    if kind == "GPU":
        details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
        name = details.get("device_name", "")
        found = published_gpu_peak(name, precision)
    elif kind == "TPU":
        name = os.environ.get(_TPU_TYPE_VARIABLE, "")
        found = published_tpu_peak(name)
    else:
        return None
    return None if found is None else Peak(found, f"published for {name}")


@functools.cache
def measured_rate(precision: str, device: str, size: int | None = None) -> float:
    """FLOP/s of a product of two square matrices on a device: the best of many, measured once in a process.

    Args:
        precision: `float32` or `bfloat16`.        device: such as `/CPU:0`.
        size: rows of the matrices; None: what suits the device.
    """
    size = size or (_CPU_SIZE if "CPU" in device else _ACCELERATOR_SIZE)
    with tf.device(device):
        matrix = tf.cast(tf.fill([size, size], 1.0 / size), precision)
        product = tf.function(lambda: tf.reduce_sum(tf.cast(tf.matmul(matrix, matrix)[0], tf.float32)), autograph=False)
        return 2.0 * size**3 / _fastest(lambda: product().numpy())


def _fastest(run: Callable[[], object]) -> float:
    """Seconds of the fastest run of some short bursts, after one run that is not timed."""
    run()
    seconds = []
    for _ in range(_BURSTS):
        end = time.perf_counter() + _BURST_SECONDS
        while True:
            before = time.perf_counter()
            run()
            after = time.perf_counter()
            seconds.append(after - before)
            if after >= end:
                break
        time.sleep(_REST_SECONDS)
    return min(seconds)
