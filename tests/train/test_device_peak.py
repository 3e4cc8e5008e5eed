"""The peak FLOP/s of a run's devices: from the settings, or published."""

import pytest
import tensorflow as tf

from electra_tf.train import device_peak
from electra_tf.train.device_peak import describe_devices, peak_of_run


def test_configured_peak_is_multiplied_by_the_replicas(tiny_config, two_replicas):
    train = tiny_config(train={"peak_flops": 3.0e12}).train
    peak = peak_of_run(train, two_replicas)
    assert peak == (6.0e12, "train.peak_flops")
    assert str(peak) == "6e+12 FLOP/s, train.peak_flops"


@pytest.mark.parametrize(
    ("precision", "instructions", "is_warned"),
    [
        ("bfloat16", "fma avx2 avx512f avx512_vnni", True),
        ("bfloat16", "fma avx2 avx512_bf16", False),
        ("float32", "fma avx2", False),
    ],
)
def test_bfloat16_on_a_processor_without_its_instructions_gives_a_warning(
    precision, instructions, is_warned, tiny_config, monkeypatch, tmp_path, caplog
):
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {instructions}\n")
    monkeypatch.setattr(device_peak, "_PROCESSOR_FILE", tmp_path / "cpuinfo")
    peak_of_run(tiny_config(train={"precision": precision}).train, tf.distribute.OneDeviceStrategy("CPU:0"))
    assert ("train.precision=float32" in caplog.text) == is_warned


class TwoGpus:
    num_replicas_in_sync = 2

    class extended:
        worker_devices = ("/replica:0/task:0/device:GPU:0", "/replica:0/task:0/device:GPU:1")


# 989.4 TFLOP/s each.
@pytest.mark.parametrize(("name", "peak"), [("NVIDIA H100 80GB HBM3", 1.9788e15), ("Unknown", None)])
def test_published_peaks_of_gpus_add_up_and_others_have_none(tiny_config, monkeypatch, name, peak):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU"])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: {"device_name": name})
    found = peak_of_run(tiny_config(train={"precision": "bfloat16"}).train, TwoGpus())
    assert (found and found.flops_per_second) == peak
    assert describe_devices(TwoGpus()) == f"2 x GPU ({name})"


def test_a_processor_has_no_published_peak(tiny_config):
    processor = tf.distribute.OneDeviceStrategy("CPU:0")
    assert peak_of_run(tiny_config().train, processor) is None and describe_devices(processor) == "1 x CPU"
