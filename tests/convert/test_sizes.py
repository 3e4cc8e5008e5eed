"""Shapes from sizes and sizes from shapes, beside the networks that are built."""

import pytest

from electra_tf.convert.names import tf1_variables
from electra_tf.convert.sizes import (
    default_num_heads,
    encoder_shapes,
    encoder_sizes,
    masked_lm_shapes,
    replaced_token_shapes,
)
from electra_tf.tasks.pretrain import build_objective


@pytest.mark.parametrize("tying", ["embeddings", "none"])
def test_the_shapes_are_those_of_the_networks_that_are_built(tiny_config, tying):
    config = tiny_config(objective={"tying": tying}, encoder={"embedding_size": 16})
    built = {name: tuple(variable.shape) for name, variable in tf1_variables(build_objective(config)).items()}
    generator = config.objective.generator_encoder(config)
    expected = {
        **encoder_shapes(config.encoder, "electra"),
        **encoder_shapes(generator, "generator", with_embeddings=tying == "none"),
        **replaced_token_shapes(config.encoder),
        **masked_lm_shapes(generator),
    }
    assert built == expected
    assert "electra/embeddings_project/kernel" not in built  # as wide as the layers
    found = encoder_sizes("there", built.get, num_heads=2, hidden_dropout=0.1)
    assert found == config.encoder
    tables = "generator" if tying == "none" else "electra"
    assert encoder_sizes("there", built.get, "generator", tables, num_heads=3) == generator


@pytest.mark.parametrize(("hidden_size", "num_heads"), [(24, 1), (64, 1), (256, 4), (1024, 16)])
def test_where_nothing_says_it_a_head_has_64_units(hidden_size, num_heads):
    assert default_num_heads(hidden_size) == num_heads
