"""Published peaks, by what drivers and TPU VMs call a device and by the names of profile_flops.py."""

import pytest

from electra_tf.flops.devices import DEVICES, published_gpu_peak, published_peak, published_tpu_peak


# As the drivers name them; dense FLOP/s of the data sheets.
@pytest.mark.parametrize(
    ("name", "bfloat16", "float32"),
    [
        ("NVIDIA H200", 989.4e12, 494.7e12),
        ("NVIDIA H100 80GB HBM3", 989.4e12, 494.7e12),
        ("NVIDIA H100 PCIe", 756e12, 378e12),
        ("NVIDIA A100-SXM4-40GB", 312e12, 156e12),
        ("NVIDIA GeForce RTX 4090", 165.2e12, 82.6e12),
        ("NVIDIA GeForce RTX 3090", 71e12, 35.6e12),
        ("NVIDIA L4", 121e12, 60e12),
        ("Tesla V100-SXM2-16GB", 15.7e12, 15.7e12),
        ("Tesla T4", 8.1e12, 8.1e12),
    ],
)
def test_a_known_gpu_has_its_published_peak(name, bfloat16, float32):
    assert (published_gpu_peak(name, "bfloat16"), published_gpu_peak(name, "float32")) == (bfloat16, float32)


@pytest.mark.parametrize(
    ("accelerator_type", "peak"),
    [("v5litepod-8", 197e12), ("v4-16", 275e12), ("v5p-8", 459e12), ("v6e-4", 918e12), ("v3-8", 61.5e12)],
)
def test_a_known_tpu_has_its_published_peak(accelerator_type, peak):
    assert published_tpu_peak(accelerator_type) == peak


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce GT 710", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti"]
)
def test_an_unknown_device_has_none(name):
    assert published_gpu_peak(name, "float32") is None
    assert published_tpu_peak("") is None


def test_every_device_that_can_be_named_has_the_peak_of_all_its_cores():
    assert {name: published_peak(name, "bfloat16") / 1e12 for name in DEVICES} == {
        "t4": 8.1,
        "v100": 15.7,
        "l4": 121.0,
        "rtx3090": 71.0,
        "rtx4090": 165.2,
        "a100": 312.0,
        "h100": 989.4,
        "h200": 989.4,
        "v3-8": 492.0,
        "v4-8": 1100.0,
        "v5e": 197.0,
    }
