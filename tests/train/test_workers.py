import pytest
import tensorflow as tf

from electra_tf.config.errors import TrainingStopped
from electra_tf.train import workers
from electra_tf.train.workers import worker_failures_reported

RESET = "Connection reset by peer\nfrom remote target /job:worker/replica:0/task:2 while calling RecvBuf"
HEARTBEATS = (
    "Collective ops is aborted by: Error reported from /job:worker/task:0: The following tasks are unhealthy:\n"
    "/job:chief/replica:0/task:0"
)


@pytest.fixture
def exits(monkeypatch) -> list[int]:
    """The statuses with which the process would end without teardown."""
    statuses: list[int] = []
    monkeypatch.setattr(workers, "end_without_teardown", statuses.append)
    return statuses


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


def message_of(strategy, error: Exception) -> str:
    with pytest.raises(TrainingStopped) as caught, worker_failures_reported(strategy):
        raise error
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (tf.errors.UnavailableError(None, None, RESET), "worker 2 of TF_CONFIG (host2:3)"),
        (tf.errors.UnavailableError(None, None, HEARTBEATS), "chief 0 of TF_CONFIG (host9:1)"),
        (tf.errors.InternalError(None, None, HEARTBEATS), "chief 0 of TF_CONFIG (host9:1)"),
        (tf.errors.UnavailableError(None, None, "Socket closed"), "a worker of TF_CONFIG"),
        (tf.errors.UnavailableError(None, None, "/job:worker/task:7"), "a worker of TF_CONFIG"),
    ],
)
def test_a_lost_worker_is_named_with_what_to_do(cluster, exits, error, lost):
    message = message_of(cluster, error)
    assert message.startswith(f"{lost} no longer answers;")
    assert "start the same command again on every worker" in message
    assert exits == [1]


@pytest.mark.parametrize(
    "error", [tf.errors.ResourceExhaustedError(None, None, "no memory"), ValueError("Collective ops is aborted")]
)
def test_an_error_of_this_worker_itself_stays_what_it_is(cluster, exits, error):
    with pytest.raises(type(error)), worker_failures_reported(cluster):
        raise error
    assert exits == []


def test_without_other_workers_nothing_is_reported_as_lost(exits):
    with pytest.raises(tf.errors.UnavailableError), worker_failures_reported(tf.distribute.get_strategy()):
        raise tf.errors.UnavailableError(None, None, RESET)
    assert exits == []
