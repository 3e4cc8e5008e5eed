"""Real processes: told to end, and several workers of one run. (test_kills.py kills them.)"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from electra_tf.config.loader import config_to_yaml
from electra_tf.runs.checkpoints import steps_in

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def start(tmp_path):
    """`start(name, ...)`: the toy task as a process with its output in NAME.log; killed at the end."""
    started = []

    def toy(name: str, *arguments: str, **environment: str) -> subprocess.Popen:
        command = [sys.executable, "-W", "ignore", "-m", "tests.toy", *arguments]
        everything = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
        with open(tmp_path / f"{name}.log", "a") as log:
            options = {"cwd": PROJECT, "stdout": log, "stderr": log, "env": everything}
            # A suite that runs under nohup has SIGHUP ignored, and a child would inherit that.
            started.append(subprocess.Popen(command, preexec_fn=_hear_hangup, **options))
        return started[-1]

    yield toy
    for process in started:
        process.kill()
        process.wait()


def _hear_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def last_step(run: Path) -> int:
    lines = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else []
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)


def wait_until(condition, process, log: Path, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.02)


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_training_process_with_a_checkpoint_of_its_step(start, tmp_path, sent, status):
    process = start("run", str(tmp_path / "run"), "100000")
    wait_until(lambda: last_step(tmp_path / "run") >= 50, process, tmp_path / "run.log")
    process.send_signal(sent)
    assert process.wait(60) == status
    step = steps_in(str(tmp_path / "run" / "checkpoints"))[-1]
    assert (tmp_path / "run.log").read_text().splitlines()[-1] == (
        f"step {step}: checkpoint written; the same command continues the run"
    )


@pytest.fixture
def start_workers(start, tmp_path):
    """`start_workers(num_steps)`: two workers of the run in RUN, with their logs at worker-N.log."""

    def workers(num_steps: int) -> list[subprocess.Popen]:
        sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
        addresses = [f"localhost:{opened.getsockname()[1]}" for opened in sockets]
        for opened in sockets:
            opened.close()
        processes = []
        for index in range(2):
            cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            arguments = (str(tmp_path / "run"), str(num_steps), "multi_worker_mirrored")
            processes.append(start(f"worker-{index}", *arguments, TF_CONFIG=json.dumps(cluster)))
        return processes

    return workers


def test_two_workers_stop_after_the_same_step_and_end_when_one_is_lost_and_continue(start_workers, tmp_path):
    run, logs = tmp_path / "run", [tmp_path / f"worker-{index}.log" for index in range(2)]
    (chief, other) = start_workers(100_000)
    wait_until(lambda: last_step(run) >= 50, chief, logs[0])
    other.send_signal(signal.SIGTERM)
    assert [process.wait(120) for process in (chief, other)] == [143, 143]
    (step,) = {int(log.read_text().rpartition(": checkpoint written; ")[0].rpartition("step ")[2]) for log in logs}
    assert steps_in(str(run / "checkpoints"))[-1] == step

    for lost, how in ((1, signal.SIGSTOP), (0, signal.SIGKILL)):
        workers, reached = start_workers(100_000), last_step(run)
        wait_until(lambda reached=reached: last_step(run) > reached, workers[0], logs[0])
        workers[lost].send_signal(how)
        assert workers[1 - lost].wait(90) == 1
        said = logs[1 - lost].read_text().splitlines()
        assert said[-1].startswith(f"training stopped: worker {lost} of TF_CONFIG (localhost:")
        assert "start the same command again on every worker" in said[-1]
        assert not any("Traceback" in line for line in said)
        workers[lost].kill()
        workers[lost].wait()


def test_damaged_data_ends_the_process_and_not_only_the_training(tmp_path, tiny_config, write_data):
    data_dir, config = write_data(tmp_path / "data", train=[1700]), tmp_path / "tiny.yaml"
    config.write_text(
        config_to_yaml(tiny_config(train={"num_steps": 400, "batch_size": 8, "peak_flops": 1e9})), encoding="utf-8"
    )
    for shard in data_dir.glob("train-*.tfrecord"):
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 0xFF
        shard.write_bytes(content)
    arguments = [f"--config={config}", f"--data_dir={data_dir}", f"--model_dir={tmp_path / 'run'}"]
    command = [sys.executable, "run_pretraining.py", *arguments]
    # The interpreter used to wait for a thread of the input for ever, or to abort.
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert "error: " in done.stderr.splitlines()[-1]
