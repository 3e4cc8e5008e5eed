"""Strategies by name: clusters that TF_CONFIG describes, TPUs that do not answer, workers that are lost."""

import json
import threading
import urllib.error

import pytest
import tensorflow as tf

from electra_tf.config.errors import TrainingStopped, UserError
from electra_tf.train import tpu, workers
from electra_tf.train.distribution import build_strategy
from electra_tf.train.workers import worker_failures_reported


@pytest.fixture
def exits(monkeypatch) -> list[int]:
    """The statuses with which the process would end without teardown."""
    statuses: list[int] = []
    for module in (tpu, workers):
        monkeypatch.setattr(module, "end_without_teardown", statuses.append)
    return statuses


def one_line(kind, call) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "TF_CONFIG is not set, or names no cluster"),
        ({"task": {"type": "worker", "index": 0}}, "TF_CONFIG is not set, or names no cluster"),
        ("{", "does not start (Expecting"),
        ({"cluster": {"worker": ["host0:1"]}, "task": {"type": "worker", "index": 1}}, "does not start (The `task_id`"),
    ],
)
def test_a_cluster_that_cannot_start_is_refused_in_one_line(monkeypatch, value, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))
    refusal = one_line(UserError, lambda: build_strategy("multi_worker_mirrored"))
    assert message in refusal and '{"cluster": {"worker": ["host0:12345", ' in refusal


def fail(error: Exception):
    def call(*_):
        raise error

    return call


@pytest.fixture
def answering(monkeypatch):
    """`answering(resolve=..., connect=..., start=...)`: what these steps towards a TPU do; all succeed otherwise."""

    def set_up(resolve=lambda: "resolver", connect=lambda resolver: None, start=lambda resolver: None):
        monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", lambda tpu: resolve())
        monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", connect)
        monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", start)
        monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: f"strategy of {resolver}")

    return set_up


@pytest.mark.parametrize(("name", "connections"), [("local", []), ("my-tpu", ["resolver"])])
def test_a_tpu_that_answers_is_connected_to_unless_it_is_this_machines(answering, name, connections):
    connected = []
    answering(connect=connected.append)
    assert build_strategy("tpu", name) == "strategy of resolver"
    assert connected == connections


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("resolve", ValueError("said\nat length")),
        ("resolve", urllib.error.URLError("said")),
        ("connect", tf.errors.UnavailableError(None, None, "said")),
        ("start", TimeoutError("said")),
    ],
)
def test_what_tensorflow_says_of_a_tpu_that_is_not_there_is_one_line(answering, exits, step, error):
    answering(**{step: fail(error)})
    message = one_line(UserError, lambda: build_strategy("tpu", "my-tpu"))
    assert message.startswith("--strategy=tpu: no TPU answers as 'my-tpu' (")
    assert "said" in message and "--strategy=one_device runs without a TPU" in message
    assert exits == []


@pytest.mark.parametrize("step", ["resolve", "connect", "start"])
def test_a_tpu_that_never_answers_is_given_up(answering, exits, monkeypatch, step):
    monkeypatch.setattr(tpu, "_CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(tpu, "_START_SECONDS", 0.2)
    released = threading.Event()
    answering(**{step: lambda *_: released.wait()})
    assert "no TPU answers as 'my-tpu' within 0.2 s" in one_line(UserError, lambda: build_strategy("tpu", "my-tpu"))
    assert exits == [2]
    released.set()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "--tpu is empty; run on a TPU VM"),
        ("grpc://localhost:1", "nothing listens at grpc://localhost:1 ("),
        ("grpc://localhost:port", "nothing listens at grpc://localhost:port ("),
        ("grpc://", "nothing listens at grpc:// ("),
    ],
)
def test_an_address_where_nothing_listens_is_found_out_before_tensorflow_waits_there(answering, address, message):
    answering(resolve=fail(AssertionError("not reached")))
    assert message in one_line(UserError, lambda: build_strategy("tpu", address))


def test_an_error_of_ours_is_not_taken_for_a_missing_tpu(answering):
    answering(start=fail(AssertionError("ours")))
    with pytest.raises(AssertionError, match="ours"):
        build_strategy("tpu", "my-tpu")


@pytest.fixture
def cluster(monkeypatch):
    """A strategy of a chief and three workers, in the place of worker 0."""

    class Strategy:
        cluster_resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"chief": ["host9:1"], "worker": ["host0:1", "host1:2", "host2:3"]}),
            task_type="worker",
            task_id=0,
        )

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", Strategy)
    return Strategy()


def raise_under(strategy, error: Exception) -> None:
    with worker_failures_reported(strategy):
        raise error


RESET = "Connection reset by peer\nfrom remote target /job:worker/replica:0/task:2 while calling RecvBuf"
HEARTBEATS = (
    "Collective ops is aborted by: Error reported from /job:worker/task:0: The following tasks are unhealthy:\n"
    "/job:chief/replica:0/task:0"
)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (tf.errors.UnavailableError(None, None, RESET), "worker 2 of TF_CONFIG (host2:3)"),
        (tf.errors.InternalError(None, None, HEARTBEATS), "chief 0 of TF_CONFIG (host9:1)"),
        (tf.errors.UnavailableError(None, None, "Socket closed"), "a worker of TF_CONFIG"),
        (tf.errors.UnavailableError(None, None, "/job:worker/task:7"), "a worker of TF_CONFIG"),
    ],
)
def test_a_lost_worker_is_named_with_what_to_do(cluster, exits, error, lost):
    message = one_line(TrainingStopped, lambda: raise_under(cluster, error))
    assert message.startswith(f"{lost} no longer answers;")
    assert "start the same command again on every worker" in message
    assert exits == [1]


def test_other_errors_stay_what_they_are(cluster, exits):
    for strategy, error in (
        (cluster, tf.errors.ResourceExhaustedError(None, None, "no memory")),
        (cluster, ValueError("Collective ops is aborted")),
        (tf.distribute.get_strategy(), tf.errors.UnavailableError(None, None, RESET)),
    ):
        with pytest.raises(type(error)):
            raise_under(strategy, error)
    assert exits == []
