"""The ladder's program for a GPU: it computes our steps by our laws, and its results become runs."""

import argparse
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.api.pretraining import compiled_objective, pretrain
from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.models.layers import seed_initial_values
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.checkpoints import Checkpoints
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.step import compile_task, training_step
from experiments.processes import PROJECT
from experiments.replication import plan, stacked
from experiments.replication.arms import ARMS
from tests.tiny import CLS, MASK, PAD, SEP

JAX_PYTHON = os.environ.get("ELECTRA_TF_TPU_COMPILE_PYTHON")  # of benchmarks/requirements-tpu-compile.txt: it has JAX
needs_jax = pytest.mark.skipif(not JAX_PYTHON, reason="ELECTRA_TF_TPU_COMPILE_PYTHON is not set: no JAX")
SPECIAL_IDS = {"pad_id": PAD, "cls_id": CLS, "sep_id": SEP, "mask_id": MASK}
_SETTINGS = {
    "encoder": {"hidden_dropout": 0.0, "attention_dropout": 0.0, "num_layers": 2},
    "optimizer": {"warmup_steps": 2},
    "masking": {"mask_token_fraction": 0.7, "random_token_fraction": 0.2},
    "stages": [
        {"num_steps": 6, "max_seq_length": 10, "batch_size": 5},
        {"num_steps": 2, "max_seq_length": 10, "batch_size": 4},
    ],
}


def arm_config(tiny_config, arm: str, **objective):
    return tiny_config(**_SETTINGS, objective={"name": arm.removeprefix("ladder_"), **objective})


def run_jax(program: str, directory: Path) -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(PROJECT)}
    command = [JAX_PYTHON, "-c", program, str(directory)]
    finished = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-3000:]


_THREE_STEPS = """
import json, sys
import jax.numpy as jnp, numpy as np
from experiments.replication.stacked_program import update

folder = sys.argv[1]
arm, weights = json.load(open(f"{folder}/arm.json")), jnp.asarray(np.load(f"{folder}/initial.npy"))
columns, losses = np.load(f"{folder}/batches.npz"), []
vectors = weights, jnp.zeros_like(weights), jnp.zeros_like(weights)
for step in range(3):
    batch = {name: jnp.asarray(values[step]) for name, values in columns.items()}
    vectors, of_step = update(vectors, jnp.int32(step), batch, arm, 0.0)
    losses.append(float(of_step["loss"]))
np.save(f"{folder}/weights.npy", vectors[0])
json.dump(losses, open(f"{folder}/losses.json", "w"))
"""


@pytest.mark.slow
@needs_jax
@pytest.mark.parametrize("arm", ARMS)
def test_the_program_computes_the_steps_of_training(arm, tiny_config, tiny_batch, tmp_path):
    objective = {"sampling": "greedy"} if arm == "ladder_electra" else {}
    config = arm_config(tiny_config, arm, **objective)
    seed_initial_values(3)
    task = compile_task(build_objective(config))
    batches = [tiny_batch(config, [9, 5, 10, 7], seed) for seed in (1, 2, 3)]
    columns = {name: np.stack([batch[name] for batch in batches]) for name in batches[0] if "unigram" not in name}
    (tmp_path / "arm.json").write_text(json.dumps(stacked.arm_settings(arm, task, [3], SPECIAL_IDS)))
    np.save(tmp_path / "initial.npy", vector_of(task))
    np.savez(tmp_path / "batches.npz", **columns)
    losses = [float(training_step(task, batch)["loss"]) for batch in batches]
    run_jax(_THREE_STEPS, tmp_path)
    assert json.loads((tmp_path / "losses.json").read_text()) == pytest.approx(losses, rel=1e-6)
    # An update is at most 3 learning rates of 1e-2 and moves by 1e-4 of itself if its gradient has an error of 1e-4.
    np.testing.assert_allclose(np.load(tmp_path / "weights.npy"), vector_of(task), atol=1e-5)


_INTERRUPTED = """
import json, shutil, sys
from pathlib import Path
import numpy as np
from experiments.replication import stacked_program

stacked_program.steps_of_a_call = lambda length: 2
whole, parts = Path(sys.argv[1], "whole"), Path(sys.argv[1], "parts")
shutil.copytree(whole, parts)
steps = [report["step"] for report in stacked_program.train_arm(whole)]
begun = stacked_program.train_arm(parts)
next(begun), next(begun)  # the second call is not kept
rest = [report["step"] for report in stacked_program.train_arm(parts)]
for seed in (5, 3):
    np.testing.assert_array_equal(np.load(whole / f"seed{seed}.npy"), np.load(parts / f"seed{seed}.npy"))
assert not np.array_equal(np.load(whole / "seed3.npy"), np.load(whole / "seed5.npy"))
json.dump([steps, rest], open(Path(sys.argv[1], "steps.json"), "w"))
"""


@pytest.mark.slow
@needs_jax
def test_an_interrupted_program_continues_to_the_same_weights(tiny_config, tmp_path):
    task = compile_task(build_objective(arm_config(tiny_config, "ladder_electra")))
    (tmp_path / "whole").mkdir()
    settings = stacked.arm_settings("ladder_electra", task, [5, 3], SPECIAL_IDS)
    (tmp_path / "whole" / "arm.json").write_text(json.dumps(settings))
    np.save(tmp_path / "whole" / "initial.npy", np.stack([vector_of(task)] * 2))
    words = np.random.default_rng(0).integers(5, 47, [7, 10]).astype(np.uint16)
    words[:, 0], words[:, -1] = CLS, SEP
    np.save(tmp_path / "texts10.npy", words)
    run_jax(_INTERRUPTED, tmp_path)
    assert json.loads((tmp_path / "steps.json").read_text()) == [[2, 4, 6, 8], [4, 6, 8]]


_MASKS = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from experiments.replication.stacked_program import draw_masks

folder = sys.argv[1]
arm, ids = json.load(open(f"{folder}/arm.json")), np.load(f"{folder}/ids.npy")
np.savez(f"{folder}/masks.npz", **draw_masks(jax.random.key(0), jnp.asarray(ids), arm, num_slots=4))
"""


@pytest.mark.slow
@needs_jax
def test_the_program_draws_masks_by_the_law_of_masking(tiny_config, tmp_path):
    config = arm_config(tiny_config, "ladder_bert_mlm")
    rows, row = 8000, [CLS, 40, 41, 42, SEP, 43, 44, SEP, PAD, PAD]
    task = compile_task(build_objective(config))
    (tmp_path / "arm.json").write_text(json.dumps(stacked.arm_settings("ladder_bert_mlm", task, [3], SPECIAL_IDS)))
    np.save(tmp_path / "ids.npy", np.tile(np.int32(row), [rows, 1]))
    run_jax(_MASKS, tmp_path)
    masks = np.load(tmp_path / "masks.npz")
    assert masks["segment_ids"][0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert masks["input_mask"][0].tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]
    assert (masks["masked_lm_weights"] == [1, 1, 0, 0]).all()  # 0.3 of 8 tokens is 2.4
    used = masks["masked_lm_positions"][:, :2]
    assert (used[:, 0] != used[:, 1]).all()
    counts = np.bincount(used.ravel(), minlength=10)
    assert (counts[[0, 4, 7, 8, 9]] == 0).all()
    shown = np.take_along_axis(masks["masked_input_ids"], used, axis=1)
    is_mask, is_kept = shown == MASK, shown == masks["masked_lm_ids"][:, :2]
    # Five standard deviations: 8,000 rows select a candidate with probability 0.4; 16,000 tokens.
    assert np.abs(counts[[1, 2, 3, 5, 6]] - 0.4 * rows).max() < 5 * (rows * 0.4 * 0.6) ** 0.5
    assert abs(is_mask.mean() - (0.7 + 0.2 / 47)) < 5 * (0.7 * 0.3 / 16000) ** 0.5
    assert abs(is_kept.mean() - (0.1 + 0.2 / 47)) < 5 * (0.1 * 0.9 / 16000) ** 0.5
    untouched = np.ones([rows, 10], bool)
    np.put_along_axis(untouched, used, False, axis=1)
    assert (masks["masked_input_ids"] == masks["input_ids"])[untouched].all()


@pytest.mark.slow
def test_trained_weights_become_runs(tiny_config, write_data, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "CONFIGS", tmp_path)
    for arm in ARMS:
        (tmp_path / f"{arm}.yaml").write_text(config_to_yaml(arm_config(tiny_config, arm)), encoding="utf-8")
    arguments = argparse.Namespace(
        stacked=tmp_path / "stacked",
        budget_steps=64,
        seeds=[5, 3],
        data_dirs=[str(write_data(tmp_path / "data"))] * 2,
        output_dir=tmp_path / "runs",
    )
    stacked.prepare(arguments)
    assert np.load(tmp_path / "stacked" / "texts10.npy").shape == (12, 10)
    for arm in ARMS:
        initial = np.load(tmp_path / "stacked" / arm / "initial.npy")
        for seed, weights in zip((5, 3), initial, strict=True):
            np.save(tmp_path / "stacked" / arm / f"seed{seed}.npy", weights + seed)
        settings = json.loads((tmp_path / "stacked" / arm / "arm.json").read_text())
        report = {"step": settings["num_steps"], "seconds": 3.0, "loss": [6.0, 5.0]}
        lines = [{"step": 48, "seconds": 2.0, "loss": [7.0, 8.0]}, report]
        (tmp_path / "stacked" / arm / "reports.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(UserError, match="ladder_electra is not trained for the 65 steps"):
        stacked.adopt(argparse.Namespace(**{**vars(arguments), "budget_steps": 65}))
    arguments.seeds = [3, 5]  # rows are found by their seeds
    stacked.adopt(arguments)
    planned = plan.PlannedRun("ladder_electra", 3, 64, arguments)
    directory, strategy = RunDirectory(planned.directory), tf.distribute.OneDeviceStrategy("/cpu:0")
    assert directory.reports("train") == [
        {"step": 48, "split": "train", "loss": 8.0, "examples_per_second": 48 * 5 / 2.0},
        {"step": 64, "split": "train", "loss": 5.0, "examples_per_second": 16 * 4 / 1.0},
    ]
    loop = DeviceLoop(compiled_objective(planned.config, strategy), strategy)
    initial = vector_of(loop.task)
    assert Checkpoints(loop.task, directory, True, 1, metrics=loop.metrics).restore_latest() == 64
    np.testing.assert_array_equal(vector_of(loop.task), initial + 3)
    assert not planned.training.is_trained()
    run = planned.training
    pretrain(run.config_file, run.data_dirs, run.directory, settings=run.overrides)
    assert planned.training.is_trained()
    with pytest.raises(UserError, match="exists"):
        stacked.adopt(arguments)


def vector_of(task) -> np.ndarray:
    return np.concatenate([variable.numpy().ravel() for variable in task.trainable_variables])
