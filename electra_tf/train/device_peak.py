"""The peak FLOP/s of a run's devices, to which model FLOPs utilisation is relative.

It is the setting `train.peak_flops`, or else the published peak.
"""

import logging
import os
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.schema import TrainConfig
from electra_tf.flops.devices import published_gpu_peak, published_tpu_peak

logger = logging.getLogger(__name__)

_TPU_TYPE_VARIABLE = "TPU_ACCELERATOR_TYPE"  # a TPU VM sets it, for example to "v5litepod-8"
_PROCESSOR_FILE = Path("/proc/cpuinfo")  # of Linux


class Peak(NamedTuple):
    """The peak of all devices of a run together, and the source of the number, for messages."""

    flops_per_second: float
    source: str

    def __str__(self) -> str:
        return f"{self.flops_per_second:.4g} FLOP/s, {self.source}"


def peak_of_run(train: TrainConfig, strategy: tf.distribute.Strategy) -> Peak | None:
    """The peak of all replicas together, in the precision of the run.

    Returns: None for a CPU and for a device without a published peak, if the run does not set one.
    """
    replicas = strategy.num_replicas_in_sync
    if train.peak_flops is not None:
        return Peak(replicas * train.peak_flops, "train.peak_flops")
    kind = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0]).device_type
    if kind == "CPU" and train.precision == "bfloat16" and _lacks_bfloat16():
        logger.warning("this processor has no bfloat16 instructions; --set train.precision=float32 is faster")
    name, published = _published(kind, train.precision)
    return None if published is None else Peak(replicas * published, f"published for {name}")


def describe_devices(strategy: tf.distribute.Strategy) -> str:
    """The devices of all replicas, for the log: "2 x GPU (NVIDIA H100 80GB HBM3)"."""
    kind = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0]).device_type
    name = _device_name(kind)
    return f"{strategy.num_replicas_in_sync} x {kind}" + (f" ({name})" if name else "")


def _lacks_bfloat16() -> bool:
    """True if Linux lists the instructions of this processor, and none for bfloat16."""
    return _PROCESSOR_FILE.exists() and "bf16" not in _PROCESSOR_FILE.read_text(errors="replace")


def _published(kind: str, precision: str) -> tuple[str, float | None]:
    """The name of this machine's devices, and the published FLOP/s of one of them; None if unknown."""
    name = _device_name(kind)
    return name, published_gpu_peak(name, precision) if kind == "GPU" else published_tpu_peak(name)


def _device_name(kind: str) -> str:
    if kind == "GPU":
        details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
        return details.get("device_name", "")
    return os.environ.get(_TPU_TYPE_VARIABLE, "") if kind == "TPU" else ""
