"""Two real worker processes, one of which dies: the other ends soon and in one line, and the same commands go on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.replicas.__main__ import worker_environments
from electra_tf.config.loader import config_to_yaml

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def start_workers(tmp_path, tiny_config, write_data):
    """`start_workers()`: both workers of one run, each with its log at `tmp_path/worker-N.log`; killed at the end."""
    config = tiny_config(train={"num_steps": 100_000, "batch_size": 4, "log_every_steps": 5, "save_every_steps": 5})
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    data_dir, started = write_data(tmp_path / "set"), []

    def start(*flags: str) -> list[subprocess.Popen]:
        command = [sys.executable, PROJECT / "run_pretraining.py", f"--config={tmp_path / 'tiny.yaml'}", *flags]
        command += [f"--data_dir={data_dir}", f"--model_dir={tmp_path / 'run'}", "--strategy=multi_worker_mirrored"]
        for index, environment in enumerate(worker_environments(2)):
            with open(tmp_path / f"worker-{index}.log", "w") as log:
                everything = {**os.environ, **environment, "TF_CPP_MIN_LOG_LEVEL": "3"}
                started.append(subprocess.Popen(command, stdout=log, stderr=log, env=everything))
        return started[-2:]

    yield start
    for process in started:
        process.kill()
        process.wait()


def last_step(run: Path) -> int:
    """The last step that the run has reported, 0 if there is none."""
    if not (run / "metrics.jsonl").exists():
        return 0
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return max((json.loads(line)["step"] for line in lines), default=0)


def wait_until(condition, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "how"), [(1, signal.SIGKILL), (0, signal.SIGKILL), (1, signal.SIGSTOP)])
def test_when_a_worker_is_lost_the_other_ends_within_a_minute_in_one_line_and_the_run_resumes(
    start_workers, tmp_path, lost, how
):
    workers = start_workers()
    wait_until(lambda: last_step(tmp_path / "run") >= 10)
    workers[lost].send_signal(how)
    survivor = workers[1 - lost]
    assert survivor.wait(timeout=60) == 1
    said = (tmp_path / f"worker-{1 - lost}.log").read_text(encoding="utf-8").splitlines()
    assert said[-1].startswith(f"training stopped: worker {lost} of TF_CONFIG (127.0.0.1:")
    assert "start the same command again on every worker" in said[-1]
    assert not any("Traceback" in line for line in said)
    workers[lost].kill()
    workers[lost].wait()
    reached = last_step(tmp_path / "run")
    again = start_workers(f"--stop_at_step={reached + 10}")
    assert [worker.wait(timeout=240) for worker in again] == [0, 0]
    assert last_step(tmp_path / "run") == reached + 10
