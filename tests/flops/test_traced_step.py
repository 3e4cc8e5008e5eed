"""The formulas agree with the traced training step; tests/test_every_objective.py checks this for every objective."""

import functools

import pytest
import tensorflow as tf

from electra_tf.data.batch import batch_specs
from electra_tf.flops.budget import RunCost
from electra_tf.ops.fused import FusedOps
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task, training_step
from tests.flops.traced import by_part, traced_products
from tests.flops.traced_step import expected_products
from tests.toy import EQUAL_SIZES

pytestmark = pytest.mark.slow
# Neither those of a step that is not compiled, which compute sums as matrix products, nor those of accelerators, which
# compute the attention's scores twice.
OPS = FusedOps("cpu", whole_step=True)


@pytest.mark.parametrize(
    ("changes", "num_replicas", "twice"),
    [
        ({}, 2, ()),
        ({"train": {"gradient_accumulation_steps": 2}}, 1, ()),
        ({"train": {"precision": "bfloat16"}}, 1, ()),
        ({"encoder": {"embedding_size": 16}}, 1, ()),  # no projection
        ({"objective": {"generator": EQUAL_SIZES, "tying": "all"}}, 1, ()),
        ({"objective": {"tying": "none", "generator": {"embedding_size": 11}}}, 1, ()),
        # Layers are traced twice and count once in the formula.
        ({"train": {"rematerialize": True}}, 1, ("attention", "feed_forward")),
    ],
)
def test_the_formula_holds_under_other_settings_of_electra(tiny_config, two_replicas, changes, num_replicas, twice):
    config = tiny_config(**changes)
    strategy = two_replicas if num_replicas == 2 else tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        objective = compile_task(build_objective(config))
    on_replica = functools.partial(training_step, objective, ops=OPS)
    step = tf.function(lambda batch: strategy.run(on_replica, args=(batch,)))
    specs = batch_specs(config, config.train.batch_size // num_replicas)
    traced = +by_part(traced_products(step.get_concrete_function(specs)))
    formula = expected_products(RunCost(config).ranges[0])
    for part in twice:
        formula[part, False] *= 2
    assert traced == formula
