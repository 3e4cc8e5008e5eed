"""Real processes: two workers of one run, damaged data, and a run in Google's storage."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from electra_tf.config.loader import config_to_yaml
from electra_tf.train.checkpoints import steps_in
from tests.google_storage import HOSTS, start_google_storage
from tests.namespaces import ROOT, namespace, needs_namespaces, start
from tests.train.runs import wait_until
from tests.train.test_replicas import worker_environments

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def start_workers(tmp_path):
    """`start_workers(*runs)`: two workers of the toy run in these directories, with logs in worker-N.log."""
    started = []

    def start(*runs: Path) -> list[subprocess.Popen]:
        environments = worker_environments(2)
        for index, run in enumerate(runs):
            command = [sys.executable, "-W", "ignore", "-m", "tests.toy", str(run), "100000"]
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environments[index]}
            with open(tmp_path / f"worker-{index}.log", "a") as log:
                options = {"cwd": PROJECT, "stdout": log, "stderr": log, "env": environment}
                started.append(subprocess.Popen([*command, "multi_worker_mirrored"], **options))
        return started[-2:]

    yield start
    for process in started:
        process.kill()
        process.wait()


def last_step(run: Path) -> int:
    lines = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else []
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)


def test_two_workers_end_after_the_same_step_and_also_if_one_is_lost(start_workers, tmp_path):
    run, logs = tmp_path / "run", [tmp_path / f"worker-{index}.log" for index in range(2)]
    (chief, other) = start_workers(run, run)
    wait_until(lambda: last_step(run) >= 50, chief, logs[0])
    other.send_signal(signal.SIGTERM)
    assert [process.wait(120) for process in (chief, other)] == [143, 143]
    (step,) = {int(log.read_text().rpartition(": checkpoint written; ")[0].rpartition("step ")[2]) for log in logs}
    assert steps_in(str(run / "checkpoints"))[-1] == step

    for lost, sent in ((1, signal.SIGSTOP), (0, signal.SIGKILL)):
        workers, reached = start_workers(run, run), last_step(run)
        wait_until(lambda reached=reached: last_step(run) > reached, workers[0], logs[0])
        workers[lost].send_signal(sent)
        assert workers[1 - lost].wait(90) == 1
        log = logs[1 - lost].read_text()
        assert log.splitlines()[-1].startswith(f"training stopped: worker {lost} of TF_CONFIG (127.0.0.1:")
        assert "Traceback" not in log
        workers[lost].kill()
        workers[lost].wait()

    assert [process.wait(120) for process in start_workers(run, tmp_path / "other")] == [2, 2]
    assert "the workers found checkpoints of different steps (0, " in logs[0].read_text()


def test_damaged_data_ends_the_process(tmp_path, tiny_config, write_data):
    data_dir, config = write_data(tmp_path / "data", train=[1700]), tmp_path / "tiny.yaml"
    config.write_text(config_to_yaml(tiny_config(train={"num_steps": 400, "batch_size": 8, "peak_flops": 1e9})))
    (shard,) = data_dir.glob("train-*.tfrecord")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(content)
    flags = [f"--config={config}", f"--data_dir={data_dir}", f"--model_dir={tmp_path / 'run'}"]
    command = [sys.executable, "run_pretraining.py", *flags]
    # A thread of the input could make the interpreter wait for ever, or abort.
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert "error: " in done.stderr.splitlines()[-1]


READ = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1]).read())"


@needs_namespaces
@pytest.mark.skipif(
    not (importlib.util.find_spec("gcp_storage_emulator") and shutil.which("openssl")),
    reason="pip install -r tests/requirements-stores.txt; apt install openssl",
)
def test_a_run_in_gs_that_was_stopped_and_continued_has_the_weights_of_a_local_one(tiny_config, write_data, tmp_path):
    data, checkpoint = write_data(tmp_path / "data"), "checkpoints/step-8.data-00000-of-00001"
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config(train={"save_every_steps": 4})))
    command = [ROOT / "run_pretraining.py", f"--config={tmp_path}/tiny.yaml", "--strategy=one_device"]
    with namespace("google", HOSTS) as machine:
        variables = start_google_storage(machine, data, tmp_path)

        def train(data_dir, model_dir, *further) -> int:
            flags = [f"--data_dir={data_dir}", f"--model_dir={model_dir}", *further]
            return start(machine, [*command, *flags], tmp_path / "run.log", **variables).wait(300)

        assert train(data, tmp_path / "run") == 0
        assert train("gs://bucket/data", "gs://bucket/run", "--stop_at_step=4") == 0
        assert train("gs://bucket/data", "gs://bucket/run") == 0
        url = f"http://localhost/bucket/run/{checkpoint}"
        command = ["ip", "netns", "exec", machine, sys.executable, "-c", READ, url]
        stored = subprocess.run(command, check=True, capture_output=True).stdout
    assert stored == (tmp_path / "run" / checkpoint).read_bytes()
