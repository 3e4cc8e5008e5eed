"""Folders of sentence-transformers: the encoder alone and three files. Their content is checked by that library itself
(docs/interop.md), because the tests do not depend on it."""

import json

import pytest
import safetensors.numpy

from electra_tf.weights.hugging_face.sentence_transformers import write_sentence_transformers


@pytest.fixture
def folder(stored, tmp_path):
    """The first two layers of three, of width 16."""
    model = stored(encoder={"num_layers": 3, "hidden_size": 16}).truncated(2)
    write_sentence_transformers(model, str(tmp_path / "folder"))
    return tmp_path / "folder"


def test_the_encoder_has_no_head(folder):
    config = json.loads((folder / "config.json").read_text())
    assert (config["architectures"], config["num_hidden_layers"]) == (["ElectraModel"], 2)
    names = safetensors.numpy.load_file(folder / "model.safetensors").keys()
    assert {name.split(".")[0] for name in names} == {"embeddings", "embeddings_project", "encoder"}


def test_the_vectors_of_all_real_tokens_are_averaged(folder):
    modules = json.loads((folder / "modules.json").read_text())
    assert [(each["path"], each["type"].split(".")[-1]) for each in modules] == [
        ("", "Transformer"),
        ("1_Pooling", "Pooling"),
    ]
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == 16
    assert [name for name, value in pooling.items() if value is True] == ["pooling_mode_mean_tokens", "include_prompt"]


def test_the_longest_text_is_that_of_the_encoder(folder):
    lengths = json.loads((folder / "sentence_bert_config.json").read_text())
    positions = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    assert lengths == {"max_seq_length": positions, "do_lower_case": False}
