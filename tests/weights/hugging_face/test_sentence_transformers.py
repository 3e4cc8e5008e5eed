"""Folders of sentence-transformers, written and read: the encoder alone, and how a text's vector is made."""

import json
from pathlib import Path

import numpy as np
import pytest

import electra_tf
from electra_tf.config.errors import UserError
from electra_tf.weights.hugging_face.sentence_transformers import read_pooling, write_sentence_transformers
from electra_tf.weights.source import load_trained
from tests.weights.conftest import assert_same_weights, refusal

TEXTS = ["w5 w6 w7", "w8"]
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


def with_modules(place: Path, pooling: dict, *others: str, longest: int | None = None, **settings) -> str:
    """Makes a folder one of sentence-transformers."""
    names = ["Transformer", "Pooling", *others]
    modules = [
        {"idx": index, "path": f"{index}_{name}" if index else "", "type": f"sentence_transformers.models.{name}"}
        for index, name in enumerate(names)
    ]
    (place / "1_Pooling").mkdir(exist_ok=True)
    files = {"modules.json": modules, "1_Pooling/config.json": pooling, "config_sentence_transformers.json": settings}
    files["sentence_bert_config.json"] = {"max_seq_length": longest, "do_lower_case": False}
    for name, content in files.items():
        (place / name).write_text(json.dumps(content))
    return str(place)


def test_a_written_folder_has_the_encoder_alone_and_averages_the_vectors_of_all_real_tokens(stored, tmp_path):
    """That library itself checks these files (docs/interop.md), because the tests do not depend on it."""
    model = stored(encoder={"num_layers": 3}).truncated(2)
    write_sentence_transformers(model, str(tmp_path))
    names = ("config", "modules", "1_Pooling/config", "sentence_bert_config")
    config, modules, pooling, lengths = (json.loads((tmp_path / f"{name}.json").read_text()) for name in names)
    assert (config["architectures"], config["num_hidden_layers"]) == (["ElectraModel"], 2)
    assert_same_weights(load_trained(tmp_path).weights, model.weights)
    kinds = [(each["path"], each["type"].split(".")[-1]) for each in modules]
    assert kinds == [("", "Transformer"), ("1_Pooling", "Pooling")]
    assert pooling["word_embedding_dimension"] == 16
    assert [name for name, value in pooling.items() if value is True] == ["pooling_mode_mean_tokens", "include_prompt"]
    assert lengths == {"max_seq_length": 13, "do_lower_case": False}


@pytest.mark.parametrize(
    ("pooling", "others", "prompt", "expected"),
    [
        (CLS, (), None, "cls"),
        ({"pooling_mode_max_tokens": True}, ("Normalize",), None, "max, Normalize"),
        ({"embedding_dimension": 16, "pooling_mode": "cls"}, ("Normalize",), None, "cls, Normalize"),  # version 6
        ({"word_embedding_dimension": 16}, (), None, "mean"),  # the default
        ({"pooling_mode_mean_sqrt_len_tokens": True}, (), None, "mean_sqrt_len"),
        ({"pooling_mode": ["mean", "max"]}, ("Normalize",), None, "mean, max, Normalize"),
        (CLS, ("Dense", "Normalize"), None, "cls, Dense, Normalize"),
        (CLS, (), "query", "cls, prompt query"),
    ],
)
def test_the_pooling_of_a_folder_is_read(tmp_path, pooling, others, prompt, expected):
    assert read_pooling(with_modules(tmp_path, pooling, *others, default_prompt_name=prompt)) == (expected, None)


@pytest.mark.parametrize("kind", ["max", "cls"])
def test_the_pooling_of_a_folder_is_used_and_kept(folder, tmp_path, kind):
    pooling = {"pooling_mode": kind, "embedding_dimension": 16}
    place = with_modules(folder("discriminator"), pooling, "Normalize", longest=7)
    model = electra_tf.load(place)
    vectors = model.encode(TEXTS, pooling=kind)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(model.encode(TEXTS), vectors, atol=1e-6)
    write_sentence_transformers(load_trained(place).finished(), str(tmp_path / "again"))
    assert read_pooling(str(tmp_path / "again")) == (f"{kind}, Normalize", 7)


def test_a_foreign_pooling_is_refused_and_the_encoder_is_still_read(folder, tmp_path):
    place = with_modules(folder("discriminator"), CLS, "Dense", "Normalize")
    model = electra_tf.load(place)
    with pytest.raises(UserError, match="the pooling is 'cls, Dense, Normalize', expected mean, cls or max"):
        model.encode(TEXTS)
    assert model.encode(TEXTS, pooling="cls").shape == (2, 16)
    stored = load_trained(place).finished()
    assert "'cls, Dense, Normalize'" in refusal(write_sentence_transformers, stored, str(tmp_path / "again"))


@pytest.mark.parametrize(
    ("longest", "of_tokenizer", "expected"),
    [(7, 9, 7), (None, 9, 9), (None, 10**30, 13), (512, 9, 13)],  # of 13 positions
)
def test_the_longest_text_is_that_of_the_folder(folder, longest, of_tokenizer, expected):
    place = with_modules(folder("discriminator"), CLS, longest=longest)
    (Path(place) / "tokenizer_config.json").write_text(json.dumps({"model_max_length": of_tokenizer}))
    assert load_trained(place).finished().trained_length == expected


def test_an_older_folder_has_its_network_in_a_folder_of_its_own(folder, tmp_path):
    (tmp_path / "st").mkdir()
    (folder("discriminator", name="st/0_Transformer") / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    with_modules(tmp_path / "st", CLS)
    modules = tmp_path / "st" / "modules.json"
    modules.write_text(modules.read_text().replace('"path": ""', '"path": "0_Transformer"'))
    model = load_trained(tmp_path / "st").finished()
    assert (model.pooling, model.trained_length, model.encoder.num_layers) == ("cls", 9, 2)
