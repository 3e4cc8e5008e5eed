"""The formulas agree with the traced training step; tests/test_every_objective.py checks this for every objective."""

import pytest
import tensorflow as tf

from benchmarks.stablehlo_step.static_step import training_step_function
from electra_tf.data.batch import PRETRAINING_BATCH
from electra_tf.flops import hardware
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task
from tests.flops.traced_step import count_steps, expected_products


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
def test_the_products_of_a_step_with_fused_operations_equal_the_formula(tiny_config, one_device):
    (electra,) = count_steps(tiny_config(train={"fused_ops": True}), one_device)
    assert electra.traced == electra.formula


def profiled(graph: tf.Graph) -> dict[str, int]:
    """Floating-point operations of a graph by TensorFlow's profiler, by type of operation.

    It counts neither functions that the graph calls nor operations without a registered formula.
    """
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation()).with_empty_output()
    node = profiler.profile(graph, cmd="op", options=options.order_by("float_ops").build())
    by_operation = {}
    while node.children:  # each node has one child: the type with the next smaller count
        (node,) = node.children
        by_operation[node.name] = node.float_ops
    return by_operation


@pytest.mark.slow
def test_tensorflows_profiler_counts_the_products_of_the_formula(tiny_config):
    config = tiny_config()
    step = training_step_function(compile_task(build_objective(config)).phases()[0])
    (steps,) = RunCost(config).ranges
    specs = PRETRAINING_BATCH.specs(steps.batch_size, S=steps.seq_length, M=steps.max_predictions).values()
    by_operation, total = profiled(step.get_concrete_function(*specs).graph), expected_products(steps).total()
    assert by_operation["MatMul"] + by_operation["BatchMatMulV2"] == total
    # The formula leaves out the optimizer, the gradients' norm and the random bits, which weigh more the smaller the
    # batch, and counts a softmax and a LayerNorm by rules of thumb. At these sizes 0.95:
    example = hardware.example_flops(steps.passes, steps.seq_length, steps.max_predictions)
    elementwise = steps.batch_size * example.elementwise
    assert 0.85 * elementwise < sum(by_operation.values()) - total < 1.05 * elementwise


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
    (step,) = count_steps(tiny_config(**changes), one_device)
    assert step.traced == step.formula


@pytest.mark.slow
def test_two_replicas_compute_the_products_of_one_with_the_whole_batch(tiny_config, two_replicas):
    (step,) = count_steps(tiny_config(), two_replicas)
    assert step.traced == step.formula


@pytest.mark.slow
def test_rematerialized_layers_are_traced_twice_and_count_once_in_the_formula(tiny_config, one_device):
    (step,) = count_steps(tiny_config(train={"rematerialize": True}), one_device)
    formula, traced = step.formula, step.traced
    assert {part for part in traced if traced[part] != formula[part]} == {("attention", False), ("feed_forward", False)}
    assert all(traced[part] == 2 * formula[part] for part in [("attention", False), ("feed_forward", False)])
