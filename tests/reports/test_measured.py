"""The formulas agree with the traced training step; tests/test_every_objective.py asks this of every objective."""

import pytest
import tensorflow as tf

from electra_tf.flops.budget import RunCost
from electra_tf.reports.measured import expected_products, measure, measurement_lines


@pytest.fixture(scope="module")
def one_device() -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy("CPU:0")


# By hand: B 4, S 10, M 3, E 12, H 16, F 20; G 6, F 14; V 47, padded to 128.
def test_the_products_of_a_step_by_hand(tiny_config):
    products = expected_products(RunCost(tiny_config()).ranges[0])
    forward = {
        "projection": 4 * 10 * 2 * 12 * (16 + 6),
        "feed_forward": 4 * 10 * 4 * (16 * 20 + 6 * 14),
        "attention": 4 * 10 * sum(8 * size * size + 4 * size * 10 for size in (16, 6)),
        "heads": 4 * 10 * (2 * 16 * 16 + 2 * 16) + 4 * 3 * (2 * 6 * 12 + 2 * 12 * 128),
        "segments": 2 * 4 * 10 * 2 * 2 * 12,
    }
    assert {part: flops for (part, is_backward), flops in products.items() if not is_backward} == forward
    backward = {part: (1 if part == "segments" else 2) * flops for part, flops in forward.items()}
    assert {part: flops for (part, is_backward), flops in products.items() if is_backward} == backward


@pytest.mark.slow
def test_graph_profiler_and_xla_count_the_products_of_the_formula(tiny_config, one_device):
    (electra,) = measure(tiny_config(), one_device)
    total = electra.formula.total()
    assert electra.traced == electra.formula
    profiler_products = electra.by_operation["MatMul"] + electra.by_operation["BatchMatMulV2"]
    assert (profiler_products, electra.xla["products"]) == (total, total)
    # The formula leaves out the optimizer, the gradients' norm and the random bits, which weigh more the smaller the
    # batch, and counts a softmax and a LayerNorm by rules of thumb. At these sizes 1.10 and 1.41, for tiny.yaml 0.71
    # and 1.10:
    rest = electra.xla["elementwise"] + electra.xla["reductions"] + electra.xla["transcendental"]
    assert 1.0 * electra.elementwise < rest < 1.2 * electra.elementwise
    assert 1.3 * electra.elementwise < sum(electra.by_operation.values()) - total < 1.5 * electra.elementwise
    lines = measurement_lines(electra)
    assert any(line.startswith("| attention, forward | ") and line.endswith(" | 0 |") for line in lines)
    assert any(line.startswith(f"| XLA | {total:,} | 0 | ") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"gradient_accumulation_steps": 2}},
        {"train": {"precision": "bfloat16"}},
        {"encoder": {"embedding_size": 16}},
        {"objective": {"generator": {"size_fraction": 1.0, "num_heads": 2, "intermediate_size": 20}, "tying": "all"}},
        {"objective": {"tying": "none", "generator": {"embedding_size": 11}}},
    ],
    ids=["micro_batches", "bfloat16", "no_projection", "one_network", "embeddings_of_its_own"],
)
def test_the_formula_holds_under_other_settings_of_electra(tiny_config, one_device, changes):
    (measurement,) = measure(tiny_config(**changes), one_device)
    assert measurement.traced == measurement.formula


@pytest.mark.slow
def test_two_replicas_compute_the_products_of_one_with_the_whole_batch(tiny_config, two_replicas):
    (measurement,) = measure(tiny_config(), two_replicas)
    assert measurement.traced == measurement.formula
    assert "XLA | not counted: the step of several replicas is not one program" in measurement_lines(measurement)[-1]


@pytest.mark.slow
def test_rematerialized_layers_are_traced_twice_and_are_no_part_of_the_formula(tiny_config, one_device):
    (measurement,) = measure(tiny_config(train={"rematerialize": True}), one_device)
    formula, traced = measurement.formula, measurement.traced
    assert {part for part in traced if traced[part] != formula[part]} == {("attention", False), ("feed_forward", False)}
    assert all(traced[part] == 2 * formula[part] for part in [("attention", False), ("feed_forward", False)])
