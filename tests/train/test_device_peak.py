"""What model FLOPs utilisation is a share of: stated, published, or measured."""

import pytest
import tensorflow as tf

from electra_tf.train import device_peak
from electra_tf.train.device_peak import measured_rate, peak_of_run


def test_a_stated_peak_counts_for_every_replica(tiny_config, two_replicas):
    train = tiny_config(train={"peak_flops": 3.0e12}).train
    assert peak_of_run(train, two_replicas) == (6.0e12, "train.peak_flops")


@pytest.fixture
def rate_of_a_device(monkeypatch):
    """Every device is measured to do 5e9 FLOP/s."""
    monkeypatch.setattr(device_peak, "measured_rate", lambda precision, device: 5e9)


def test_a_processor_is_measured_once_however_many_devices_it_is_split_into(
    tiny_config, two_replicas, rate_of_a_device
):
    train = tiny_config().train
    one_device = tf.distribute.OneDeviceStrategy("CPU:0")
    assert [peak_of_run(train, strategy)[0] for strategy in (one_device, two_replicas)] == [5e9, 5e9]


@pytest.mark.parametrize(
    ("precision", "flags", "is_slow"),
    [
        ("bfloat16", "fma avx2 avx512f avx512_vnni", True),
        ("bfloat16", "fma avx2 avx512_bf16", False),
        ("bfloat16", "fma amx_bf16", False),
        ("bfloat16", "asimd svebf16", False),
        ("bfloat16", None, False),
        ("float32", "fma avx2", False),
    ],
)
def test_a_run_in_bfloat16_is_told_if_the_processor_has_no_products_in_it(
    precision, flags, is_slow, tiny_config, rate_of_a_device, monkeypatch, tmp_path, caplog
):
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"processor : 0\nflags : {flags}\n")
    monkeypatch.setattr(device_peak, "_PROCESSOR_FILE", file)
    peak_of_run(tiny_config(train={"precision": precision}).train, tf.distribute.OneDeviceStrategy("CPU:0"))
    assert ("--set train.precision=float32 is faster" in caplog.text) == is_slow


def test_gpus_without_a_published_peak_are_measured_each(tiny_config, monkeypatch, rate_of_a_device):
    class TwoUnknownGpus:
        num_replicas_in_sync = 2

        class extended:
            worker_devices = ("/replica:0/task:0/device:GPU:0", "/replica:0/task:0/device:GPU:1")

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU"])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: {"device_name": "Unknown"})
    assert peak_of_run(tiny_config().train, TwoUnknownGpus()) == (1e10, "measured, a product of float32 matrices")


def test_the_rate_is_two_operations_for_each_multiplication_over_the_time_of_a_product(monkeypatch):
    results = []
    monkeypatch.setattr(device_peak, "_fastest", lambda run: results.append(run()) or 0.25)
    assert measured_rate("float32", "/CPU:0", size=50) == 2 * 50**3 / 0.25
    # The first row of the product, summed up: 50 * 50 * (1/50)^2.
    assert results == [pytest.approx(1.0)]


def test_the_rate_of_bfloat16_is_measured_in_bfloat16(monkeypatch):
    types = []
    matmul = tf.matmul
    monkeypatch.setattr(tf, "matmul", lambda a, b: types.append((a.dtype, b.dtype)) or matmul(a, b))
    measured_rate("bfloat16", "/CPU:0", size=128)
    assert set(types) == {(tf.bfloat16, tf.bfloat16)}


def test_a_device_that_refuses_the_product_does_not_keep_a_training_from_starting(tiny_config, monkeypatch, caplog):
    def refuse(precision, device):
        raise tf.errors.UnimplementedError(None, None, "no such product")

    monkeypatch.setattr(device_peak, "measured_rate", refuse)
    assert peak_of_run(tiny_config().train, tf.distribute.OneDeviceStrategy("CPU:0")) is None
    assert "no such product" in caplog.text


def test_the_fastest_of_several_bursts_counts_though_the_first_are_disturbed(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(device_peak.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(device_peak.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))

    def product():
        # Something else has the machine in the first second.
        clock[0] += 0.3 if clock[0] < 1.0 else 0.02

    assert device_peak._fastest(product) == pytest.approx(0.02)
    assert clock[0] < 2.5
