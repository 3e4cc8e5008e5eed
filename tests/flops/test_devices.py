import pytest

from electra_tf.flops.devices import DEVICES, published_gpu_peak, published_peak, published_tpu_peak


# Dense TFLOP/s of the data sheets. Names that contain each other, and names that look like those of known devices.
@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H200", 989.4e12),
        ("NVIDIA H100 80GB HBM3", 989.4e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("Tesla T4", 8.1e12),
        ("NVIDIA GeForce GT 710", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
    ],
)
def test_a_gpu_has_its_published_peak_if_it_is_known(name, peak):
    assert published_gpu_peak(name, "bfloat16") == peak


def test_a_tpu_core_and_a_named_device_have_their_published_peaks():
    cores = [published_tpu_peak(name) for name in ("v5litepod-8", "v3-8", "")]
    assert cores == [197e12, 61.5e12, None]
    peaks = {name: published_peak(name, "bfloat16") for name in DEVICES}
    assert all(peaks.values())
    assert (peaks["h100"], peaks["v3-8"], peaks["v4-8"]) == (989.4e12, 8 * 61.5e12, 4 * 275e12)
