import json

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.train.distribution import build_strategy

WORKERS = ["host0:12345", "host1:12345", "host2:12345"]
TASK = {"type": "worker", "index": 2}


@pytest.fixture
def started(monkeypatch):
    """Instead of waiting for the other workers, the strategy's constructor returns this text."""
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda: "started")
    return "started"


@pytest.fixture
def build(started, monkeypatch):
    """`build(value)`: the strategy of several workers, under TF_CONFIG of that text or JSON value; None is unset."""

    def under(value: object):
        if value is None:
            monkeypatch.delenv("TF_CONFIG", raising=False)
        else:
            monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))
        return build_strategy("multi_worker_mirrored")

    return under


@pytest.fixture
def refusal(build):
    def of(value: object) -> str:
        with pytest.raises(UserError) as caught:
            build(value)
        message = str(caught.value)
        assert "\n" not in message
        return message

    return of


@pytest.mark.parametrize(
    ("cluster", "task"),
    [
        ({"worker": WORKERS}, TASK),
        ({"chief": ["10.0.0.1:1"], "worker": WORKERS[:1]}, {"type": "chief", "index": 0}),
        ({"worker": ["[::1]:65535"], "ps": ["host9:1"]}, {"type": "worker", "index": 0}),
    ],
)
def test_a_cluster_with_this_process_in_it_starts(build, started, cluster, task):
    assert build({"cluster": cluster, "task": task}) == started


def test_an_unset_variable_is_said_with_an_example(refusal):
    message = refusal(None)
    assert "the environment variable 'TF_CONFIG' is not set" in message
    assert '"task": {"type": "worker", "index": 0}' in message


@pytest.mark.parametrize(
    ("value", "lacking"),
    [
        ({"task": TASK}, "cluster"),
        ({"cluster": {"chief": ["host0:12345"]}, "task": TASK}, "cluster.worker"),
        ({"cluster": {"worker": WORKERS}}, "task"),
    ],
)
def test_a_missing_key_is_named(refusal, value, lacking):
    assert f"TF_CONFIG lacks {lacking};" in refusal(value)


@pytest.mark.parametrize("text", ["{", "[]", "3", "null"])
def test_what_is_no_object_is_refused(refusal, text):
    assert "TF_CONFIG is not the JSON that TensorFlow expects" in refusal(text)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"cluster": WORKERS, "task": TASK}, "cluster is ['host0:12345'"),
        ({"cluster": {"worker": WORKERS}, "task": "worker"}, "task is 'worker'; expected an object"),
    ],
)
def test_a_part_that_is_no_object_is_refused(refusal, value, said):
    assert said in refusal(value)


@pytest.mark.parametrize("kind", ["worker", "chief"])
@pytest.mark.parametrize("addresses", ["host0:12345", {"0": "host0:12345"}, 7, None])
def test_addresses_that_are_no_list_are_refused(refusal, kind, addresses):
    message = refusal({"cluster": {"worker": WORKERS, kind: addresses}, "task": TASK})
    assert f"cluster.{kind} is {addresses!r}; expected a list" in message


def test_a_cluster_without_a_worker_is_refused(refusal):
    assert "names no worker in cluster.worker" in refusal({"cluster": {"worker": []}, "task": TASK})


@pytest.mark.parametrize(
    "address",
    [
        "host1",
        "host1:",
        ":12345",
        "host1:port",
        "host1:0",
        "host1:65536",
        "::1:12345",
        "http://host1:12345",
        "h\n:1",
        9,
    ],
)
def test_an_address_without_host_and_port_is_named(refusal, address):
    message = refusal({"cluster": {"worker": ["host0:12345", address]}, "task": {"type": "worker", "index": 0}})
    assert f"cluster.worker[1] is {address!r}; expected HOST:PORT" in message


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ({"type": "ps", "index": 0}, "is 'ps'"),
        ({"type": "chief", "index": 0}, "is 'chief'"),
        ({"type": ["worker"], "index": 0}, "is ['worker']"),
        ({"index": 0}, "is missing"),
    ],
)
def test_a_task_of_no_kind_of_the_cluster_is_refused(refusal, task, found):
    message = refusal({"cluster": {"worker": WORKERS, "ps": ["host9:12345"]}, "task": task})
    assert f"task.type {found}; expected a kind of task of its cluster: worker" in message


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ({"type": "worker", "index": 3}, "is 3"),
        ({"type": "worker", "index": -1}, "is -1"),
        ({"type": "worker", "index": "1"}, "is '1'"),
        ({"type": "worker", "index": True}, "is True"),
        ({"type": "worker"}, "is missing"),
    ],
)
def test_a_task_outside_the_cluster_is_refused(refusal, task, found):
    message = refusal({"cluster": {"worker": WORKERS}, "task": task})
    assert f"task.index {found}; expected a whole number from 0 to 2, into cluster.worker" in message


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no\nstart"),
        TypeError("no"),
        RuntimeError("no"),
        tf.errors.UnavailableError(None, None, "no"),
    ],
)
def test_a_cluster_that_does_not_start_is_said_in_one_line(refusal, monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", fail)
    message = refusal({"cluster": {"worker": WORKERS}, "task": TASK})
    assert "the cluster of TF_CONFIG does not start (no)" in message
