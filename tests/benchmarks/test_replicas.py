"""The replicas' benchmark: how runs are compared, and two real worker processes."""

import json
import math

import numpy as np
import pytest

from benchmarks.replicas import __main__ as replicas
from benchmarks.replicas.worker import LENGTHS, Variant, build_config, make_batch

pytestmark = pytest.mark.slow


@pytest.fixture
def save(tmp_path):
    """`save("a", losses=[1, 2], bias=[3, 4])`: the file of a run with these metrics and weights."""

    def build(name: str, losses: list[float], **weights: list[float]):
        arrays = {f"weights/{key}": np.array(values, np.float32) for key, values in weights.items()}
        np.savez(tmp_path / f"{name}.npz", **{"metrics/loss": np.array(losses), **arrays})
        return tmp_path / f"{name}.npz"

    return build


def test_a_variant_is_read_back_from_its_name():
    assert str(Variant("electra", 2, True)) == "electra:2:xla"
    assert Variant.parse("bert_mlm:1:tensorflow") == Variant("bert_mlm", 1, False)


def test_losses_are_compared_by_value_and_weights_by_norm(save):
    one = save("one", [4.0, 2.0], kernel=[3.0, 4.0], bias=[0.0, 5.0])
    other = save("other", [4.0, 2.5], kernel=[3.0, 4.5], bias=[0.0, 5.0])
    assert replicas.differences(other, one) == (0.25, pytest.approx(0.1), "kernel")


def test_a_tensor_of_rounding_noise_is_compared_with_the_size_of_the_others(save):
    one = save("one", [1.0], kernel=[100.0] * 99, bias=[1e-9])
    other = save("other", [1.0], kernel=[100.0] * 99, bias=[3e-9])
    losses, weights, name = replicas.differences(other, one)
    assert (losses, name) == (0.0, "bias")
    assert weights == pytest.approx(2e-9 / (0.01 * math.sqrt(99 * 1e4 / 100)), rel=1e-3)


def test_nan_is_the_worst(save):
    one = save("one", [1.0, 2.0], kernel=[3.0, 4.0], bias=[0.0, 5.0])
    other = save("other", [1.0, float("nan")], kernel=[3.0, 400.0], bias=[0.0, float("nan")])
    losses, weights, name = replicas.differences(other, one)
    assert losses == math.inf and name == "bias" and math.isnan(weights)


def test_workers_know_their_cluster_and_their_index():
    found = [json.loads(environment["TF_CONFIG"]) for environment in replicas.worker_environments(3)]
    assert [worker["task"] for worker in found] == [{"type": "worker", "index": index} for index in range(3)]
    addresses = found[0]["cluster"]["worker"]
    assert len(set(addresses)) == 3
    assert [worker["cluster"]["worker"] for worker in found] == [addresses] * 3


def test_the_replicas_of_a_division_have_different_numbers_of_tokens():
    batch = make_batch(build_config(Variant("bert_mlm", 1, False)), number=3)
    for num_replicas in (2, 4):
        for name in ("input_mask", "masked_lm_weights"):
            shares = np.split(batch[name].numpy(), num_replicas)
            assert len({float(share.sum()) for share in shares}) == num_replicas
    assert batch["input_mask"].numpy().sum(axis=1).tolist() == list(LENGTHS)


@pytest.mark.parametrize("objective", ["electra", "bert_mlm"])
def test_two_worker_processes_train_like_one_device(tmp_path, objective):
    variant = Variant(objective, 1, False)
    for division in ("1 device", "2 workers"):
        replicas.run_division(division, [variant], tmp_path / division, timeout=600)
    files = [tmp_path / division / f"{variant}.npz" for division in ("2 workers", "1 device")]
    losses, weights, name = replicas.differences(*files)
    assert losses < replicas.LIMIT
    assert weights < replicas.LIMIT, name
