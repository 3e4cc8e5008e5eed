"""Loading the authors' checkpoints is strict: every variable, each of its shape."""

import pytest
import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.convert.names import tf1_variables
from electra_tf.convert.tf1 import load_authors_checkpoint
from electra_tf.tasks.pretrain import build_objective


@pytest.fixture
def save(tmp_path):
    """`save(tensors)`: writes name -> tensor as a checkpoint of TensorFlow 1 and returns its prefix."""

    def write(tensors: dict[str, tf.Tensor]) -> str:
        prefix = str(tmp_path / "model.ckpt")
        names, values = list(tensors), [tf.convert_to_tensor(value) for value in tensors.values()]
        tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
        return prefix

    return write


@pytest.mark.parametrize("tying", ["embeddings", "none"])
def test_every_variable_is_found_under_its_name_and_loaded(tiny_config, save, tying):
    objective = build_objective(tiny_config(objective={"tying": tying}))
    named = tf1_variables(objective)
    wanted = {
        name: tf.random.stateless_normal(variable.shape, [7, index])
        for index, (name, variable) in enumerate(named.items())
    }
    load_authors_checkpoint(objective, save(wanted))
    assert [name for name, variable in named.items() if not tf.reduce_all(variable == wanted[name])] == []
    assert ("generator/embeddings/word_embeddings" in named) == (tying == "none")


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
    with pytest.raises(UserError, match=f"the authors' code has no {name}; expected electra, electra_15 or bert_mlm"):
        tf1_variables(objective)


def test_variables_that_are_missing_or_of_another_shape_are_named(tiny_config, save, tmp_path):
    objective = build_objective(tiny_config())
    tensors = {name: variable.value() for name, variable in tf1_variables(objective).items()}
    key_bias = tensors.pop("electra/encoder/layer_0/attention/self/key/bias")
    with pytest.raises(UserError, match="holds no variable electra/encoder/layer_0/attention/self/key/bias"):
        load_authors_checkpoint(objective, save(tensors))
    tensors["electra/encoder/layer_0/attention/self/key/bias"] = key_bias
    tensors["electra/embeddings/word_embeddings"] = tf.zeros([46, 12])
    with pytest.raises(UserError, match=r"word_embeddings has shape \[46, 12\], the model's is \[47, 12\]"):
        load_authors_checkpoint(objective, save(tensors))
    with pytest.raises(UserError, match="is not a readable TensorFlow checkpoint"):
        load_authors_checkpoint(objective, str(tmp_path / "nothing"))


def test_a_variable_that_the_authors_do_not_have_is_refused_by_name(tiny_config):
    objective = build_objective(tiny_config())
    objective.further = tf_keras.layers.Dense(3, name="further")
    objective.further.build([None, 5])
    with pytest.raises(UserError, match=r"the authors' code has no electra: it knows no variable .*kernel, .*bias"):
        tf1_variables(objective)
