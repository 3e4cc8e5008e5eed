"""Parity with the authors' code, on a fixture and on the golden sets of ELECTRA_TF_GOLDEN_DIR."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.golden import load_arrays
from benchmarks.parity import __main__ as parity
from benchmarks.parity import model
from electra_tf.weights.names import named_variables

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "parity"
GOLDEN = os.environ.get("ELECTRA_TF_GOLDEN_DIR")
pytestmark = pytest.mark.slow
needs_golden_sets = pytest.mark.skipif(not GOLDEN, reason="ELECTRA_TF_GOLDEN_DIR is not set")


def test_twenty_steps_reproduce_losses_norms_rates_and_clipping_of_the_authors_code():
    settings = json.loads((FIXTURE / "config.json").read_text(encoding="utf-8"))
    objective = model.build(settings, str(FIXTURE / "init.ckpt"))
    batches, expected = (load_arrays(FIXTURE / f"{name}.npz") for name in ("batches", "trajectory"))
    step = tf.function(objective.train_step)
    metrics = [step(model._batch(batches, index)) for index in range(20)]
    names = {**model._TRAJECTORY_NAMES, "gradient_norm": "global_norm", "learning_rate": "learning_rate"}
    for ours, theirs in names.items():
        assert [float(values[ours]) for values in metrics] == pytest.approx(expected[theirs], rel=1e-4), ours
    norms = np.array([float(values["gradient_norm"]) for values in metrics])
    assert (norms > 1).sum() == (expected["clip_scale"] < 1).sum()
    assert 1 / np.maximum(norms, 1) == pytest.approx(expected["clip_scale"], rel=1e-4)


@pytest.fixture(scope="module")
def made_up_set(tmp_path_factory) -> Path:
    """The fixture, whose trajectory is the authors', with the forward pass, gradients and weights of our own model."""
    directory = tmp_path_factory.mktemp("golden") / "set"
    shutil.copytree(FIXTURE, directory)
    settings = json.loads((FIXTURE / "config.json").read_text(encoding="utf-8"))
    objective, batches = model.build(settings, str(FIXTURE / "init.ckpt")), load_arrays(FIXTURE / "batches.npz")
    variables, first = named_variables(objective), model._batch(batches, 0)
    np.savez(directory / "forward.npz", **model._forward_tensors(objective, first))
    gradients = model._gradients(objective, variables, first)
    np.savez(directory / "gradients.npz", **gradients, global_norm=tf.linalg.global_norm(list(gradients.values())))
    step = tf.function(objective.train_step)
    for index in range(20):
        step(model._batch(batches, index))
    np.savez(directory / "final_variables.npz", **{name: each.numpy() for name, each in variables.items()})
    return directory


@pytest.mark.parametrize(
    ("factors", "failing"),
    [
        ({}, []),
        (
            {"forward.npz": 1.001, "gradients.npz": np.nan, "final_variables.npz": 1.001},
            ["forward", "gradients", "final_weights"],
        ),
    ],
)
def test_the_command_compares_every_group(made_up_set, tmp_path, capsys, factors, failing):
    directory = tmp_path / "set"
    shutil.copytree(made_up_set, directory)
    for file, factor in factors.items():
        arrays = load_arrays(directory / file)
        np.savez(directory / file, **{name: values * np.float32(factor) for name, values in arrays.items()})
    assert parity.main([str(directory)]) == int(bool(failing))
    report = json.loads(capsys.readouterr().out)
    assert [name for name, value in report["largest_differences"].items() if value > report["limits"][name]] == failing


@needs_golden_sets
@pytest.mark.parametrize("name", ["small_like", "base_like", "bert_like"])
def test_the_golden_sets_are_reproduced(name, capsys):
    assert parity.main([str(Path(GOLDEN) / name)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["within_limits"] is True and report["num_compared"] > 150


@needs_golden_sets
@pytest.mark.parametrize(
    ("file", "key", "group"),
    [
        ("gradients.npz", "discriminator_predictions/dense/kernel", "gradients"),
        ("trajectory.npz", "disc_loss", "trajectory_losses"),
    ],
)
def test_a_perturbed_array_fails_in_its_group(tmp_path, capsys, file, key, group):
    directory = tmp_path / "set"
    shutil.copytree(Path(GOLDEN) / "base_like", directory, copy_function=shutil.copyfile)
    directory.chmod(0o755)
    arrays = load_arrays(directory / file)
    np.savez(directory / file, **{**arrays, key: arrays[key] * 1.001})
    assert parity.main([str(directory)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [name for name, value in report["largest_differences"].items() if value > report["limits"][name]] == [group]
