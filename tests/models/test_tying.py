"""Weights that generator and discriminator share, and those that each has for itself."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.embeddings import Embeddings
from electra_tf.models.inference import prepare_for_inference
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from tests.toy import EQUAL_SIZES

SAMPLING = ForwardContext(random=RandomStream(0, 0, 0))
TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")


@pytest.fixture
def build(tiny_config):
    """`build(tying)`: a tiny ELECTRA."""

    def objective(tying: str):
        generator = {"generator": EQUAL_SIZES} if tying == "all" else {}
        return build_objective(tiny_config(objective={"tying": tying, **generator}))

    return objective


# Word, position and segment tables and LayerNorm; projection; query, key, value, output, two dense and two LayerNorms.
EMBEDDINGS, PROJECTION, LAYER, HEADS = 5, 2, 16, 5 + 4


@pytest.mark.parametrize(
    ("tying", "count"),
    [
        ("none", 2 * (EMBEDDINGS + PROJECTION + LAYER) + HEADS),
        ("gradient_disentangled", 2 * (EMBEDDINGS + PROJECTION + LAYER) + HEADS),
        ("embeddings", EMBEDDINGS + 2 * (PROJECTION + LAYER) + HEADS),
        ("all", EMBEDDINGS + PROJECTION + LAYER + HEADS),
    ],
)
def test_each_shared_variable_is_trained_once(build, tying, count):
    objective = build(tying)
    variables = objective.trainable_variables
    assert len(variables) == len({id(variable) for variable in variables}) == count
    assert objective.generator.head.embeddings is objective.generator.encoder.embeddings


@pytest.fixture
def disentangled(tiny_config):
    """An objective whose differences are not 0, as after training."""
    config = tiny_config(
        encoder={"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3},
        objective={"tying": "gradient_disentangled", "sampling": "greedy"},
    )
    objective = build_objective(config)
    for index, name in enumerate(TABLES):
        difference = getattr(objective.discriminator.embeddings, f"{name}_difference")
        assert not difference.numpy().any()
        difference.assign(np.random.default_rng(index).normal(0.0, 0.1, difference.shape))
    return objective


def test_disentangled_embeddings_begin_as_the_generators_tables_with_their_own_layer_norm(build):
    objective = build("gradient_disentangled")
    generator, discriminator = objective.generator.encoder.embeddings, objective.discriminator.embeddings
    for name in TABLES:
        assert np.array_equal(discriminator.table(name), generator.table(name))
    assert discriminator.layer_norm is not generator.layer_norm
    own = {id(v) for v in discriminator.variables}
    assert len(own) == 5 and not own & {id(v) for v in objective.generator.variables}


def test_each_loss_trains_only_its_own_networks_part_of_disentangled_embeddings(disentangled, tiny_batch):
    batch = tiny_batch(disentangled.config, [10, 7, 5, 8])
    theirs, own = disentangled.generator.encoder.embeddings, disentangled.discriminator.embeddings
    with tf.GradientTape(persistent=True) as tape:
        terms = disentangled.training_terms(batch, SAMPLING)
        losses = {name: terms[name].value for name in ("masked_lm", "replaced_token")}
    for name in TABLES:
        shared, difference = getattr(theirs, name), getattr(own, f"{name}_difference")
        assert tape.gradient(losses["replaced_token"], shared) is None
        assert tape.gradient(losses["masked_lm"], difference) is None
        assert tf.convert_to_tensor(tape.gradient(losses["masked_lm"], shared)).numpy().any()
        assert tf.convert_to_tensor(tape.gradient(losses["replaced_token"], difference)).numpy().any()


def test_inference_has_the_same_results_from_summed_tables(disentangled, tiny_batch):
    batch = tiny_batch(disentangled.config, [10, 7, 5, 8])
    before = disentangled(batch).sequence_output.numpy()
    sums = [
        getattr(disentangled.generator.encoder.embeddings, name)
        + getattr(disentangled.discriminator.embeddings, f"{name}_difference")
        for name in TABLES
    ]
    prepare_for_inference(disentangled.encoder)
    own, _ = disentangled.encoder.parts()
    assert type(own) is Embeddings
    assert all(np.array_equal(getattr(own, name), total) for name, total in zip(TABLES, sums, strict=True))
    assert disentangled(batch).sequence_output.numpy() == pytest.approx(before, abs=1e-6)
    for name in TABLES:
        table = getattr(disentangled.generator.encoder.embeddings, name)
        table.assign(tf.zeros_like(table))
    assert disentangled(batch).sequence_output.numpy() == pytest.approx(before, abs=1e-6)
