"""Published peaks, by the names that drivers and TPU VMs report and by the names of electra-tf flops --device."""

import pytest

from electra_tf.flops.devices import DEVICES, published_gpu_peak, published_peak, published_tpu_peak


# Dense TFLOP/s of the data sheets.
@pytest.mark.parametrize(
    ("name", "bfloat16", "float32"),
    [
        ("NVIDIA H200", 989.4, 494.7),
        ("NVIDIA H100 80GB HBM3", 989.4, 494.7),
        ("NVIDIA H100 PCIe", 756.0, 378.0),
        ("NVIDIA A100-SXM4-40GB", 312.0, 156.0),
        ("NVIDIA GeForce RTX 4090", 165.2, 82.6),
        ("NVIDIA GeForce RTX 3090", 71.0, 35.6),
        ("NVIDIA L4", 121.0, 60.0),
        ("Tesla V100-SXM2-16GB", 15.7, 15.7),
        ("Tesla T4", 8.1, 8.1),
    ],
)
def test_a_known_gpu_has_its_published_peak(name, bfloat16, float32):
    peaks = [published_gpu_peak(name, precision) for precision in ("bfloat16", "float32")]
    assert peaks == [1e12 * bfloat16, 1e12 * float32]


@pytest.mark.parametrize(
    ("accelerator_type", "peak"),
    [("v5litepod-8", 197e12), ("v4-16", 275e12), ("v5p-8", 459e12), ("v6e-4", 918e12), ("v3-8", 61.5e12)],
)
def test_a_known_tpu_has_its_published_peak(accelerator_type, peak):
    assert published_tpu_peak(accelerator_type) == peak


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce GT 710", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti"]
)
def test_an_unknown_device_has_no_peak(name):
    assert published_gpu_peak(name, "float32") is None
    assert published_tpu_peak("") is None


def test_the_peak_of_a_named_device_is_the_sum_over_its_cores():
    peaks = {name: published_peak(name, "bfloat16") for name in DEVICES}
    assert all(peaks.values())
    assert (peaks["h100"], peaks["v3-8"], peaks["v4-8"]) == (989.4e12, 8 * 61.5e12, 4 * 275e12)
