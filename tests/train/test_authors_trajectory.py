"""Twenty training steps, compared with the authors' code under TensorFlow 1.15 (tests/fixtures/README.md)."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import parse_config
from electra_tf.train.step import compile_task
from electra_tf.weights.warm_start import initialize_from

GOLDEN = Path(__file__).resolve().parents[1] / "fixtures" / "parity"
# The sizes of tests/fixtures/parity/config.json.
CONFIG = {
    "encoder": {
        "vocab_size": 900,
        "embedding_size": 48,
        "hidden_size": 48,
        "num_layers": 2,
        "num_heads": 6,
        "intermediate_size": 192,
        "max_position_embeddings": 61,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "objective": {
        "name": "electra",
        "generator": {"size_fraction": 0.33, "hidden_size": 16, "num_heads": 1, "intermediate_size": 64},
        "sampling": "greedy",
    },
    "data": {"max_seq_length": 56},
    "optimizer": {"learning_rate": 3e-4, "warmup_steps": 8},
    "train": {"num_steps": 40, "batch_size": 7, "fused_ops": False},
}
# What float32 allows: other kernels for the same graph change the losses by 4e-6, the global norm by 2e-5 (golden set).
LOSS_TOLERANCE, NORM_TOLERANCE = 1e-5, 2e-5


@pytest.fixture(scope="module")
def trajectories() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Ours and the authors', by the names of our metrics."""
    objective = compile_task(build_objective(parse_config(CONFIG, source="the golden set")))
    initialize_from(objective, GOLDEN / "init.ckpt")
    with np.load(GOLDEN / "batches.npz") as batches, np.load(GOLDEN / "trajectory.npz") as golden:
        arrays, expected = dict(batches), dict(golden)
    # The authors' batches lack what is only reported.
    arrays |= dict.fromkeys(("mask_token_weights", "unigram_losses"), np.zeros_like(arrays["masked_lm_weights"]))
    step = tf.function(objective.train_step)
    steps = [step({name: tf.constant(rows[k]) for name, rows in arrays.items()}) for k in range(20)]
    return {name: np.array([metrics[name].numpy() for metrics in steps]) for name in steps[0]}, expected


@pytest.mark.parametrize(
    "ours, authors, tolerance",
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
