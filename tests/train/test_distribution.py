"""Strategies by name: clusters of TF_CONFIG, TPUs that do not answer, lost workers, the peak of the devices."""

import json
import os
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from electra_tf.config.errors import TrainingStopped, UserError
from electra_tf.train import distribution
from electra_tf.train.distribution import (
    build_strategy,
    describe_devices,
    is_chief,
    peak_of_run,
    share_cores,
    worker_failures_reported,
)
from tests.train.test_replicas import worker_environments


@pytest.mark.parametrize(
    ("cores", "gpus", "variable", "threads"),
    [
        ({0, 3, 5}, [], None, []),
        ({1, 4}, [], None, [1]),
        ({6}, [], None, [1]),
        ({0, 1}, ["GPU"], None, []),
        ({0, 1}, [], "3", []),
    ],
    ids=["3_cores", "2_cores", "1_core", "gpu", "environment"],
)
def test_an_operation_gets_one_thread_if_two_parts_keep_all_cores_busy(monkeypatch, cores, gpus, variable, threads):
    was_set = []

    def fail(threads: int) -> None:  # as in a process that has used TensorFlow
        was_set.append(threads)
        raise RuntimeError("cannot be modified after initialization")

    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    if variable:
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", variable)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: cores)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", fail)
    share_cores(2)
    assert was_set == threads


@pytest.mark.parametrize(
    ("name", "hidden", "warns"), [("nvidia0", None, 1), ("nvidiactl", None, 0), ("nvidia0", "", 0)]
)
def test_a_gpu_that_tensorflow_does_not_find_is_a_warning(monkeypatch, tmp_path, caplog, name, hidden, warns):
    (tmp_path / name).touch()
    monkeypatch.setattr(distribution, "_NVIDIA_DEVICES", f"{tmp_path}/nvidia[0-9]*")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    build_strategy("one_device")
    assert sum("has an NVIDIA GPU, but TensorFlow does not find it" in line for line in caplog.messages) == warns


@pytest.mark.parametrize(
    "value",
    [
        "",
        '{"task": {"type": "worker", "index": 0}}',
        "{",
        '{"cluster": {"worker": ["host0:1"]}, "task": {"type": "worker", "index": 1}}',
    ],
    ids=["empty", "no_cluster", "no_json", "task_outside_the_cluster"],
)
def test_cluster_that_cannot_start_is_an_error_about_tf_config(monkeypatch, value):
    monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(UserError, match=r"^strategy=multi_worker_mirrored: .*TF_CONFIG.*host0:12345"):
        build_strategy("multi_worker_mirrored")


@pytest.fixture
def connections(monkeypatch) -> list[str]:
    """In place of TensorFlow's calls to a TPU: the connections that are made."""
    made: list[str] = []
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", lambda tpu: "resolver")
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", made.append)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", lambda resolver: None)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: f"strategy of {resolver}")
    return made


@pytest.mark.parametrize(("name", "expected"), [("local", []), ("my-tpu", ["resolver"])])
def test_only_a_remote_tpu_is_connected_to(connections, name, expected):
    assert build_strategy("tpu", name) == "strategy of resolver"
    assert connections == expected


@pytest.mark.parametrize("name", ["my-tpu", "grpc://localhost:1", "grpc://localhost:port"])
def test_tpu_that_does_not_start_is_an_error_with_its_name(connections, monkeypatch, name):
    """TensorFlow would wait for an address where nothing listens."""

    def fail(resolver) -> None:
        raise tf.errors.UnavailableError(None, None, "out of order")

    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", fail)
    is_asked = name == "my-tpu"
    with pytest.raises(UserError, match=f"^strategy=tpu: .*'{name}'" + (r" \(out of order\)" if is_asked else "")):
        build_strategy("tpu", name)
    assert bool(connections) == is_asked


@pytest.fixture
def cluster(monkeypatch):
    """`cluster(spec, "worker", 0)`: the strategy of one process of a cluster."""

    def build(spec: dict[str, list[str]], kind: str, number: int) -> tf.distribute.Strategy:
        cluster_spec = tf.train.ClusterSpec(spec)
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster_spec, task_type=kind, task_id=number)
        strategy = type("Strategy", (), {"cluster_resolver": resolver})
        monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", strategy)
        return strategy()

    return build


ALONE = {"worker": ["host0:1", "host1:2"]}
LED = {"chief": ["host9:1"], "worker": ["host0:1", "host1:2", "host2:3"]}


@pytest.mark.parametrize(
    ("spec", "kind", "number", "expected"),
    [(ALONE, "worker", 0, True), (ALONE, "worker", 1, False), (LED, "chief", 0, True), (LED, "worker", 0, False)],
)
def test_one_worker_of_a_cluster_writes(cluster, spec, kind, number, expected):
    assert is_chief(cluster(spec, kind, number)) == expected


_WAIT = """
import sys
from electra_tf.train.signals import Interruption
with Interruption():
    import logging
    from electra_tf.train.distribution import build_strategy
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    build_strategy("multi_worker_mirrored")
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_names_the_missing_one_and_a_signal_ends_it(sent):
    environment = worker_environments(2)[1]
    missing = json.loads(environment["TF_CONFIG"])["cluster"]["worker"][0]
    command = [sys.executable, "-c", _WAIT]
    waiting = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in waiting.stderr if line.startswith("waiting"))
        assert line == f"waiting for worker 0 of TF_CONFIG ({missing})\n"
        waiting.send_signal(sent)
        assert waiting.wait(5) == 128 + sent
    finally:
        waiting.kill()


@pytest.mark.parametrize("is_started", [False, True], ids=["new", "started"])
def test_one_device_hides_all_gpus_but_the_first_visible_one_where_that_is_possible(monkeypatch, is_started):
    visible = ["GPU 2", "GPU 3"]

    def show(device, kind) -> None:
        if is_started:
            raise RuntimeError("Visible devices cannot be modified after being initialized")
        visible[:] = [device]

    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: visible)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU 0", "GPU 1", *visible])
    monkeypatch.setattr(tf.config, "set_visible_devices", show)
    monkeypatch.setattr(tf.distribute, "OneDeviceStrategy", lambda device: device)
    assert build_strategy("one_device") == "GPU:0"
    assert visible == (["GPU 2", "GPU 3"] if is_started else ["GPU 2"])


RESET = "Connection reset by peer\nfrom remote target /job:worker/replica:0/task:2 while calling RecvBuf"
HEARTBEATS = (
    "Collective ops is aborted by: Error reported from /job:worker/task:0: The following tasks are unhealthy:\n"
    "/job:chief/replica:0/task:0"
)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (tf.errors.UnavailableError(None, None, RESET), r"worker 2 of TF_CONFIG \(host2:3\)"),
        (tf.errors.InternalError(None, None, HEARTBEATS), r"chief 0 of TF_CONFIG \(host9:1\)"),
        (tf.errors.UnavailableError(None, None, "Socket closed"), "a worker of TF_CONFIG"),
        (tf.errors.ResourceExhaustedError(None, None, "no memory"), None),
    ],
)
def test_lost_worker_is_named_and_ends_the_process_and_other_errors_stay(cluster, monkeypatch, error, lost):
    exit_codes: list[int] = []
    monkeypatch.setattr(distribution, "end_without_teardown", exit_codes.append)
    with pytest.raises(type(error)), worker_failures_reported(tf.distribute.get_strategy()):
        raise error  # no cluster
    expected = (TrainingStopped, f"^{lost} no longer answers;") if lost else (type(error), "no memory")
    with pytest.raises(expected[0], match=expected[1]), worker_failures_reported(cluster(LED, "worker", 0)):
        raise error
    assert exit_codes == ([1] if lost else [])


@pytest.mark.parametrize(
    ("precision", "instructions", "is_warned"),
    [
        ("bfloat16", "fma avx2 avx512f avx512_vnni", True),
        ("bfloat16", "fma avx2 avx512_bf16", False),
        ("float32", "fma avx2", False),
    ],
)
def test_bfloat16_on_a_processor_without_its_instructions_gives_a_warning(
    precision, instructions, is_warned, tiny_config, two_replicas, monkeypatch, tmp_path, caplog
):
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {instructions}\n")
    monkeypatch.setattr(distribution, "_PROCESSOR_FILE", tmp_path / "cpuinfo")
    train = tiny_config(train={"precision": precision, "peak_flops": 3.0e12}).train
    assert peak_of_run(train, two_replicas) == 6.0e12
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
    assert peak_of_run(tiny_config(train={"precision": "bfloat16"}).train, TwoGpus()) == peak
    assert describe_devices(TwoGpus()) == f"2 x GPU ({name})"


def test_a_processor_has_no_published_peak(tiny_config):
    processor = tf.distribute.OneDeviceStrategy("CPU:0")
    assert peak_of_run(tiny_config().train, processor) is None and describe_devices(processor) == "1 x CPU"
