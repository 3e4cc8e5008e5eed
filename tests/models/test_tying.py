import pytest

from electra_tf.export.authors_checkpoint import authors_variables
from electra_tf.objectives import build_objective


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
    assert len(discriminator.embeddings.trainable_variables) == 5
    assert not {id(layer) for layer in generator.transformer_layers} & {
        id(other) for other in discriminator.transformer_layers
    }


def test_without_tying_nothing_is_shared_and_the_generator_predicts_with_its_own_table(build):
    objective = build("none")
    generator, discriminator = objective.generator.encoder, objective.discriminator
    assert generator.embeddings is not discriminator.embeddings
    assert objective.generator.head.embeddings is generator.embeddings
    shared = {id(v) for v in objective.generator.trainable_variables} & {
        id(v) for v in discriminator.trainable_variables
    }
    assert shared == set()


def test_tying_everything_leaves_two_heads_on_one_encoder(build):
    objective = build("all")
    assert objective.generator.encoder is objective.discriminator
    encoder = {id(variable) for variable in objective.discriminator.trainable_variables}
    heads = {id(variable) for variable in objective.trainable_variables} - encoder
    assert len(heads) == 5 + 4  # masked LM: dense, LayerNorm, bias; replaced token: two dense


# Word, position and segment tables and LayerNorm; projection; query, key, value, output, two dense and two LayerNorms.
EMBEDDINGS, PROJECTION, LAYER, MASKED_LM_HEAD, REPLACED_TOKEN_HEAD = 5, 2, 16, 5, 4


@pytest.mark.parametrize(
    ("tying", "count"),
    [
        ("none", 2 * (EMBEDDINGS + PROJECTION + LAYER) + MASKED_LM_HEAD + REPLACED_TOKEN_HEAD),
        ("embeddings", EMBEDDINGS + 2 * (PROJECTION + LAYER) + MASKED_LM_HEAD + REPLACED_TOKEN_HEAD),
        ("all", EMBEDDINGS + PROJECTION + LAYER + MASKED_LM_HEAD + REPLACED_TOKEN_HEAD),
    ],
)
def test_every_variable_is_trained_once(build, tying, count):
    variables = build(tying).trainable_variables
    assert len(variables) == len({id(variable) for variable in variables}) == count


def test_a_change_of_the_shared_table_reaches_all_three_uses(build, tiny_config, tiny_batch):
    from electra_tf.models.context import ForwardContext
    from electra_tf.random import RandomStream

    objective = build("embeddings")
    batch = tiny_batch(tiny_config(), [10, 7, 5, 8])
    sampling = ForwardContext(random=RandomStream(0, 0, 0))
    before = objective.forward(batch, sampling)
    table = objective.discriminator.embeddings.word_embeddings
    table.assign(table[::-1])
    after = objective.forward(batch, sampling)
    for name in ("embedding_output",):
        assert (getattr(before.discriminator_output, name) != getattr(after.discriminator_output, name)).numpy().any()
        assert (
            (getattr(before.proposal.encoder_output, name) != getattr(after.proposal.encoder_output, name))
            .numpy()
            .any()
        )
    logits = objective.generator.head(before.proposal.hidden).logits
    assert (logits[..., ::-1] - before.proposal.logits).numpy() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("tying", ["none", "embeddings"])
def test_every_variable_has_one_name_in_the_authors_checkpoints(build, tying):
    objective = build(tying)
    named = authors_variables(objective)
    assert len(named) == len(objective.trainable_variables)
    assert ("generator/embeddings/word_embeddings" in named) == (tying == "none")
