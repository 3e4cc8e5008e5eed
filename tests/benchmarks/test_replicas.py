"""The replicas' benchmark: how runs are compared, and two real worker processes."""

import math

import numpy as np
import pytest

from benchmarks.replicas import __main__ as replicas
from benchmarks.replicas.worker import Variant

pytestmark = pytest.mark.slow


@pytest.fixture
def save(tmp_path):
    """`save("a", losses=[1, 2], bias=[3, 4])`: the file of a run with these metrics and weights."""

    def build(name: str, losses: list[float], **weights: list[float]):
        arrays = {f"weights/{key}": np.array(values, np.float32) for key, values in weights.items()}
        np.savez(tmp_path / f"{name}.npz", **{"metrics/loss": np.array(losses), **arrays})
        return tmp_path / f"{name}.npz"

    return build


def test_losses_are_compared_by_value_and_weights_by_norm(save):
    one = save("one", [4.0, 2.0], kernel=[3.0, 4.0], bias=[0.0, 5.0])
    other = save("other", [4.0, 2.5], kernel=[3.0, 4.5], bias=[0.0, 5.0])
    assert replicas.differences(other, one) == (0.25, pytest.approx(0.1), "kernel")


def test_nan_is_the_worst(save):
    one = save("one", [1.0, 2.0], kernel=[3.0, 4.0], bias=[0.0, 5.0])
    other = save("other", [1.0, float("nan")], kernel=[3.0, 400.0], bias=[0.0, float("nan")])
    losses, weights, name = replicas.differences(other, one)
    assert losses == math.inf and name == "bias" and math.isnan(weights)


@pytest.mark.parametrize("objective", ["electra", "bert_mlm"])
def test_two_worker_processes_train_like_one_device(tmp_path, objective):
    variant = Variant(objective, 1, False)
    for division in ("1 device", "2 workers"):
        replicas.run_division(division, [variant], tmp_path / division, timeout=600)
    files = [tmp_path / division / f"{variant}.npz" for division in ("2 workers", "1 device")]
    losses, weights, name = replicas.differences(*files)
    assert losses < replicas.LIMIT
    assert weights < replicas.LIMIT, name
