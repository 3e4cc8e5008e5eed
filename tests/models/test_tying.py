import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.embeddings import Embeddings
from electra_tf.models.layers import ForwardContext
from electra_tf.models.tying import stand_alone
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective


@pytest.fixture
def build(tiny_config):
    def with_tying(tying: str):
        same = {"size_fraction": 1.0, "num_heads": 2, "intermediate_size": 20}
        sizes = same if tying == "all" else {"size_fraction": 0.375, "num_heads": 3}
        return build_objective(tiny_config(objective={"tying": tying, "generator": {**sizes}}))

    return with_tying


def test_shared_embeddings_are_one_layer_with_all_three_tables_and_the_layer_norm(build):
    objective = build("embeddings")
    generator, discriminator = objective.generator.encoder, objective.discriminator
    assert generator is not discriminator
    assert generator.embeddings is discriminator.embeddings is objective.generator.head.embeddings
    assert generator.embeddings_project is not discriminator.embeddings_project


def test_without_tying_nothing_is_shared_and_the_generator_predicts_with_its_own_table(build):
    objective = build("none")
    generator, discriminator = objective.generator.encoder, objective.discriminator
    assert generator.embeddings is not discriminator.embeddings
    assert objective.generator.head.embeddings is generator.embeddings


def test_tying_everything_leaves_one_encoder(build):
    objective = build("all")
    assert objective.generator.encoder is objective.discriminator


# Word, position and segment tables and LayerNorm; projection; query, key, value, output, two dense and two LayerNorms.
EMBEDDINGS, PROJECTION, LAYER, MASKED_LM_HEAD, REPLACED_TOKEN_HEAD = 5, 2, 16, 5, 4


@pytest.mark.parametrize(
    ("tying", "count"),
    [
        ("none", 2 * (EMBEDDINGS + PROJECTION + LAYER) + MASKED_LM_HEAD + REPLACED_TOKEN_HEAD),
        ("gradient_disentangled", 2 * (EMBEDDINGS + PROJECTION + LAYER) + MASKED_LM_HEAD + REPLACED_TOKEN_HEAD),
        ("embeddings", EMBEDDINGS + 2 * (PROJECTION + LAYER) + MASKED_LM_HEAD + REPLACED_TOKEN_HEAD),
        ("all", EMBEDDINGS + PROJECTION + LAYER + MASKED_LM_HEAD + REPLACED_TOKEN_HEAD),
    ],
)
def test_every_variable_is_trained_once(build, tying, count):
    variables = build(tying).trainable_variables
    assert len(variables) == len({id(variable) for variable in variables}) == count


def embedded(forward) -> tuple[tf.Tensor, tf.Tensor]:
    return forward.discriminator_output.embedding_output, forward.generated.encoder_output.embedding_output


def test_a_change_of_the_shared_table_reaches_all_three_uses(build, tiny_config, tiny_batch):
    objective = build("embeddings")
    batch = tiny_batch(tiny_config(), [10, 7, 5, 8])
    sampling = ForwardContext(random=RandomStream(0, 0, 0))
    before = objective.forward(batch, sampling)
    table = objective.discriminator.embeddings.word_embeddings
    table.assign(table[::-1])
    after = objective.forward(batch, sampling)
    for old, new in zip(*(embedded(forward) for forward in (before, after)), strict=True):
        assert (old != new).numpy().any()
    logits = objective.generator.head(before.generated.hidden).logits
    assert (logits[..., ::-1] - before.generated.logits).numpy() == pytest.approx(0.0, abs=1e-6)


@pytest.fixture
def disentangled(tiny_config):
    """An objective with differences that training has moved."""
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


TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")


def test_disentangled_embeddings_are_those_of_the_generator_to_begin_with(tiny_config):
    objective = build_objective(tiny_config(objective={"tying": "gradient_disentangled"}))
    generator, discriminator = objective.generator.encoder.embeddings, objective.discriminator.embeddings
    for name in TABLES:
        assert np.array_equal(getattr(discriminator, name), getattr(generator, name))
    assert discriminator.layer_norm is not generator.layer_norm
    assert objective.generator.head.embeddings is generator
    own = {id(v) for v in discriminator.variables}
    assert len(own) == 5 and not own & {id(v) for v in objective.generator.variables}


def test_each_loss_trains_its_own_part_of_disentangled_embeddings(disentangled, tiny_batch):
    batch = tiny_batch(disentangled.config, [10, 7, 5, 8])
    theirs, own = disentangled.generator.encoder.embeddings, disentangled.discriminator.embeddings
    with tf.GradientTape(persistent=True) as tape:
        terms = disentangled.training_terms(batch, ForwardContext(random=RandomStream(0, 0, 0)))
        losses = {name: terms[name].value for name in ("masked_lm", "replaced_token")}
    for name in TABLES:
        shared, difference = getattr(theirs, name), getattr(own, f"{name}_difference")
        assert tape.gradient(losses["replaced_token"], shared) is None
        assert tape.gradient(losses["masked_lm"], difference) is None
        assert tf.convert_to_tensor(tape.gradient(losses["masked_lm"], shared)).numpy().any()
        assert tf.convert_to_tensor(tape.gradient(losses["replaced_token"], difference)).numpy().any()


def test_a_change_of_the_generators_tables_reaches_the_discriminator(disentangled, tiny_batch):
    batch = tiny_batch(disentangled.config, [10, 7, 5, 8])
    before = disentangled(batch).embedding_output
    table = disentangled.generator.encoder.embeddings.word_embeddings
    table.assign(table[::-1])
    assert (disentangled(batch).embedding_output != before).numpy().any()


def test_an_encoder_that_stands_alone_computes_what_it_did_from_summed_tables(disentangled, tiny_batch):
    batch = tiny_batch(disentangled.config, [10, 7, 5, 8])
    before = disentangled(batch).sequence_output.numpy()
    sums = [
        getattr(disentangled.generator.encoder.embeddings, name)
        + getattr(disentangled.discriminator.embeddings, f"{name}_difference")
        for name in TABLES
    ]
    stand_alone(disentangled.encoder)
    found = disentangled.encoder.embeddings
    assert type(found) is Embeddings
    assert all(np.array_equal(getattr(found, name), total) for name, total in zip(TABLES, sums, strict=True))
    assert disentangled(batch).sequence_output.numpy() == pytest.approx(before, abs=1e-6)
    for name in TABLES:
        table = getattr(disentangled.generator.encoder.embeddings, name)
        table.assign(tf.zeros_like(table))
    assert disentangled(batch).sequence_output.numpy() == pytest.approx(before, abs=1e-6)
    assert {"_difference" in variable.name for variable in disentangled.encoder.variables} == {False}


def test_an_encoder_that_leans_on_none_stands_alone_as_it_is(build):
    objective = build("embeddings")
    embeddings = objective.encoder.embeddings
    stand_alone(objective.encoder)
    assert objective.encoder.embeddings is embeddings


# Of the hidden sizes 16 and 6 (16 and 16 with everything tied): one that is neither, and each of them.
@pytest.mark.parametrize("embedding_size", [9, 6, 16])
@pytest.mark.parametrize("tying", ["none", "embeddings", "gradient_disentangled", "all"])
def test_any_embedding_size_goes_with_every_tying(tiny_config, tiny_batch, tying, embedding_size):
    same = {"size_fraction": 1.0, "num_heads": 2, "intermediate_size": 20}
    generator = {"generator": same} if tying == "all" else {}
    config = tiny_config(encoder={"embedding_size": embedding_size}, objective={"tying": tying, **generator})
    objective = build_objective(config)
    for encoder in (objective.generator.encoder, objective.discriminator):
        assert (encoder.embeddings_project is None) == (encoder.config.hidden_size == embedding_size)
        assert encoder.embeddings.word_embeddings.shape == [47, embedding_size]
    forward = objective.forward(tiny_batch(config, [10, 7, 5, 8]), ForwardContext(random=RandomStream(0, 0, 0)))
    assert forward.generated.logits.shape == [4, 3, 47]
    assert forward.discriminator_output.sequence_output.shape == [4, 10, 16]
