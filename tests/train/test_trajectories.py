"""Training steps, compared with the authors' code under TensorFlow 1.15 and with PyTorch (tests/fixtures/README.md)."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.parity.golden import GoldenSet
from benchmarks.parity.pretraining import batch_of, build
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import parse_config
from electra_tf.train.step import compile_task
from tests.models.modernbert_names import ENCODER, assign_weight, encoder_places, head_places, is_transposed
from tests.train import modernbert_steps_fixture as peer

# What float32 allows: other kernels for the same graph change the losses by 4e-6, the global norm by 2e-5 (golden set).
LOSS_TOLERANCE, NORM_TOLERANCE = 1e-5, 2e-5


@pytest.fixture(scope="module")
def trajectories() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Ours and the authors', by the names of our metrics and of theirs."""
    golden = GoldenSet(Path(__file__).resolve().parents[1] / "fixtures" / "parity")
    objective, batches = build(golden), golden.arrays("batches.npz")
    step = tf.function(objective.train_step)
    steps = [step(batch_of(batches, number)) for number in range(20)]
    ours = {name: np.array([metrics[name].numpy() for metrics in steps]) for name in steps[0]}
    return ours, golden.arrays("trajectory.npz")


@pytest.mark.parametrize(
    ("ours", "authors", "tolerance"),
    [
        ("loss", "total_loss", LOSS_TOLERANCE),
        ("masked_lm", "mlm_loss", LOSS_TOLERANCE),
        ("replaced_token", "disc_loss", LOSS_TOLERANCE),
        ("gradient_norm", "global_norm", NORM_TOLERANCE),
        ("learning_rate", "learning_rate", 1e-6),
    ],
)
def test_twenty_steps_equal_the_authors(trajectories, ours, authors, tolerance):
    computed, expected = trajectories
    np.testing.assert_allclose(computed[ours], expected[authors], rtol=tolerance, atol=1e-12)


EXPECTED = np.load(Path(__file__).parents[1] / "fixtures" / "modernbert_steps.npz")
CONFIG = {
    "encoder": ENCODER,
    "objective": {
        "name": "electra",
        "generator": {"size_fraction": 1.0, "num_layers": 2},
        "sampling": "greedy",
        "replaced_token_loss_weight": peer.REPLACED_TOKEN_WEIGHT,
    },
    "data": {"max_seq_length": 15},
    "optimizer": {
        "learning_rate": peer.RATE,
        "warmup_steps": peer.WARMUP_STEPS,
        "weight_decay_rate": peer.DECAY,
        "clip_norm": peer.CLIP_NORM,
    },
    "train": {"num_steps": peer.PLANNED_STEPS, "batch_size": 4},
}
# A wrong window, angle, half or norm changes the losses by 1e-3.
WEIGHT_TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def trained() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Our metrics of each step, and our weights after the last one by transformers' names."""
    objective = compile_task(build_objective(parse_config(CONFIG, source="the test")))
    networks = {
        "generator": (objective.generator.encoder, objective.generator.head),
        "discriminator": (objective.encoder, objective.replaced_token_head),
    }
    named = {
        network: dict([*encoder_places(encoder), *head_places(head)]) for network, (encoder, head) in networks.items()
    }
    for network, variables in named.items():
        for name, variable in variables.items():
            assign_weight(name, variable, f"{network}|")
    step, metrics = tf.function(objective.train_step), []
    for batch in peer.batches():
        arrays = {
            name: values if name == "masked_lm_weights" else values.astype(np.int32) for name, values in batch.items()
        }
        arrays |= dict.fromkeys(("mask_token_weights", "unigram_losses"), np.zeros([4, 3], np.float32))
        metrics.append(step({**arrays, "segment_ids": np.zeros([4, 15], np.int32)}))
    weights = {
        f"{network}|{name}": variable.numpy().T if is_transposed(name, variable) else variable.numpy()
        for network, variables in named.items()
        for name, variable in variables.items()
    }
    return {name: np.array([each[name] for each in metrics]) for name in metrics[0]}, weights


@pytest.mark.parametrize("name", ["masked_lm", "replaced_token", "gradient_norm"])
def test_losses_and_norms_are_those_of_pytorch(trained, name):
    np.testing.assert_allclose(trained[0][name], EXPECTED[name], rtol=LOSS_TOLERANCE)


def test_weights_after_the_steps_are_those_of_pytorch(trained):
    assert {name for name in EXPECTED if "|" in name} == trained[1].keys()
    for name in trained[1]:
        np.testing.assert_allclose(trained[1][name], EXPECTED[name], atol=WEIGHT_TOLERANCE, err_msg=name)
