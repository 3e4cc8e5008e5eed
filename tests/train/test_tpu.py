import threading
import time
import urllib.error

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.train import tpu
from electra_tf.train.distribution import build_strategy

RESOLVER = "resolver"


@pytest.fixture
def exits(monkeypatch) -> list[int]:
    """The statuses with which the process would end without teardown."""
    statuses: list[int] = []
    monkeypatch.setattr(tpu, "end_without_teardown", statuses.append)
    return statuses


@pytest.fixture
def answering(monkeypatch):
    """`answering(resolve=..., connect=..., start=...)`: what these steps towards a TPU do; all succeed otherwise."""

    def set_up(resolve=lambda: RESOLVER, connect=lambda resolver: None, start=lambda resolver: None):
        monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", lambda tpu: resolve())
        monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", connect)
        monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", start)
        monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: f"strategy of {resolver}")

    return set_up


def refusal(name: str) -> str:
    with pytest.raises(UserError) as caught:
        build_strategy("tpu", name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def fail(error: Exception):
    def call(*_):
        raise error

    return call


@pytest.mark.parametrize(("name", "connections"), [("local", []), ("my-tpu", [RESOLVER])])
def test_a_tpu_that_answers_is_connected_to_unless_it_is_this_machines(answering, name, connections):
    connected = []
    answering(connect=connected.append)
    assert build_strategy("tpu", name) == "strategy of resolver"
    assert connected == connections


def test_an_empty_name_is_refused():
    assert "--tpu is empty; run on a TPU VM" in refusal("")


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("resolve", ValueError("said\nat length")),
        ("resolve", urllib.error.URLError("said")),
        ("connect", tf.errors.UnavailableError(None, None, "said")),
        ("start", tf.errors.NotFoundError(None, None, "said")),
        ("start", tf.errors.InternalError(None, None, "said")),
        ("start", TimeoutError("said")),
    ],
)
def test_what_tensorflow_says_of_a_tpu_that_is_not_there_is_one_line(answering, exits, step, error):
    answering(**{step: fail(error)})
    message = refusal("my-tpu")
    assert message.startswith("--strategy=tpu: no TPU answers as 'my-tpu' (")
    assert "said" in message and "--strategy=one_device runs without a TPU" in message
    assert exits == []


@pytest.mark.parametrize("step", ["resolve", "connect", "start"])
def test_a_tpu_that_never_answers_is_given_up(answering, exits, monkeypatch, step):
    monkeypatch.setattr(tpu, "_CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(tpu, "_START_SECONDS", 0.2)
    released = threading.Event()
    answering(**{step: lambda *_: released.wait()})
    started = time.monotonic()
    assert "no TPU answers as 'my-tpu' within 0.2 s" in refusal("my-tpu")
    assert time.monotonic() - started < 5
    assert exits == [2]
    released.set()


@pytest.mark.parametrize("address", ["grpc://localhost:1", "grpc://localhost:port", "grpc://"])
def test_an_address_where_nothing_listens_is_found_out_before_tensorflow_waits_there(answering, address):
    answering(resolve=fail(AssertionError("not reached")))
    assert f"nothing listens at {address} (" in refusal(address)


def test_an_error_of_ours_is_not_taken_for_a_missing_tpu(answering):
    answering(start=fail(AssertionError("ours")))
    with pytest.raises(AssertionError, match="ours"):
        build_strategy("tpu", "my-tpu")
