"""Published peaks of devices: FLOP/s of dense matrix products in the precisions of a run.

If a data sheet has only the number with sparsity, half of it is used. Sources:

- H100, H200: nvidia.com/en-us/data-center/h100 and /h200        - A100: nvidia.com/en-us/data-center/a100
- L4, T4, V100: nvidia.com/en-us/data-center/l4, /tesla-t4 and /v100
- RTX 4090: images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf, appendix A
- RTX 3090: nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf, appendix A
- TPUs: docs.cloud.google.com/tpu/docs/v4, /v5e, /v5p, ...
"""

import re

# TFLOP/s by patterns of the driver's device names. On GPUs since Ampere, float32 is TensorFloat-32, as in TensorFlow.
# T4 and V100 have neither TensorFloat-32 nor bfloat16, and no run trains in float16 (65 and 125 TFLOP/s). The peaks of
# GeForce are for accumulation in float32; with accumulation in float16 they are twice as high.
GPU_PEAKS = (
    (r"\bH[12]00 NVL\b", {"bfloat16": 835.5, "float32": 417.7}),
    (r"\bH200\b|\bGH200\b|\bH100\b.*(SXM|HBM3)|\bH800\b.*SXM", {"bfloat16": 989.4, "float32": 494.7}),
    (r"\bH100\b", {"bfloat16": 756.0, "float32": 378.0}),
    (r"\bA100\b|\bA800\b", {"bfloat16": 312.0, "float32": 156.0}),
    (r"\bRTX 4090$", {"bfloat16": 165.2, "float32": 82.6}),
    (r"\bL4\b", {"bfloat16": 121.0, "float32": 60.0}),
    (r"\bRTX 3090$", {"bfloat16": 71.0, "float32": 35.6}),
    (r"\bA10G\b", {"bfloat16": 70.0, "float32": 35.0}),
    (r"\bV100\b.*PCIE", {"bfloat16": 14.0, "float32": 14.0}),
    (r"\bV100\b", {"bfloat16": 15.7, "float32": 15.7}),
    (r"\bT4\b", {"bfloat16": 8.1, "float32": 8.1}),
)
# TFLOP/s of one core as TensorFlow counts cores: half a chip for v2 and v3, a whole chip for the others. float32 has
# the same peak, because its products are computed from bfloat16 numbers.
_TPU_PEAKS = {"v2": 22.5, "v3": 61.5, "v4": 275.0, "v5litepod": 197.0, "v5e": 197.0, "v5p": 459.0, "v6e": 918.0}

# The names of `electra-tf flops --device`: the number of replicas, and the name that the driver or TPU VM reports.
DEVICES = {
    "t4": (1, "Tesla T4"),
    "v100": (1, "Tesla V100-SXM2-16GB"),
    "l4": (1, "NVIDIA L4"),
    "rtx3090": (1, "NVIDIA GeForce RTX 3090"),
    "rtx4090": (1, "NVIDIA GeForce RTX 4090"),
    "a100": (1, "NVIDIA A100-SXM4-80GB"),
    "h100": (1, "NVIDIA H100 80GB HBM3"),
    "h200": (1, "NVIDIA H200"),
    "v3-8": (8, "v3-8"),
    "v4-8": (4, "v4-8"),
    "v5e": (1, "v5litepod-1"),
}


def published_gpu_peak(device_name: str, precision: str) -> float | None:
    """Peak FLOP/s of a GPU by the name from its driver, such as `NVIDIA A100-SXM4-40GB`; None if it is unknown."""
    return next((1e12 * peaks[precision] for name, peaks in GPU_PEAKS if re.search(name, device_name)), None)


def published_tpu_peak(accelerator_type: str) -> float | None:
    """Peak FLOP/s of a TPU core by the type of its slice, such as `v5litepod-8`; None if it is unknown."""
    peak = _TPU_PEAKS.get(accelerator_type.partition("-")[0])
    return None if peak is None else 1e12 * peak


def published_peak(device: str, precision: str) -> float:
    """Peak FLOP/s of a device in `DEVICES`: the sum over its cores."""
    replicas, reported_name = DEVICES[device]
    peak = published_gpu_peak(reported_name, precision) or published_tpu_peak(reported_name)
    assert peak is not None, "every device of the list has a published peak"
    return replicas * peak
