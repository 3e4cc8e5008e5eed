"""The peak FLOP/s of a run's devices: from the settings, published or measured."""

import pytest
import tensorflow as tf

from electra_tf.train import device_peak
from electra_tf.train.device_peak import measured_rate, peak_of_run


def test_configured_peak_is_multiplied_by_the_replicas(tiny_config, two_replicas):
    train = tiny_config(train={"peak_flops": 3.0e12}).train
    peak = peak_of_run(train, two_replicas)
    assert peak == (6.0e12, "train.peak_flops", False)
    assert str(peak) == "6e+12 FLOP/s, train.peak_flops"


@pytest.fixture
def measured_5e9(monkeypatch):
    """Every device is measured at 5e9 FLOP/s."""
    monkeypatch.setattr(device_peak, "measured_rate", lambda precision, device: 5e9)


def test_logical_devices_of_one_processor_share_its_measured_rate(tiny_config, two_replicas, measured_5e9):
    train = tiny_config().train
    one_device = tf.distribute.OneDeviceStrategy("CPU:0")
    assert [peak_of_run(train, strategy)[0] for strategy in (one_device, two_replicas)] == [5e9, 5e9]


@pytest.mark.parametrize(
    ("precision", "instructions", "is_warned"),
    [
        ("bfloat16", "fma avx2 avx512f avx512_vnni", True),
        ("bfloat16", "fma avx2 avx512_bf16", False),
        ("float32", "fma avx2", False),
    ],
)
def test_bfloat16_on_a_processor_without_its_instructions_gives_a_warning(
    precision, instructions, is_warned, tiny_config, measured_5e9, monkeypatch, tmp_path, caplog
):
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {instructions}\n")
    monkeypatch.setattr(device_peak, "_PROCESSOR_FILE", tmp_path / "cpuinfo")
    peak_of_run(tiny_config(train={"precision": precision}).train, tf.distribute.OneDeviceStrategy("CPU:0"))
    assert ("train.precision=float32" in caplog.text) == is_warned


def test_rates_of_gpus_without_a_published_peak_add_up(tiny_config, monkeypatch, measured_5e9):
    class TwoUnknownGpus:
        num_replicas_in_sync = 2

        class extended:
            worker_devices = ("/replica:0/task:0/device:GPU:0", "/replica:0/task:0/device:GPU:1")

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU"])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: {"device_name": "Unknown"})
    peak = peak_of_run(tiny_config().train, TwoUnknownGpus())
    assert peak == (1e10, "measured now, a product of float32 matrices", True)
    # The machine may be busy during the measurement.
    assert str(peak).startswith("at least 1e+10 FLOP/s, measured now")


def test_measured_rate_is_that_of_the_fastest_product_in_the_given_precision(monkeypatch):
    results, types, matmul = [], set(), tf.matmul
    monkeypatch.setattr(tf, "matmul", lambda a, b: types.add(a.dtype) or matmul(a, b))
    monkeypatch.setattr(
        device_peak.timeit, "repeat", lambda product, **_: results.append(product()) or [0.5, 0.25, 0.75]
    )
    assert measured_rate("bfloat16", "/CPU:0", size=64) == 2 * 64**3 / 0.25
    assert types == {tf.bfloat16}
    # The first row of the product, summed up: 64 * 64 * (1/64)^2.
    assert results == [pytest.approx(1.0)]


def test_as_many_products_run_at_once_as_fill_the_cores(monkeypatch):
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: 2)
    monkeypatch.setattr(device_peak, "num_cores", lambda: 5)
    monkeypatch.setattr(device_peak.timeit, "repeat", lambda products, **_: [0.5])
    assert measured_rate("float32", "/CPU:0", size=48) == 2 * 2 * 48**3 / 0.5


def test_device_that_cannot_compute_the_product_has_no_peak(tiny_config, monkeypatch, caplog):
    def refuse(precision, device):
        raise tf.errors.UnimplementedError(None, None, "no such product")

    monkeypatch.setattr(device_peak, "measured_rate", refuse)
    assert peak_of_run(tiny_config().train, tf.distribute.OneDeviceStrategy("CPU:0")) is None
    assert "no such product" in caplog.text
