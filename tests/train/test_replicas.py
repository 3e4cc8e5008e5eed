"""N replicas equal one: a global batch on 1, 2 and 4 devices and on 2 worker processes, ten steps each.

    ELECTRA_TF_REPLICAS=all python -m pytest -s tests/train/test_replicas.py

In float32, with dropout, and with unequal numbers of real and masked tokens per replica. Each case is compared with one
device that trains on the whole batch. Prints the largest relative difference of any loss of any step, and of any weight
tensor (norm of the difference over the norm of the tensor). Without the variable only a few cases run. All take about
half an hour on 2 cores.
"""

import contextlib
import itertools
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from electra_tf.config.networks import BLOCKS

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[2]
LIMIT = 1e-6
# The gradient of a bias before a softmax is rounding noise, which Adam divides by its own size. So the norm of a tensor
# counts as at least this fraction of the root mean square of all weights.
SMALLEST_SCALE = 1e-2
TIMEOUT_SECONDS = 1800
DIVISIONS = {
    "1 device": ("one_device", "1"),
    "2 devices": ("mirrored", "2"),
    "4 devices": ("mirrored", "4"),
    "2 workers": ("multi_worker_mirrored", "1"),
}
# Variants as in tests/train/replica_steps.py.
ALL = [":".join(parts) for parts in itertools.product(("electra", "bert_mlm"), "124", ("tensorflow", "xla"), BLOCKS)]
FEW = {
    "1 device": [],  # tests/train/test_step.py has it
    "2 devices": ["electra:2:tensorflow:modern"],
    "4 devices": ["electra:2:xla:bert"],
    "2 workers": ["electra:1:tensorflow:bert"],
}
CASES = dict.fromkeys(DIVISIONS, ALL) if os.environ.get("ELECTRA_TF_REPLICAS") == "all" else FEW


def run_division(division: str, variants: list[str], directory: Path) -> None:
    """Trains the variants in one division, with results in DIRECTORY/VARIANT.npz."""
    directory.mkdir()
    command = [sys.executable, "-W", "ignore", "-m", "tests.train.replica_steps", str(directory), *DIVISIONS[division]]
    inherited = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    with contextlib.ExitStack() as stack:
        processes = []
        for environment in worker_environments(2) if division == "2 workers" else [{}]:
            log = stack.enter_context(open(directory / f"{len(processes)}.log", "wb"))
            options = {"env": {**inherited, **environment}, "stdout": log, "stderr": log}
            processes.append(subprocess.Popen([*command, *dict.fromkeys(variants)], cwd=PROJECT, **options))
            stack.callback(processes[-1].kill)
        for number, process in enumerate(processes):
            assert process.wait(TIMEOUT_SECONDS) == 0, (directory / f"{number}.log").read_text()[-2000:]


def worker_environments(num_workers: int) -> list[dict[str, str]]:
    """TF_CONFIG for each worker of a cluster on this machine, at ports that are free now."""
    with contextlib.ExitStack() as sockets:
        listeners = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(num_workers)]
        addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    tasks = [{"type": "worker", "index": index} for index in range(num_workers)]
    return [{"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})} for task in tasks]


def differences(actual_file: Path, expected_file: Path) -> tuple[float, float, str]:
    """The largest relative differences of losses and of weights, and the tensor of the latter; infinite for NaN."""
    with np.load(actual_file) as stored, np.load(expected_file) as reference:
        actual, expected = dict(stored), dict(reference)
    weights = {name: values.astype(np.float64) for name, values in expected.items() if name.startswith("weights/")}
    metrics = {name: values for name, values in expected.items() if name.startswith("metrics/")}
    losses = [np.abs(actual[name] - values) / np.maximum(np.abs(values), 1e-30) for name, values in metrics.items()]
    mean_square = np.mean(np.concatenate([values.ravel() for values in weights.values()]) ** 2)
    by_tensor = {
        name: np.linalg.norm(actual[name] - values)
        / max(np.linalg.norm(values), SMALLEST_SCALE * np.sqrt(mean_square * values.size))
        for name, values in weights.items()
    }
    by_tensor = {name: float(np.nan_to_num(value, nan=np.inf)) for name, value in by_tensor.items()}
    worst = max(by_tensor, key=by_tensor.get)
    return float(np.nan_to_num(losses, nan=np.inf).max()), by_tensor[worst], worst.removeprefix("weights/")


def test_replicas_equal_one_device_with_the_whole_batch(tmp_path):
    references = {variant: re.sub(r":\d:", ":1:", variant) for variants in CASES.values() for variant in variants}
    run_division("1 device", list(references.values()), tmp_path / "references")
    results = []
    for division, variants in filter(lambda case: case[1], CASES.items()):
        run_division(division, variants, tmp_path / division)
        for variant in variants:
            expected = tmp_path / "references" / f"{references[variant]}.npz"
            results.append(differences(tmp_path / division / f"{variant}.npz", expected))
            losses, weights, name = results[-1]
            print(f"{variant:27} {division:10} losses {losses:.1e} weights {weights:.1e} {name}", flush=True)
    losses, weights = (max(result[index] for result in results) for index in (0, 1))
    print(f"largest differences: losses {losses:.1e}, weights {weights:.1e}; limit {LIMIT:.0e}")
    assert losses < LIMIT and weights < LIMIT
