"""Written Hugging Face folders: the classes, tensors and sizes of transformers, the files, and the model card."""

import dataclasses
import os

import huggingface_hub
import pytest
import safetensors

from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.weights.hugging_face.writer import hugging_face_networks, model_card, write_hugging_face
from electra_tf.weights.write import write_model
from tests.toy import VOCABULARY
from tests.weights.conftest import MASKED_LM, MODERN, assert_same_weights, refusal, shapes_of

TABLE = "embeddings.word_embeddings"
FILES = sorted(
    ["README.md", "config.json", "model.safetensors", "vocab.txt"]
    + ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
)


@pytest.mark.parametrize(
    ("without", "architectures"),
    [((), ["ElectraForPreTraining", "ElectraForMaskedLM"]), (("generator", "discriminator"), ["ElectraModel"])],
)
def test_electra_is_written_as_two_classes_and_its_encoder_as_one(stored, shapes_of_classes, without, architectures):
    networks = hugging_face_networks(stored(without))
    assert [network.architecture for network in networks] == architectures
    for network in networks:
        assert shapes_of(network) == shapes_of_classes[network.architecture]


def test_config_holds_each_networks_own_sizes_as_whole_numbers(stored):
    discriminator, generator = (network.config for network in hugging_face_networks(stored(facts={"data": ["abc"]})))
    sizes = {"embedding_size": (12, 12), "hidden_size": (16, 6), "num_attention_heads": (2, 3)}
    sizes |= {"intermediate_size": (20, 14), "pad_token_id": (0, 0)}
    for name, expected in sizes.items():
        values = discriminator[name], generator[name]
        assert values == expected and all(type(value) is int for value in values)
    assert discriminator["electra_tf"] == {"objective": "electra", "step": 3, "data": ["abc"]}


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


def test_the_file_holds_the_weights_and_names_its_format(written, stored):
    with safetensors.safe_open(f"{written[0]}/discriminator/model.safetensors", "np") as file:
        assert (file.metadata(), len(file.keys())) == ({"format": "pt"}, 27)
        tensors = {name: file.get_tensor(f"electra.{name}.weight") for name in ("embeddings_project", TABLE)}
    weights = stored().weights
    expected = {
        "embeddings_project": weights["electra/embeddings_project/kernel"].T,  # [16, 12]
        TABLE: weights["electra/embeddings/word_embeddings"],
    }
    assert_same_weights(tensors, expected)


def test_transformers_reads_the_configuration(written):
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(os.path.join(written[0], "generator"))
    assert isinstance(config, transformers.ElectraConfig) and config.hidden_size == 6
    assert config.electra_tf == {"objective": "electra", "step": 3, "data": []}


@pytest.mark.parametrize(
    ("objective", "architecture"),
    [({"generator": {"kind": "uniform"}}, "ElectraForPreTraining"), (MASKED_LM, "ElectraForMaskedLM")],
)
def test_a_single_network_goes_into_the_directory_itself(stored, tmp_path, objective, architecture):
    (line,) = write_hugging_face(stored(objective=objective), str(tmp_path / "out"))
    assert line.startswith(f"{tmp_path}/out: {architecture}, ")
    assert sorted(os.listdir(tmp_path / "out")) == FILES


def test_a_vocabulary_with_more_tokens_than_rows_is_refused(stored, tmp_path):
    other = dataclasses.replace(stored(), stored_tokenizer=StoredTokenizer(VOCABULARY + b"w47\n"))
    message = refusal(write_hugging_face, other, str(tmp_path / "out"))
    assert "the vocabulary has 48 tokens, the encoder of a test 47" in message


@pytest.mark.parametrize(
    ("format", "encoder", "message"),
    [
        ("tf1", MODERN, "encoder.block modern"),
        ("bert", MODERN, "encoder.block modern"),
        ("bert", {}, "embedding_size 12 and encoder.hidden_size 16, and transformers' Bert classes"),
        ("hugging_face", MODERN | {"embedding_size": 9}, "embedding_size 9 and encoder.hidden_size 12"),
        ("sentence_transformers", MODERN | {"embedding_size": 9}, "embedding_size 9 and encoder.hidden_size 12"),
    ],
)
def test_a_format_that_cannot_hold_a_model_is_refused(stored, tmp_path, format, encoder, message):
    model = stored(encoder=encoder, objective=MASKED_LM)
    assert message in refusal(write_model, model, format, tmp_path / "out")
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
