"""Written Hugging Face folders: the classes, tensors and sizes of transformers, the files, and the model card."""

import dataclasses
import json
import os
import struct
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest

from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.weights.hugging_face.writer import hugging_face_networks, model_card, write_hugging_face
from tests.toy import EQUAL_SIZES

FIXTURE = Path(__file__).parents[2] / "fixtures" / "hugging_face_tensors.json"
LABELS = ("no", "maybe", "yes")
PLAIN_ANSWERS = {"joint_prediction": False, "answerable_classifier": False}
FILES = [
    "README.md",
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
]


@pytest.fixture(scope="module")
def shapes_of() -> dict[str, dict[str, list[int]]]:
    """The shapes of each class of transformers, by the names of its tensors."""
    return json.loads(FIXTURE.read_text(encoding="utf-8"))


def shapes(network) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in network.tensors.items()}


def test_electra_is_written_as_a_discriminator_and_a_generator(stored, shapes_of):
    networks = hugging_face_networks(stored())
    assert [(each.name, each.architecture) for each in networks] == [
        ("discriminator", "ElectraForPreTraining"),
        ("generator", "ElectraForMaskedLM"),
    ]
    for network in networks:
        assert shapes(network) == shapes_of[network.architecture]


@pytest.mark.parametrize("tying", ["none", "all"])
def test_a_generator_is_a_whole_network_for_every_tying(stored, tying):
    generator = {"generator": EQUAL_SIZES} if tying == "all" else {}
    discriminator, masked_lm = hugging_face_networks(stored(objective={"tying": tying, **generator}))
    encoders = [
        {name: tensor for name, tensor in network.tensors.items() if name.startswith("electra.")}
        for network in (discriminator, masked_lm)
    ]
    assert encoders[0].keys() == encoders[1].keys()
    equal = [np.array_equal(encoders[0][name], encoders[1][name]) for name in encoders[0]]
    assert all(equal) if tying == "all" else not any(equal)
    assert masked_lm.config["hidden_size"] == (16 if tying == "all" else 6)


def test_config_holds_each_networks_own_sizes_as_whole_numbers(stored):
    discriminator, generator = (network.config for network in hugging_face_networks(stored(facts={"data": ["abc"]})))
    sizes = {
        "embedding_size": (12, 12),
        "hidden_size": (16, 6),
        "num_attention_heads": (2, 3),
        "intermediate_size": (20, 14),
        "pad_token_id": (0, 0),
    }
    for name, expected in sizes.items():
        values = discriminator[name], generator[name]
        assert values == expected and all(type(value) is int for value in values)
    assert discriminator["electra_tf"] == {"objective": "electra", "step": 3, "data": ["abc"]}


@pytest.mark.parametrize(
    ("objective", "architecture"),
    [({"generator": {"kind": "uniform"}}, "ElectraForPreTraining"), ({"name": "bert_mlm"}, "ElectraForMaskedLM")],
)
def test_a_model_of_one_network_is_one_class(stored, objective, architecture):
    (network,) = hugging_face_networks(stored(objective=objective))
    assert (network.architecture, network.config["hidden_size"]) == (architecture, 16)


def test_only_the_encoder_is_written_if_the_authors_lack_the_objective(stored, shapes_of):
    model, notes = stored(objective={"name": "all_tokens_mlm"}).of_authors()
    (network,) = hugging_face_networks(model)
    assert "copy_head" in notes[0]
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
            {"kind": "tagging", "labels": ("O", "B-a", "I-a", "B-b", "I-b")},
            "ElectraForTokenClassification",
            {"label2id": {"O": 0, "B-a": 1, "I-a": 2, "B-b": 3, "I-b": 4}},
        ),
        ({"kind": "question_answering", "version_2": True, **PLAIN_ANSWERS}, "ElectraForQuestionAnswering", {}),
        (
            {"kind": "multiple_choice", "head": "huggingface", "dropout": 0.2},
            "ElectraForMultipleChoice",
            {"summary_use_proj": True, "summary_activation": "gelu", "summary_last_dropout": 0.2},
        ),
    ],
)
def test_a_fine_tuned_model_is_written_as_the_class_of_its_head(
    stored_finetuned, shapes_of, task, architecture, settings
):
    (network,) = hugging_face_networks(stored_finetuned(task))
    assert network.architecture == architecture
    assert shapes(network) == shapes_of[architecture]
    assert {name: network.config[name] for name in settings} == settings


def test_the_tokenizer_of_a_fine_tuned_model_cuts_where_training_cut(stored_finetuned, tmp_path):
    model = stored_finetuned({"kind": "classification", "labels": LABELS})
    write_hugging_face(model, str(tmp_path / "out"))
    written = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert written["model_max_length"] == model.finetuned.data.max_seq_length < model.encoder.max_position_embeddings


@pytest.mark.parametrize(
    "task",
    [
        {"kind": "question_answering", "version_2": True, "head_size": 9},
        {"kind": "multi_label", "labels": tuple(map(str, range(9)))},  # more than half of the 16 hidden units
    ],
)
def test_a_head_that_transformers_does_not_have_leaves_the_encoder_with_a_note(stored_finetuned, shapes_of, task):
    (network,) = hugging_face_networks(stored_finetuned(task))
    assert shapes(network) == shapes_of["ElectraModel"]
    assert "this is the encoder alone" in network.notes[0]


@pytest.fixture(scope="module")
def written(stored, tmp_path_factory) -> tuple[str, list[str]]:
    output_dir = str(tmp_path_factory.mktemp("hub") / "out")
    return output_dir, write_hugging_face(stored(), output_dir)


def test_each_network_has_a_folder_with_all_files(written):
    output_dir, lines = written
    assert sorted(os.listdir(output_dir)) == ["discriminator", "generator"]
    for folder in ("discriminator", "generator"):
        assert sorted(os.listdir(os.path.join(output_dir, folder))) == FILES
    assert lines == [
        f"{output_dir}/discriminator: ElectraForPreTraining, 27 tensors, 3,093 parameters",
        f"{output_dir}/generator: ElectraForMaskedLM, 28 tensors, 1,381 parameters",
    ]


def test_the_bytes_of_the_file_are_the_weights(written, stored):
    with open(os.path.join(written[0], "discriminator", "model.safetensors"), "rb") as stream:
        # The format: eight bytes of length, a header in JSON, the values one after another.
        header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
        content = stream.read()
    assert header.pop("__metadata__") == {"format": "pt"} and len(header) == 27
    weights = stored().weights
    table, kernel = weights["electra/embeddings/word_embeddings"], weights["electra/embeddings_project/kernel"]
    expected = {"word_embeddings": table, "embeddings_project": kernel.T}  # [47, 12], [16, 12]
    for name, value in expected.items():
        (entry,) = (entry for tensor, entry in header.items() if tensor.endswith(f"{name}.weight"))
        assert (entry["dtype"], entry["shape"]) == ("F32", list(value.shape))
        assert content[slice(*entry["data_offsets"])] == value.tobytes()


def test_transformers_reads_configuration_and_tokenizer(written):
    transformers = pytest.importorskip("transformers")
    generator = os.path.join(written[0], "generator")
    config = transformers.AutoConfig.from_pretrained(generator)
    assert isinstance(config, transformers.ElectraConfig)
    assert (config.hidden_size, config.num_attention_heads, config.intermediate_size) == (6, 3, 14)
    assert config.electra_tf == {"objective": "electra", "step": 3, "data": []}
    tokenizer = transformers.AutoTokenizer.from_pretrained(generator)
    assert tokenizer("w5 [MASK] w7")["input_ids"] == [2, 5, 4, 7, 3]


def test_a_single_network_goes_into_the_directory_itself(stored, tmp_path):
    write_hugging_face(stored(("generator",)), str(tmp_path / "out"))
    assert sorted(os.listdir(tmp_path / "out")) == FILES


def test_a_vocabulary_with_more_tokens_than_rows_is_refused(stored, tmp_path):
    other = dataclasses.replace(
        stored(), stored_tokenizer=StoredTokenizer(stored().stored_tokenizer.content + b"w47\n")
    )
    with pytest.raises(UserError, match="the vocabulary has 48 tokens, the encoder of a test 47"):
        write_hugging_face(other, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


FACTS = {
    "data": ["a1b2"],
    "init_from": "there/runs/tiny",
    "configuration": {"train": {"batch_size": 6}, "data": {"max_seq_length": 13}, "optimizer": {"learning_rate": 5e-4}},
}


def cards(model) -> list[huggingface_hub.ModelCard]:
    return [huggingface_hub.ModelCard(model_card(model, network)) for network in hugging_face_networks(model)]


def test_the_card_has_metadata_sizes_data_and_settings(stored):
    discriminator, generator = cards(stored(facts=FACTS))
    assert (discriminator.data.library_name, discriminator.data.pipeline_tag) == ("transformers", None)
    assert (generator.data.tags, generator.data.pipeline_tag) == (["electra"], "fill-mask")
    lines = str(discriminator).splitlines()
    for line in (
        "# electra_tf electra discriminator",
        'model = ElectraForPreTraining.from_pretrained("FOLDER")',
        "- parameters: 3,093",
        "- `hidden_size`: 16",
        "- vocabulary: 47 word pieces, uncased",
        "- data set, SHA-256: `a1b2`",
        "- initial weights: runs/tiny",
        "- steps: 3",
        "- `train.batch_size`: 6",
        "- `optimizer.learning_rate`: 0.0005",
    ):
        assert line in lines


def test_the_card_of_a_fine_tuned_model_has_its_task_and_notes(stored_finetuned):
    (card,) = cards(stored_finetuned({"kind": "classification", "labels": ["0", "1"]}, "mrpc"))
    lines = str(card).splitlines()
    assert card.data.pipeline_tag == "text-classification"
    assert "from transformers import AutoTokenizer, ElectraForSequenceClassification" in lines
    assert "# electra_tf mrpc" in lines and any(line.startswith("- The head was trained as one") for line in lines)
