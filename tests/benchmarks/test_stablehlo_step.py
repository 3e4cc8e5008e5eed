"""The exported step: its program and manifest here; that JAX computes TensorFlow's numbers, where there is a JAX."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.stablehlo_step.__main__ import main
from benchmarks.stablehlo_step.export import build_step, state_variables
from electra_tf.data.batch import batch_specs
from electra_tf.tasks.pretrain.config import load_config

PROJECT = Path(__file__).resolve().parents[2]
JAX_PYTHON = os.environ.get("ELECTRA_TF_JAX_PYTHON")  # of an environment with JAX: docs/accelerators.md
needs_jax = pytest.mark.skipif(not JAX_PYTHON, reason="ELECTRA_TF_JAX_PYTHON is not set")
NUM_STEPS = 5
# A learning rate at which five steps change the losses, and no warm-up.
REDUCED = (
    "encoder.vocab_size=997",
    "data.max_seq_length=24",
    "train.batch_size=6",
    "optimizer.warmup_steps=0",
    "optimizer.learning_rate=1e-4",
)


def settings(*overrides: str) -> list[str]:
    return [part for override in overrides for part in ("--set", override)]


def jax_command(*arguments: str) -> None:
    command = [JAX_PYTHON, "-m", "benchmarks.stablehlo_step", *arguments]
    finished = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert finished.returncode == 0, finished.stderr[-2000:]


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "objective", "precision"),
    [
        ("small", "electra", "float32"),
        ("small", "electra", "bfloat16"),
        ("base", "electra", "float32"),
        ("base", "electra", "bfloat16"),
        ("small", "bert_mlm", "float32"),
        ("small", "bert_mlm", "bfloat16"),
        ("small", "adversarial", "float32"),
        ("small", "all_tokens_mlm", "float32"),
    ],
)
def test_five_steps_under_jax_are_those_of_tensorflow(size, objective, precision, tmp_path):
    config_file = PROJECT / "configs" / "pretrain" / f"{size}.yaml"
    overrides = [
        *REDUCED,
        f"encoder.num_layers={2 if size == 'small' else 1}",
        f"objective.name={objective}",
        f"train.precision={precision}",
        "train.gradient_accumulation_steps=2",
    ]
    step = tmp_path / "step"
    assert main(["export", str(step), f"--config={config_file}", *settings(*overrides), "--state"]) == 0
    rows, final = tmp_path / "rows.jsonl", tmp_path / "final.npz"
    jax_command("run", str(step), "--warmup=0", "--rounds=1", f"--steps={NUM_STEPS}", f"--output={rows}", f"--final_state={final}")
    losses, weights = steps_of_tensorflow(load_config(config_file, overrides), step)
    found = json.loads(rows.read_text())["losses"]
    with np.load(final) as stored:
        off = {name: float(np.abs(stored[name] - value).max()) for name, value in weights.items()}
    worst = max(off, key=off.get)
    print("LOSSES", losses, found, "WORST", worst, off[worst], max(abs(a/b-1) for a,b in zip(found, losses)))
    np.testing.assert_allclose(found, losses, rtol=1e-5)


def steps_of_tensorflow(config, step: Path) -> tuple[list[float], dict[str, np.ndarray]]:
    """The loss of each step, and the weights after the last."""
    objective, _ = build_step(config, replicas=1)
    with np.load(step / "batches.npz") as stored:
        columns = dict(stored)
    train = tf.function(objective.train_step, autograph=False)
    losses = []
    for index in range(NUM_STEPS):
        batch = {name: tf.constant(columns[name][index % 4]) for name in batch_specs(config, 1)}
        losses.append(float(train(batch)["loss"]))
    return losses, {name: variable.numpy() for name, variable in state_variables(objective).items()}
