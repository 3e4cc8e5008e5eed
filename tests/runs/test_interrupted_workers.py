"""Several workers stop after the same step, whichever of them the signal meets."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.common import PROJECT
from benchmarks.kills.killed_run import training_command
from electra_tf.config.loader import config_to_yaml
from electra_tf.runs.directory import RunDirectory

_PATIENCE_SECONDS = 300


@pytest.fixture
def start_workers(tiny_config, write_data, tmp_path):
    """`start_workers()`: two processes of one run in `tmp_path / "run"`, with their logs."""
    config = tiny_config(train={"num_steps": 50_000, "log_every_steps": 500, "save_every_steps": 50_000})
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    command = training_command(tmp_path / "tiny.yaml", [str(write_data(tmp_path / "data"))], [])
    command += [f"--model_dir={tmp_path / 'run'}", "--strategy=multi_worker_mirrored"]
    started = []

    def start() -> list[tuple[subprocess.Popen, Path]]:
        addresses = [f"localhost:{port}" for port in _unused_ports(2)]
        for index in range(2):
            cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            log = tmp_path / f"worker-{index}.log"
            with open(log, "wb") as stream:
                environment = {**os.environ, "TF_CONFIG": json.dumps(cluster)}
                process = subprocess.Popen(command, cwd=PROJECT, stdout=stream, stderr=stream, env=environment)
            started.append((process, log))
        return started

    yield start
    for process, _ in started:
        process.kill()
        process.wait()


def _unused_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


@pytest.mark.slow
def test_two_workers_stop_after_the_same_step_when_one_is_told_to(start_workers, tmp_path):
    (chief, chief_log), (other, other_log) = start_workers()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while "step 500/" not in chief_log.read_text():
        assert chief.poll() is None and other.poll() is None, chief_log.read_text()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    other.send_signal(signal.SIGTERM)
    assert [process.wait(_PATIENCE_SECONDS) for process in (chief, other)] == [143, 143]
    step = int(Path(RunDirectory(tmp_path / "run").latest_checkpoint()).name.removeprefix("step-"))
    assert 500 <= step < 50_000
    for log in (chief_log, other_log):
        assert f"step {step}: checkpoint written; the same command continues the run" in log.read_text()
