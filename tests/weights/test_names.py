"""The table of names: every variable of every objective has one, and shapes and sizes go with it."""

import keras
import pytest

from electra_tf.config.errors import UserError
from electra_tf.config.networks import BLOCKS
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task
from electra_tf.weights.names import (
    AUTHORS_SCOPES,
    default_num_heads,
    encoder_sizes,
    named_variables,
    network_shapes,
)
from tests.toy import EQUAL_SIZES, toy_finetuning_config
from tests.weights.conftest import BIASES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "scopes"),
    [
        *(({"name": name}, set()) for name in ("electra", "electra_15", "bert_mlm", "fast_electra")),
        ({"name": "two_stage", "generator": EQUAL_SIZES, "tying": "none"}, set()),
        ({"tying": "all", "generator": EQUAL_SIZES}, set()),
        ({"tying": "gradient_disentangled"}, set()),
        ({"generator": {"kind": "uniform"}}, set()),
        ({"name": "adversarial"}, {"baseline"}),
        ({"name": "contrastive"}, {"corrupted_input_head"}),
        ({"name": "electric"}, {"generator_left_to_right", "generator_right_to_left"}),
        ({"name": "hard_mlm"}, {"difficulty", "difficulty_predictions"}),
        ({"name": "teams"}, {"word_selection_head"}),
        ({"name": "replace_mlm"}, {"encoder_predictions"}),
        ({"name": "all_tokens_mlm"}, {"encoder_predictions", "copy_head"}),
    ],
)
def test_every_trainable_variable_has_one_name(tiny_config, settings, scopes):
    objective = compile_task(build_objective(tiny_config(objective=settings)))
    named = named_variables(objective)
    assert {id(each) for each in named.values()} == {id(each) for each in objective.trainable_variables}
    assert {name.partition("/")[0] for name in named if not name.startswith(AUTHORS_SCOPES)} == scopes
    assert "electra/encoder/layer_0/attention/self/query/kernel" in named


def test_a_layer_of_a_head_without_a_rule_is_named_too():
    """Else its weights would stay random in `--predict` and in exports."""
    task = build_finetuning_task(toy_finetuning_config({"kind": "classification", "labels": ["a", "b"]}))
    task.threshold_layer = keras.layers.Dense(3)
    task.threshold_layer.build([None, 5])
    of_head = {name for name in named_variables(task) if name.startswith("task_specific/")}
    layers = ("dense", "threshold_layer")
    assert of_head == {f"task_specific/made_up/{layer}/{part}" for layer in layers for part in ("kernel", "bias")}


@pytest.mark.parametrize("order", [("dense", "transform"), ("transform", "dense")])
def test_two_layers_that_the_rules_name_alike_keep_their_own_names(tiny_config, order):
    """Else one of them would be left out of every conversion and warm start."""
    objective = build_objective(tiny_config(objective={"name": "bert_mlm"}))
    objective.choice = keras.layers.Layer()
    for name in order:
        setattr(objective.choice, name, keras.layers.Dense(len(name)))
        getattr(objective.choice, name).build([None, 3])
    named = named_variables(objective)
    kernels = {name: each.shape[1] for name, each in named.items() if name.startswith("choice/") and "kernel" in name}
    assert kernels == {"choice/dense/kernel": 5, "choice/transform/kernel": 9}


@pytest.mark.parametrize("tying", ["embeddings", "none"])
def test_computed_shapes_equal_those_of_built_networks(tiny_config, tying):
    config = tiny_config(objective={"tying": tying}, encoder={"embedding_size": 16})
    built = {name: tuple(variable.shape) for name, variable in named_variables(build_objective(config)).items()}
    generator = config.objective.generator_encoder(config)
    expected = {
        **network_shapes(config.encoder, ("discriminator_predictions/",)),
        **network_shapes(generator, ("generator_predictions/",), "generator", with_embeddings=tying == "none"),
    }
    assert built == expected
    assert "electra/embeddings_project/kernel" not in built  # as wide as the layers
    assert {"generator/embeddings_project/kernel", "generator_predictions/output_bias"} <= built.keys()
    assert {"discriminator_predictions/dense/kernel", "discriminator_predictions/dense_1/bias"} <= built.keys()
    assert ("generator/embeddings/word_embeddings" in built) == (tying == "none")
    assert encoder_sizes("there", built, num_heads=2) == config.encoder
    tables = "generator" if tying == "none" else "electra"
    assert encoder_sizes("there", built, "generator", tables, num_heads=3) == generator


def test_an_encoder_that_is_larger_than_its_weights_is_refused():
    tables = {"word_embeddings": (13, 3), "position_embeddings": (7, 3), "token_type_embeddings": (2, 3)}
    shapes = {f"electra/embeddings/{name}": shape for name, shape in tables.items()}
    shapes["electra/encoder/layer_0/intermediate/dense/kernel"] = (64_000, 11)
    with pytest.raises(UserError, match="there is too small for 1 layers with hidden_size 64,?000"):
        encoder_sizes("there", shapes)


@pytest.mark.parametrize("block", BLOCKS)
def test_computed_shapes_equal_those_of_the_layers_of_each_block(tiny_config, block):
    encoder = {"block": block, "num_layers": 3, **{n: True for n in BLOCKS[block].settings if n in BIASES}}
    config = tiny_config(objective={"name": "bert_mlm"}, encoder=encoder)
    built = {name: tuple(variable.shape) for name, variable in named_variables(build_objective(config)).items()}
    assert built == network_shapes(config.encoder, ("generator_predictions/",))


@pytest.mark.parametrize(("hidden_size", "num_heads"), [(24, 1), (256, 4)])
def test_an_attention_head_has_64_units_by_default(hidden_size, num_heads):
    assert default_num_heads(hidden_size) == num_heads
