"""Folders with a tokenizer.json of byte-level BPE: read whole, written as it was, with transformers' ids."""

import dataclasses
import json

import pytest
from tokenizers import Tokenizer, processors

from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings, Vocabulary
from electra_tf.weights.hugging_face.reader import read_hugging_face
from electra_tf.weights.hugging_face.tokenizer import read_tokenizer, tokenizer_files
from electra_tf.weights.hugging_face.writer import write_hugging_face
from tests.byte_level import MMBERT, byte_level
from tests.weights.conftest import MODERN, assert_same_weights

CLS, SEP, PAD, MASK = 269, 270, 271, 272
TEXTS = ["the cat", "  caf\u00e9 e\u0301 \U0001f600", "日本語", "a\n\n b", "don't"]


@pytest.fixture(scope="module")
def model(stored):
    """A masked language model of ModernBERT's kind."""
    model = stored(encoder=MODERN | {"vocab_size": 273}, objective={"name": "bert_mlm"})
    return dataclasses.replace(model, stored_tokenizer=StoredTokenizer(byte_level(), TextSettings(False, False, False)))


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("modern") / "folder"
    write_hugging_face(model, folder)
    return folder


def test_the_file_is_written_to_the_byte_and_read_back(model, folder):
    assert (folder / "tokenizer.json").read_bytes() == byte_level()
    again = read_hugging_face(str(folder))
    assert again.stored_tokenizer == model.stored_tokenizer
    assert not any("tokenizer" in note for note in again.notes)
    assert_same_weights(again.weights, model.weights)
    config = json.loads((folder / "config.json").read_text())
    ids = {"pad": PAD, "cls": CLS, "bos": CLS, "sep": SEP, "eos": SEP}
    assert {name: config[f"{name}_token_id"] for name in ids} == ids


def test_transformers_gives_the_same_ids(model, folder):
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)
    assert theirs(TEXTS, add_special_tokens=False)["input_ids"] == model.tokenizer.tokenize(TEXTS).to_list()
    rows = theirs(["the [MASK]", "cat"], ["cat", "the the"], padding=True)
    assert dict(rows) == {
        "input_ids": [[CLS, 257, MASK, SEP, 260, SEP], [CLS, 260, SEP, 257, 258, SEP]],
        "attention_mask": [[1] * 6] * 2,
    }
    assert theirs(["cat", "the the"], padding=True)["input_ids"][0] == [CLS, 260, SEP, PAD]
    assert (theirs.pad_token_id, theirs.mask_token, theirs.unk_token) == (PAD, "[MASK]", "[UNK]")


def test_two_texts_are_joined_as_in_training_also_if_the_file_joins_them_otherwise():
    roberta = Tokenizer.from_str(byte_level(("<unk>", "<s>", "</s>", "<pad>", "<mask>")).decode())
    roberta.post_processor = processors.RobertaProcessing(("</s>", SEP), ("<s>", CLS), add_prefix_space=False)
    assert roberta.encode("a", "a").ids == [CLS, 64, SEP, SEP, 64, SEP]
    ours = create_tokenizer(Vocabulary.from_bytes(roberta.to_str().encode(), "a test"))
    files = tokenizer_files(ours, max_length=13)
    pair = Tokenizer.from_buffer(files["tokenizer.json"]).encode("a", "the <mask>")
    assert (pair.ids, pair.type_ids) == ([CLS, 64, SEP, 257, MASK, SEP], [0, 0, 0, 1, 1, 1])
    assert json.loads(files["special_tokens_map.json"])["sep_token"] == "</s>"


def test_a_file_of_older_programs_that_does_not_name_its_model_is_read(tmp_path):
    content = json.loads(byte_level(MMBERT))
    del content["model"]["type"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    stored, _, notes = read_tokenizer(str(tmp_path), "modernbert")
    assert (stored.content, notes) == (json.dumps(content).encode(), [])
    assert Vocabulary.from_bytes(stored.content, "a test").pad_id == PAD
