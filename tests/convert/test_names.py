"""The names of the authors' code: for every variable of what it has, and refused for what it does not have."""

import pytest
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.convert.names import tf1_variables
from electra_tf.tasks.pretrain import build_objective

EQUAL_SIZES = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}


@pytest.mark.parametrize(
    ("settings", "has_generator"),
    [
        ({"tying": "all", "generator": EQUAL_SIZES}, False),  # one encoder in both roles is the discriminator
        ({"name": "electra_15"}, True),
        ({"generator": {"kind": "uniform"}}, False),
    ],
)
def test_objectives_with_the_networks_of_electra_have_the_names_too(tiny_config, settings, has_generator):
    objective = build_objective(tiny_config(objective=settings))
    named = tf1_variables(objective)
    assert len(named) == len(objective.trainable_variables)
    assert any(name.startswith("generator/") for name in named) == has_generator
    assert "discriminator_predictions/dense_1/kernel" in named


@pytest.mark.parametrize("name", ["contrastive", "electric", "hard_mlm", "replace_mlm", "all_tokens_mlm"])
def test_an_objective_that_the_authors_do_not_have_is_refused_by_name(tiny_config, name):
    objective = build_objective(tiny_config(objective={"name": name}))
    with pytest.raises(UserError, match=rf"the authors' code has no {name}\b"):
        tf1_variables(objective)


def test_a_variable_that_the_authors_do_not_have_is_refused_by_name(tiny_config):
    objective = build_objective(tiny_config())
    objective.further = tf_keras.layers.Dense(3, name="further")
    objective.further.build([None, 5])
    with pytest.raises(UserError, match=r"the authors' code has no electra: it knows no variable .*kernel, .*bias"):
        tf1_variables(objective)
