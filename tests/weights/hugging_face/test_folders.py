"""Folders for Hugging Face: their files, what transformers reads in them without torch, and what is refused."""

import dataclasses
import json
import os
import struct

import numpy as np
import pytest

from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain import build_objective
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.names import named_variables
from electra_tf.weights.stored_model import StoredModel

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{index}" for index in range(5, 47))]
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
def model(tiny_config) -> StoredModel:
    config = tiny_config()
    weights = {name: variable.numpy() for name, variable in named_variables(build_objective(config)).items()}
    content = "".join(f"{token}\n" for token in TOKENS).encode()
    generator = config.objective.generator_encoder(config)
    return StoredModel("a run", config.encoder, generator, weights, content, objective="electra", step=3)


@pytest.fixture(scope="module")
def written(model, tmp_path_factory) -> tuple[str, list[str]]:
    output_dir = str(tmp_path_factory.mktemp("hub") / "out")
    return output_dir, write_hugging_face(model, output_dir)


def tensors_of(file: str) -> tuple[dict[str, np.ndarray], dict]:
    """Read by hand: eight bytes of length, a header in JSON, the values one after another."""
    with open(file, "rb") as stream:
        header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
        content = stream.read()
    metadata = header.pop("__metadata__")
    return {
        name: np.frombuffer(content[slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"])
        for name, entry in header.items()
        if entry["dtype"] == "F32"
    }, metadata


def test_each_network_has_a_folder_with_all_files(written):
    output_dir, lines = written
    assert sorted(os.listdir(output_dir)) == ["discriminator", "generator"]
    for folder in ("discriminator", "generator"):
        assert sorted(os.listdir(os.path.join(output_dir, folder))) == FILES
    assert lines == [
        f"{output_dir}/discriminator: ElectraForPreTraining, 27 tensors, 3,093 parameters",
        f"{output_dir}/generator: ElectraForMaskedLM, 28 tensors, 1,381 parameters",
    ]


def test_the_bytes_of_the_file_are_the_weights(written, model):
    tensors, metadata = tensors_of(os.path.join(written[0], "discriminator", "model.safetensors"))
    assert metadata == {"format": "pt"} and len(tensors) == 27
    kernel = model.weights["electra/encoder/layer_0/output/dense/kernel"]  # [20, 16]
    assert np.array_equal(tensors["electra.encoder.layer.0.output.dense.weight"], kernel.T)
    table = model.weights["electra/embeddings/word_embeddings"]
    assert np.array_equal(tensors["electra.embeddings.word_embeddings.weight"], table)


def test_transformers_reads_configuration_and_tokenizer(written):
    transformers = pytest.importorskip("transformers")
    generator = os.path.join(written[0], "generator")
    config = transformers.AutoConfig.from_pretrained(generator)
    assert isinstance(config, transformers.ElectraConfig)
    assert (config.hidden_size, config.num_attention_heads, config.intermediate_size) == (6, 3, 14)
    assert config.electra_tf == {"objective": "electra", "step": 3, "data": []}
    tokenizer = transformers.AutoTokenizer.from_pretrained(generator)
    assert tokenizer("w5 [MASK] w7")["input_ids"] == [2, 5, 4, 7, 3]


def test_one_network_goes_into_the_directory_itself(model, tmp_path):
    alone = {name: value for name, value in model.weights.items() if not name.startswith("generator")}
    write_hugging_face(dataclasses.replace(model, weights=alone, generator=None), str(tmp_path / "out"))
    assert sorted(os.listdir(tmp_path / "out")) == FILES


def test_nothing_is_overwritten(written, model):
    with pytest.raises(UserError, match="discriminator is not empty; give a new directory"):
        write_hugging_face(model, written[0])


def test_a_vocabulary_of_another_size_is_refused(model, tmp_path):
    other = dataclasses.replace(model, vocabulary_file=model.vocabulary_file + b"w47\n")
    with pytest.raises(UserError, match="the vocabulary has 48 tokens, the encoder of a run has 47"):
        write_hugging_face(other, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
