"""Parity with the authors' code, on a fixture and on the golden sets of ELECTRA_TF_GOLDEN_DIR."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.parity import __main__ as parity
from benchmarks.parity import pretraining
from benchmarks.parity.golden import Comparison, load_arrays
from electra_tf.weights.names import named_variables
from tests.markdown import cells

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "parity"
GOLDEN = os.environ.get("ELECTRA_TF_GOLDEN_DIR")
pytestmark = pytest.mark.slow
needs_golden_sets = pytest.mark.skipif(not GOLDEN, reason="ELECTRA_TF_GOLDEN_DIR is not set")


def test_twenty_steps_reproduce_losses_norms_rates_and_clipping_of_the_authors_code():
    settings = json.loads((FIXTURE / "config.json").read_text(encoding="utf-8"))
    objective = pretraining.build(settings, str(FIXTURE / "init.ckpt"))
    batches, expected = (load_arrays(FIXTURE / f"{name}.npz") for name in ("batches", "trajectory"))
    step = tf.function(objective.train_step)
    metrics = [step(pretraining._batch(batches, index)) for index in range(20)]
    names = {**pretraining._TRAJECTORY_NAMES, "gradient_norm": "global_norm", "learning_rate": "learning_rate"}
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
    objective, batches = pretraining.build(settings, str(FIXTURE / "init.ckpt")), load_arrays(FIXTURE / "batches.npz")
    variables, first = named_variables(objective), pretraining._batch(batches, 0)
    np.savez(directory / "forward.npz", **pretraining._forward_tensors(objective, first))
    gradients = pretraining._gradients(objective, variables, first)
    np.savez(directory / "gradients.npz", **gradients, global_norm=tf.linalg.global_norm(list(gradients.values())))
    step = tf.function(objective.train_step)
    for index in range(20):
        step(pretraining._batch(batches, index))
    np.savez(directory / "final_variables.npz", **{name: each.numpy() for name, each in variables.items()})
    return directory


@pytest.mark.parametrize(
    ("factors", "failing"),
    [
        ({}, []),
        (
            {"forward.npz": 1.001, "gradients.npz": np.nan, "final_variables.npz": 1.001},
            ["set: forward", "set: gradients", "set: training: final weights"],
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
    printed = capsys.readouterr().out
    assert [row[0] for row in cells(printed) if row[3] == "FAIL"] == failing
    assert "of 4 hold" in printed


def test_nan_is_the_largest_difference_and_fails():
    assert Comparison("x", {"a": 1e-9, "b": float("nan"), "c": 5.0}, 1.0).largest() == ("b", float("inf"))


@needs_golden_sets
def test_all_golden_sets_are_reproduced(capsys):
    """The command of figures (a) and (b) of the README."""
    assert parity.main([GOLDEN]) == 0
    assert "FAIL" not in capsys.readouterr().out
