import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import parity, parity_model
from electra_tf.convert.tf1 import tf1_variables

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "parity"
GOLDEN = os.environ.get("ELECTRA_TF_GOLDEN_DIR")
needs_golden_sets = pytest.mark.skipif(not GOLDEN, reason="ELECTRA_TF_GOLDEN_DIR is not set")
# Ours, theirs.
NAMES = {
    "masked_lm": "mlm_loss",
    "replaced_token": "disc_loss",
    "loss": "total_loss",
    "gradient_norm": "global_norm",
    "learning_rate": "learning_rate",
}


def build():
    settings = json.loads((FIXTURE / "config.json").read_text(encoding="utf-8"))
    return parity_model.build(settings, str(FIXTURE / "init.ckpt"))


def train(objective, num_steps: int) -> dict[str, np.ndarray]:
    batches = parity_model.load_arrays(FIXTURE / "batches.npz")
    step = tf.function(objective.train_step)
    metrics = [step({name: values[index] for name, values in batches.items()}) for index in range(num_steps)]
    return {name: np.array([float(values[name]) for values in metrics]) for name in NAMES}


def largest_relative_difference(found: dict[str, np.ndarray]) -> float:
    expected = parity_model.load_arrays(FIXTURE / "trajectory.npz")
    worst = 0.0
    for ours, theirs in NAMES.items():
        golden = expected[theirs][: len(found[ours])]
        worst = max(worst, float((np.abs(found[ours] - golden) / np.maximum(np.abs(golden), 1e-12)).max()))
    return worst


@pytest.fixture(scope="module")
def trajectory() -> dict[str, np.ndarray]:
    return train(build(), 20)


def test_twenty_steps_have_the_losses_norms_and_rates_of_the_authors_code(trajectory):
    assert largest_relative_difference(trajectory) < 1e-4


def test_as_many_steps_are_clipped_as_in_the_authors_code(trajectory):
    scales = parity_model.load_arrays(FIXTURE / "trajectory.npz")["clip_scale"]
    assert (trajectory["gradient_norm"] > 1).sum() == (scales < 1).sum()
    assert 1 / np.maximum(trajectory["gradient_norm"], 1) == pytest.approx(scales, rel=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "electra/encoder/layer_1/output/dense/kernel",
        "generator_predictions/output_bias",
        "electra/embeddings/LayerNorm/beta",
    ],
)
def test_the_comparison_notices_one_changed_variable(name):
    objective = build()
    variable = tf1_variables(objective)[name]
    variable.assign(variable * 1.05)
    assert largest_relative_difference(train(objective, 1)) > 1e-4


@needs_golden_sets
@pytest.mark.slow
@pytest.mark.parametrize("name", ["small_like", "base_like", "bert_like"])
def test_every_tensor_gradient_and_step_is_that_of_the_authors_code(name, capsys):
    assert parity.main([str(Path(GOLDEN) / name)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["within_limits"] is True
    assert report["num_compared"] > 150


@needs_golden_sets
@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "key", "group"),
    [
        ("forward.npz", "mlm_logits", "forward"),
        ("gradients.npz", "discriminator_predictions/dense/kernel", "gradients"),
        ("trajectory.npz", "disc_loss", "trajectory_losses"),
        ("final_variables.npz", "electra/embeddings/word_embeddings", "final_weights"),
    ],
)
def test_parity_fails_where_one_number_is_perturbed(tmp_path, capsys, file, key, group):
    directory = tmp_path / "set"
    shutil.copytree(Path(GOLDEN) / "base_like", directory, copy_function=shutil.copyfile)
    directory.chmod(0o755)
    arrays = parity_model.load_arrays(directory / file)
    arrays[key] = arrays[key] * 1.001
    np.savez(directory / file, **arrays)
    assert parity.main([str(directory)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [name for name, found in report["largest_differences"].items() if found > report["limits"][name]] == [group]


@needs_golden_sets
@pytest.mark.slow
def test_parity_fails_where_one_weight_is_perturbed(monkeypatch, capsys):
    original = parity_model.build

    def perturbed(*arguments):
        objective = original(*arguments)
        variable = tf1_variables(objective)["electra/encoder/layer_0/attention/self/value/kernel"]
        variable.assign(variable * 1.01)
        return objective

    monkeypatch.setattr(parity_model, "build", perturbed)
    assert parity.main([str(Path(GOLDEN) / "base_like")]) == 1
    assert json.loads(capsys.readouterr().out)["within_limits"] is False


def test_a_directory_that_is_no_golden_set_is_refused(tmp_path, capsys):
    assert parity.main([str(tmp_path)]) == 2
    assert "is no golden set" in capsys.readouterr().err
