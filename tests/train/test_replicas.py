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

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.networks import BLOCKS
from electra_tf.data.masking import MaskingVocabulary, mask_batch
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, parse_config
from electra_tf.train.distribution import build_strategy, is_chief, split_cpu
from electra_tf.train.step import compile_task
from tests.toy import step_on_replicas

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
# OBJECTIVE:MICRO_BATCHES:COMPILER:BLOCK, where the compiler is `xla` or `tensorflow`.
ALL = [":".join(parts) for parts in itertools.product(("electra", "bert_mlm"), "124", ("tensorflow", "xla"), BLOCKS)]
FEW = {
    "1 device": [],  # tests/train/test_step.py has it
    "2 devices": ["electra:2:tensorflow:modern"],
    "4 devices": ["electra:2:xla:bert"],
    "2 workers": ["electra:1:tensorflow:bert"],
}
CASES = dict.fromkeys(DIVISIONS, ALL) if os.environ.get("ELECTRA_TF_REPLICAS") == "all" else FEW
NUM_STEPS = 10
# Tokens of each row. The first of four replicas has seven times the last one's tokens; the last row is empty.
LENGTHS = (32, 32, 30, 32, 31, 20, 24, 13, 18, 12, 16, 9, 7, 5, 6, 0)
# Layers 0, 1 and 2 attend to all, near and near tokens. Rows are 8 times as long, so that near means in blocks of 64.
MODERN = {"block": "modern", "num_layers": 3, "max_position_embeddings": 256}


def run_division(division: str, variants: list[str], directory: Path) -> None:
    """Trains the variants in one division, with results in DIRECTORY/VARIANT.npz."""
    directory.mkdir()
    command = [sys.executable, "-W", "ignore", "-m", "tests.train.test_replicas", str(directory), *DIVISIONS[division]]
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


def train_steps(strategy: tf.distribute.Strategy, variant: str) -> dict[str, np.ndarray]:
    """Trains ten steps. Returns: the metrics of each step and the last weights."""
    config = build_config(variant)
    keras.utils.set_random_seed(config.train.seed)
    with strategy.scope():
        objective = compile_task(build_objective(config))
    step = tf.function(objective.train_step)
    steps = [step_on_replicas(strategy, step, make_batch(config, number)) for number in range(NUM_STEPS)]
    arrays = {f"metrics/{name}": np.array([float(metrics[name]) for metrics in steps]) for name in steps[0]}
    variables = enumerate(objective.trainable_variables)
    return arrays | {f"weights/{index}/{variable.name}": variable.numpy() for index, variable in variables}


def build_config(variant: str) -> PretrainingConfig:
    """Two or three layers with dropout, float32, and a learning rate large enough to change the weights."""
    name, micro_batches, compiler, block = variant.split(":")
    objective = {"name": name}
    if name == "electra":
        objective["generator"] = {"size_fraction": 0.5, "num_heads": 2}
    encoder = MODERN if block == "modern" else {}
    sizes = {"vocab_size": 211, "embedding_size": 24, "hidden_size": 32, "num_layers": 2, "num_heads": 4}
    values = {
        "encoder": {**sizes, "intermediate_size": 48, "max_position_embeddings": 40, **encoder},
        "objective": objective,
        "data": {"max_seq_length": max(LENGTHS) * (8 if block == "modern" else 1)},
        "optimizer": {"learning_rate": 5e-4, "warmup_steps": 2},
        "train": {
            "num_steps": 100,
            "batch_size": len(LENGTHS),
            "gradient_accumulation_steps": int(micro_batches),
            "xla": compiler == "xla",
        },
    }
    return parse_config(values, source="test_replicas")


def make_batch(config: PretrainingConfig, number: int) -> dict[str, tf.Tensor]:
    """The global batch of a step: random words in rows of (a multiple of) `LENGTHS`, masked."""
    size, length = config.encoder.vocab_size, config.data.max_seq_length
    losses = np.linspace(1.0, 9.0, size, dtype=np.float32)
    special = MaskingVocabulary(cls_id=1, sep_id=2, mask_id=3, vocab_size=size, unigram_losses=losses)
    lengths = np.array(LENGTHS) * (length // max(LENGTHS))
    input_mask = (np.arange(length) < lengths[:, np.newaxis]).astype(np.int32)
    words = np.random.default_rng(number).integers(4, size, input_mask.shape).astype(np.int32)
    segment_ids = input_mask * (np.arange(length) > 8)
    batch = {"input_ids": words * input_mask, "input_mask": input_mask, "segment_ids": segment_ids}
    tensors = {name: tf.constant(rows, tf.int32) for name, rows in batch.items()}
    return mask_batch(tensors, config.masking, special, RandomStream(0, number, 0))


def main(directory: str, strategy_name: str, num_devices: str, *variants: str) -> None:
    """One process of the test. Writes DIRECTORY/VARIANT.npz: `metrics/NAME` of every step, last `weights/NAME`."""
    tf.config.set_visible_devices([], "GPU")
    if int(num_devices) > 1:
        split_cpu(int(num_devices))
    strategy = build_strategy(strategy_name)
    for variant in variants:
        arrays = train_steps(strategy, variant)
        if is_chief(strategy):
            np.savez(Path(directory) / f"{variant}.npz", **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
