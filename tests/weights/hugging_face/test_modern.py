"""Folders of the modern block: transformers' ModernBERT classes, written and read back, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from electra_tf.weights.hugging_face.reader import read_hugging_face
from electra_tf.weights.hugging_face.writer import hugging_face_networks, write_hugging_face
from tests.weights import conftest
from tests.weights.conftest import BIASES, MODERN, SHALLOW, assert_same_weights, refusal, shapes_of

ELECTRA = {"encoder": MODERN, "objective": {"generator": SHALLOW}}
MASKED_LM = {"encoder": MODERN, "objective": conftest.MASKED_LM}


def encoder_shapes(num_layers: int, inner: int) -> dict[str, list[int]]:
    """The tensors of a ModernBertModel without biases below `model.`"""
    shapes = {"model.embeddings.tok_embeddings.weight": [47, 12]}
    shapes |= dict.fromkeys(("model.embeddings.norm.weight", "model.final_norm.weight"), [12])
    for index in range(num_layers):
        layer = {
            **{"attn_norm.weight": [12], "attn.Wqkv.weight": [36, 12], "attn.Wo.weight": [12, 12]},
            **{"mlp_norm.weight": [12], "mlp.Wi.weight": [2 * inner, 12], "mlp.Wo.weight": [12, inner]},
        }
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    return {name: shape for name, shape in shapes.items() if name != "model.layers.0.attn_norm.weight"}


HEAD = {"head.dense.weight": [12, 12], "head.norm.weight": [12]}
CLASSIFIER = {"classifier.weight": [2, 12], "classifier.bias": [2]}


def test_electra_is_written_as_a_token_classifier_and_a_masked_language_model(stored):
    discriminator, generator = hugging_face_networks(stored(**ELECTRA))
    assert discriminator.architecture == "ModernBertForTokenClassification"
    assert shapes_of(discriminator) == encoder_shapes(3, 7) | HEAD | CLASSIFIER
    assert generator.architecture == "ModernBertForMaskedLM"
    assert shapes_of(generator) == encoder_shapes(2, 5) | HEAD | {"decoder.bias": [47]}


def test_every_bias_has_a_tensor(stored):
    plain, full = (hugging_face_networks(stored(encoder=MODERN | biases, objective=ELECTRA["objective"]))[0]
                   for biases in ({}, BIASES))  # fmt: skip
    biased = {name: shape[:1] for name, shape in shapes_of(plain).items() if "embeddings.tok" not in name}
    expected = {name.replace("weight", "bias"): shape for name, shape in biased.items()}
    assert shapes_of(full) == shapes_of(plain) | expected


def test_the_logit_of_an_original_token_is_zero(stored):
    model = stored(**ELECTRA)
    network = hugging_face_networks(model)[0]
    kernel, bias = (model.weights[f"discriminator_predictions/dense_1/{part}"] for part in ("kernel", "bias"))
    assert network.tensors["classifier.weight"].tolist() == [[0.0] * 12, kernel[:, 0].tolist()]
    assert network.tensors["classifier.bias"].tolist() == [0.0, bias.item()]
    assert network.config["id2label"] == {"0": "original", "1": "replaced"}
    assert network.config["label2id"] == {"original": 0, "replaced": 1}


def test_config_states_positions_and_kinds_of_layers_in_the_forms_of_transformers_4_and_5(stored):
    network = hugging_face_networks(stored(encoder=MODERN | {"attention_bias": True}, objective=ELECTRA["objective"]))[
        0
    ]
    expected = {
        **{"norm_eps": 1e-4, "hidden_activation": "gelu", "classifier_activation": "gelu", "classifier_pooling": "cls"},
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 900.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
        },
        **{"global_attn_every_n_layers": 2, "local_attention": 6, "global_rope_theta": 900.0, "local_rope_theta": 30.0},
        **dict.fromkeys(("attention_dropout", "embedding_dropout", "mlp_dropout"), 0.1),
        "classifier_dropout": 0.0,
        **dict.fromkeys(("attention_bias", "decoder_bias", "tie_word_embeddings"), True),
        **dict.fromkeys(("mlp_bias", "norm_bias", "classifier_bias"), False),
        **{"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3},
    }
    assert {name: network.config[name] for name in expected} == expected
    assert not {"embedding_size", "type_vocab_size", "layer_norm_eps"} & network.config.keys()


def test_a_generator_with_projected_embeddings_is_left_out_with_a_note(stored, tmp_path):
    model = stored(encoder=MODERN, objective={"generator": {"size_fraction": 0.5, "num_heads": 3}})
    lines = write_hugging_face(model, str(tmp_path))
    assert any("The generator is left out: its hidden_size 6 is not its embedding_size 12" in line for line in lines)
    assert "The generator is left out" in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert read_hugging_face(str(tmp_path)).has_discriminator_head


@pytest.fixture
def published(folder, stored):
    """`published({"layer_types": None}, {"decoder.bias": None})`: the folder of a masked LM that we did not write."""
    (network,) = hugging_face_networks(stored(**MASKED_LM))
    return lambda config=None, tensors=None: str(folder(network, config, tensors))


OLD = dict.fromkeys(("layer_types", "rope_parameters"))
NEW = dict.fromkeys(("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"))


@pytest.mark.parametrize("left_out", [OLD, NEW], ids=["transformers 4", "transformers 5"])
def test_a_folder_of_either_version_is_read(published, stored, left_out):
    expected = stored(**MASKED_LM)
    model = read_hugging_face(published(left_out))
    assert_same_weights(model.weights, expected.weights)
    assert (model.encoder, model.objective) == (expected.encoder, "bert_mlm")
    assert not [note for note in model.notes if "not read" in note or "masked language model alone" in note]


@pytest.mark.parametrize(
    ("config", "setting", "value"),
    [
        (dict.fromkeys(("norm_eps",)), "layer_norm_epsilon", 1e-5),
        (dict.fromkeys(("mlp_dropout",)), "hidden_dropout", 0.0),
        (OLD | {"global_attn_every_n_layers": None}, "global_attention_every_n_layers", 3),
        (OLD | {"local_rope_theta": None}, "local_rope_theta", 10_000.0),
        (NEW | {"rope_parameters": {"full_attention": None}}, "global_rope_theta", 160_000.0),
        ({"layer_types": ["full_attention"] * 3}, "global_attention_every_n_layers", 1),
        # No second global layer: what is stated, if it is beyond the last layer, else the number of layers.
        ({"layer_types": ["full_attention", *["sliding_attention"] * 2]}, "global_attention_every_n_layers", 3),
    ],
)
def test_a_setting_that_is_left_out_has_transformers_default(published, config, setting, value):
    assert getattr(read_hugging_face(published(config)).encoder, setting) == value


def test_without_a_local_theta_local_layers_have_the_global_one(published):
    place = published(OLD)
    file = Path(place) / "config.json"
    file.write_text(file.read_text().replace("30.0", "null"))
    assert read_hugging_face(place).encoder.local_rope_theta == 900.0


def test_a_masked_language_model_without_an_output_bias_has_zeros(published):
    model = read_hugging_face(published({"decoder_bias": False}, {"decoder.bias": None}))
    assert model.weights["generator_predictions/output_bias"].tolist() == [0.0] * 47


ONE_LOGIT = {"classifier.weight": np.ones([1, 12], np.float32), "classifier.bias": np.ones(1, np.float32)}


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        ({"hidden_activation": "silu"}, {}, "hidden_activation is 'silu', expected 'gelu'"),
        ({"layer_types": ["sliding_attention", *["full_attention"] * 2]}, {}, "layer_types is ['sliding_att"),
        ({"num_hidden_layers": 200_000_000}, {}, "num_hidden_layers is 200000000, expected 3"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, {}, "{'rope_type': 'yarn'}} and rope_scaling"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {},
            "rope_scaling {'type': 'linear', 'factor': 2.0}",
        ),
        ({"rope_parameters": {"rope_theta": 5.0}}, {}, "expected entries 'full_attention' and 'sliding_attention'"),
        (
            {},
            {"decoder.weight": np.ones([47, 12], np.float32)},
            "decoder.weight is not model.embeddings.tok_embeddings.weight",
        ),
        (
            {"architectures": ["ModernBertForSequenceClassification"], "classifier_pooling": "mean"},
            ONE_LOGIT | {"decoder.bias": None},
            "classifier_pooling is 'mean'",
        ),
    ],
)
def test_what_the_block_cannot_compute_is_refused(published, config, tensors, message):
    assert message in refusal(read_hugging_face, published(config, tensors))


def test_a_discriminator_trained_further_is_the_difference_of_its_logits(stored, folder):
    network = hugging_face_networks(stored(("generator",), **ELECTRA))[0]
    read = read_hugging_face(str(folder(network, tensors={"classifier.bias": np.float32([0.5, 2.0])})))
    assert read.weights["discriminator_predictions/dense_1/bias"].tolist() == [1.5]
    assert read.finetuned is None
