"""Networks for Hugging Face: classes, tensors by name and shape, and sizes, as transformers' own classes have them."""

import json
from pathlib import Path

import numpy as np
import pytest

from electra_tf.weights.hugging_face.writer import hugging_face_networks

FIXTURE = Path(__file__).parents[2] / "fixtures" / "hugging_face_tensors.json"
EQUAL_SIZES = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}
LABELS = ("no", "maybe", "yes")
PLAIN_ANSWERS = {"joint_prediction": False, "answerable_classifier": False}


@pytest.fixture(scope="module")
def shapes_of() -> dict[str, dict[str, list[int]]]:
    return json.loads(FIXTURE.read_text(encoding="utf-8"))


def shapes(network) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in network.tensors.items()}


def test_electra_is_a_discriminator_and_a_generator(stored, shapes_of):
    networks = hugging_face_networks(stored())
    assert [(each.name, each.architecture) for each in networks] == [
        ("discriminator", "ElectraForPreTraining"),
        ("generator", "ElectraForMaskedLM"),
    ]
    for network in networks:
        assert shapes(network) == shapes_of[network.architecture]


@pytest.mark.parametrize("tying", ["none", "all"])
def test_a_generator_that_shares_other_weights_is_a_whole_network_too(stored, tying):
    generator = {"generator": EQUAL_SIZES} if tying == "all" else {}
    model = stored(objective={"tying": tying, **generator})
    discriminator, masked_lm = hugging_face_networks(model)
    encoders = [
        {name: tensor for name, tensor in network.tensors.items() if name.startswith("electra.")}
        for network in (discriminator, masked_lm)
    ]
    assert encoders[0].keys() == encoders[1].keys()
    equal = [np.array_equal(encoders[0][name], encoders[1][name]) for name in encoders[0]]
    assert all(equal) if tying == "all" else not any(equal)
    assert masked_lm.config["hidden_size"] == (16 if tying == "all" else 6)


def test_shared_embeddings_stand_in_both_networks(stored):
    model = stored()
    tables = [network.tensors["electra.embeddings.word_embeddings.weight"] for network in hugging_face_networks(model)]
    for table in tables:
        assert np.array_equal(table, model.weights["electra/embeddings/word_embeddings"])


def test_config_holds_each_networks_own_sizes_as_whole_numbers(stored):
    discriminator, generator = (network.config for network in hugging_face_networks(stored(facts={"data": ["abc"]})))
    sizes = {
        "vocab_size": (47, 47),
        "embedding_size": (12, 12),
        "hidden_size": (16, 6),
        "num_hidden_layers": (1, 1),
        "num_attention_heads": (2, 3),
        "intermediate_size": (20, 14),
        "max_position_embeddings": (13, 13),
        "type_vocab_size": (2, 2),
        "pad_token_id": (0, 0),
    }
    for name, expected in sizes.items():
        found = discriminator[name], generator[name]
        assert found == expected and all(type(value) is int for value in found)
    assert discriminator["electra_tf"] == {"objective": "electra", "step": 3, "data": ["abc"]}


def test_a_kernel_is_stored_as_its_transpose_in_memory(stored):
    model = stored()
    tensor = hugging_face_networks(model)[0].tensors["electra.embeddings_project.weight"]
    kernel = model.weights["electra/embeddings_project/kernel"]  # [12, 16]
    assert tensor.tobytes() == np.array(kernel.T.tolist(), np.float32).tobytes()


def test_without_a_generator_network_there_is_the_discriminator_alone(stored):
    (network,) = hugging_face_networks(stored(objective={"generator": {"kind": "uniform"}}))
    assert network.architecture == "ElectraForPreTraining"


def test_the_masked_lm_baseline_is_one_masked_language_model(stored):
    (network,) = hugging_face_networks(stored(objective={"name": "bert_mlm"}))
    assert (network.architecture, network.config["hidden_size"]) == ("ElectraForMaskedLM", 16)


def test_an_objective_that_transformers_does_not_have_is_its_encoder(stored, shapes_of):
    model, notes = stored(objective={"name": "all_tokens_mlm"}).of_authors()
    (network,) = hugging_face_networks(model)
    assert "only its encoder is converted" in notes[0]
    assert shapes(network) == shapes_of["ElectraModel"]
    assert network.config["architectures"] == ["ElectraModel"]


@pytest.mark.parametrize(
    ("task", "architecture", "settings"),
    [
        (
            {"kind": "classification", "labels": LABELS},
            "ElectraForSequenceClassification",
            {
                "problem_type": "single_label_classification",
                "id2label": {"0": "no", "1": "maybe", "2": "yes"},
                "label2id": {"no": 0, "maybe": 1, "yes": 2},
                "classifier_dropout": 0.0,
            },
        ),
        (
            {"kind": "classification", "labels": LABELS, "head": "huggingface", "dropout": 0.2},
            "ElectraForSequenceClassification",
            {"problem_type": "single_label_classification", "classifier_dropout": 0.2},
        ),
        (
            {"kind": "multi_label", "labels": LABELS},
            "ElectraForSequenceClassification",
            {"problem_type": "multi_label_classification"},
        ),
        (
            {"kind": "tagging", "labels": ("O", "B-a", "I-a", "B-b", "I-b")},
            "ElectraForTokenClassification",
            {"label2id": {"O": 0, "B-a": 1, "I-a": 2, "B-b": 3, "I-b": 4}},
        ),
        ({"kind": "question_answering", "version_2": True, **PLAIN_ANSWERS}, "ElectraForQuestionAnswering", {}),
    ],
)
def test_a_fine_tuned_model_is_the_class_of_its_head(stored_finetuned, shapes_of, task, architecture, settings):
    (network,) = hugging_face_networks(stored_finetuned(task))
    assert network.architecture == architecture
    assert shapes(network) == shapes_of[architecture]
    assert {name: network.config[name] for name in settings} == settings


def test_the_two_rows_of_a_question_answering_head_are_start_and_end(stored_finetuned):
    model = stored_finetuned({"kind": "question_answering", "version_2": False, **PLAIN_ANSWERS})
    (network,) = hugging_face_networks(model)
    for row, layer in enumerate(("dense", "dense_1")):
        scope = f"task_specific/made_up/{layer}"
        assert np.array_equal(network.tensors["qa_outputs.weight"][row], model.weights[f"{scope}/kernel"][:, 0])
        assert network.tensors["qa_outputs.bias"][row] == model.weights[f"{scope}/bias"][0]


@pytest.mark.parametrize("settings", [{}, {"joint_prediction": False}])
def test_a_head_that_transformers_does_not_have_leaves_the_encoder_with_a_note(stored_finetuned, shapes_of, settings):
    task = {"kind": "question_answering", "version_2": True, "head_size": 9, **settings}
    (network,) = hugging_face_networks(stored_finetuned(task))
    assert shapes(network) == shapes_of["ElectraModel"]
    assert network.notes[0].startswith("transformers has no class for this head")
