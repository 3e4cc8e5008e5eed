"""The formulas agree with the traced training step; tests/test_every_objective.py checks this for every objective."""

import pytest
import tensorflow as tf

from tests.flops.traced_step import count_steps

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def one_device() -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy("CPU:0")


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"fused_ops": True}},
        {"train": {"gradient_accumulation_steps": 2}},
        {"train": {"precision": "bfloat16"}},
        {"encoder": {"embedding_size": 16}},
        {"objective": {"generator": {"size_fraction": 1.0, "num_heads": 2, "intermediate_size": 20}, "tying": "all"}},
        {"objective": {"tying": "none", "generator": {"embedding_size": 11}}},
    ],
    ids=["fused_ops", "micro_batches", "bfloat16", "no_projection", "one_network", "embeddings_of_its_own"],
)
def test_the_formula_holds_under_other_settings_of_electra(tiny_config, one_device, changes):
    (step,) = count_steps(tiny_config(**changes), one_device)
    assert step.traced == step.formula


def test_two_replicas_compute_the_products_of_one_with_the_whole_batch(tiny_config, two_replicas):
    (step,) = count_steps(tiny_config(), two_replicas)
    assert step.traced == step.formula


def test_rematerialized_layers_are_traced_twice_and_count_once_in_the_formula(tiny_config, one_device):
    (step,) = count_steps(tiny_config(train={"rematerialize": True}), one_device)
    formula, traced = step.formula, step.traced
    assert {part for part in traced if traced[part] != formula[part]} == {("attention", False), ("feed_forward", False)}
    assert all(traced[part] == 2 * formula[part] for part in [("attention", False), ("feed_forward", False)])
