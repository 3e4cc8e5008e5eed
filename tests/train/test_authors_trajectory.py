"""Twenty training steps, compared with the authors' code under TensorFlow 1.15 (tests/fixtures/README.md)."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.parity.golden import GoldenSet
from benchmarks.parity.pretraining import batch_of, build

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
