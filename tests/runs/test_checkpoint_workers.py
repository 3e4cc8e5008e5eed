"""Checkpoints of two worker processes that talk over the loopback interface."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from electra_tf.config.loader import config_to_yaml
from electra_tf.runs.checkpoint_files import CheckpointFolder

PROJECT = Path(__file__).resolve().parents[2]

# Each worker adds its own number + 1 to its part of `seen`, so that a sum over both workers is 3 times the step.
_WORKER = """
import json, os, sys
import tensorflow as tf

task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.tasks.pretrain import build_objective
from electra_tf.runs.checkpoint import Checkpoints
from electra_tf.runs.directory import RunDirectory
from electra_tf.train.step import compile_task

with strategy.scope():
    objective = compile_task(build_objective(load_config(sys.argv[3])))
    seen = tf.Variable(
        0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
    )
checkpoints = Checkpoints(
    objective, RunDirectory(sys.argv[1]), chief=task == 0, keep=2, asynchronous=sys.argv[2] == "asynchronous", seen=seen
)
first = checkpoints.restore_latest()
print("restored", first, float(seen.read_value()), flush=True)

@tf.function
def step():
    strategy.run(lambda: seen.assign_add(task + 1.0))

for number in range(first + 1, first + 4):
    step()
    objective.optimizer.iterations.assign(number)
    objective.encoder.embeddings.token_type_embeddings.assign(tf.fill([2, 12], float(number)))
    checkpoints.save(number)
checkpoints.write_milestone(number)
checkpoints.close()
print("saved", number, float(objective.encoder.embeddings.token_type_embeddings[1, 11]), flush=True)
"""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def _run_workers(model_dir: Path, mode: str, config_file: Path) -> list[list[str]]:
    """What each of two workers says, line by line."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in _free_ports(2)]}
    processes = []
    for index in range(2):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        environment = {**os.environ, "TF_CONFIG": config, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-c", _WORKER, str(model_dir), mode, str(config_file)]
        processes.append(
            subprocess.Popen(
                command, cwd=PROJECT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
    try:
        outputs = [process.communicate(timeout=180) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], [errors[-2000:] for _, errors in outputs]
    return [output.splitlines() for output, _ in outputs]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_two_workers_save_together_the_chief_writes_and_both_continue(tiny_config, tmp_path, mode):
    config_file = tmp_path / "tiny.yaml"
    config_file.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    first = _run_workers(tmp_path, mode, config_file)
    assert first == [["restored 0 0.0", "saved 3 3.0"]] * 2
    assert CheckpointFolder(tmp_path / "checkpoints").newest_whole() == 3
    assert CheckpointFolder(tmp_path / "milestones").newest_whole() == 3
    # The parts of both workers: (1 + 2) in each of three steps.
    assert _run_workers(tmp_path, mode, config_file) == [["restored 3 9.0", "saved 6 6.0"]] * 2
    assert CheckpointFolder(tmp_path / "checkpoints").steps() == [5, 6]
