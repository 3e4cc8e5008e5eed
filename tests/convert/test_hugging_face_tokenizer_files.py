"""The vocabulary and the settings of its tokenization in Hugging Face's folders: read, doubted, refused."""

import json

import pytest

from electra_tf.config.errors import UserError
from electra_tf.convert.hugging_face_reader import Given, read_hugging_face
from tests.convert.test_hugging_face_reader import OURS, refusal


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (True, True)),
        ({"tokenizer_config.json": {"do_lower_case": False}}, (False, False)),
        ({"tokenizer_config.json": {"do_lower_case": False, "strip_accents": True}}, (False, False)),
        ({"tokenizer_config.json": {"do_lower_case": True, "strip_accents": False}}, (True, False)),
        ({"tokenizer.json": {"normalizer": {"lowercase": False, "strip_accents": None}}}, (False, False)),
        (
            {  # as in the folders of published uncased models
                "tokenizer_config.json": {"do_lower_case": True},
                "tokenizer.json": {"normalizer": {"lowercase": True, "strip_accents": None}},
            },
            (True, True),
        ),
        (
            {
                "tokenizer_config.json": {"do_lower_case": True, "strip_accents": None},
                "tokenizer.json": {"normalizer": {"lowercase": None, "strip_accents": False}},
            },
            (True, False),
        ),
    ],
)
def test_how_text_is_tokenized(folder, files, expected):
    place = folder("discriminator", OURS)
    for name, content in files.items():
        (place / name).write_text(json.dumps(content))
    found, _ = read_hugging_face(str(place))
    assert (found.lower_case, found.strip_accents) == expected


@pytest.mark.parametrize(
    ("config", "normalizer", "message"),
    [
        ({"do_lower_case": "false"}, {}, "tokenizer_config.json: do_lower_case is 'false', expected true, false or"),
        ({"strip_accents": 0}, {}, "tokenizer_config.json: strip_accents is 0, expected true, false or null"),
        ({}, {"lowercase": "no"}, "tokenizer.json: normalizer.lowercase is 'no', expected true, false or null"),
        ({}, {"strip_accents": []}, "tokenizer.json: normalizer.strip_accents is [], expected true, false or null"),
        ({"do_lower_case": True}, {"lowercase": False}, "do_lower_case is True, but "),
        ({"strip_accents": False}, {"strip_accents": True}, "normalizer.strip_accents is True; correct the wrong one"),
    ],
)
def test_casing_that_is_none_or_said_in_two_ways_is_refused(folder, config, normalizer, message):
    place = folder("discriminator", OURS)
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    (place / "tokenizer.json").write_text(json.dumps({"normalizer": normalizer}))
    assert message in refusal(place)


def test_two_vocabularies_that_differ_are_refused_unless_one_is_given(folder, stored_electra):
    place = folder("discriminator", OURS)
    tokens = (place / "vocab.txt").read_text().split()
    vocabulary = {token: index for index, token in enumerate(tokens)}
    (place / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    assert read_hugging_face(str(place))[0].vocabulary_file == stored_electra().vocabulary_file
    vocabulary |= {"der": 7, "Wald": 5}
    (place / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    assert "differ: id 5 is 'der' in the first, 'Wald' in the second; take away the wrong one" in refusal(place)
    found, _ = read_hugging_face(str(place), Given(vocabulary=(b"another", "x")))
    assert found.vocabulary_file == b"another"


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (
            "tokenizer_config.json",
            {"tokenizer_class": "BertJapaneseTokenizer"},
            "tokenizer_class BertJapaneseTokenizer",
        ),
        ("tokenizer_config.json", {"tokenize_chinese_chars": False}, "tokenize_chinese_chars False"),
        ("tokenizer.json", {"normalizer": {"type": "NFKC"}}, "normalizer.type 'NFKC'"),
        ("tokenizer.json", {"normalizer": None, "model": {}}, "no normalizer"),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer.type 'Whitespace'"),
        ("tokenizer.json", {"model": {"unk_token": "<unk>"}}, "model.unk_token '<unk>'"),
    ],
)
def test_a_tokenizer_that_is_not_berts_is_doubted(folder, file, content, said):
    place = folder("discriminator", OURS)
    (place / file).write_text(json.dumps(content))
    _, notes = read_hugging_face(str(place))
    assert notes == [
        f"warning: {place / file} says {said}; here text is tokenized as BERT's, so the model may get other ids"
    ]


def test_the_tokenizers_that_transformers_saves_for_electra_are_not_doubted(folder):
    place = folder("discriminator", OURS)
    config = {"tokenizer_class": "ElectraTokenizerFast", "tokenize_chinese_chars": True}
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    assert read_hugging_face(str(place))[1] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"normalizer": "NFKC"}, "tokenizer.json is damaged: normalizer is 'NFKC', expected an object"),
        ({"model": {"vocab": {"\ud800": 0}}}, "tokenizer.json is damaged: expected a JSON object of valid Unicode"),
        ({"model": ["a"]}, "tokenizer.json is damaged: model is ['a'], expected an object"),
        ({"model": {"vocab": {"a": 0}}, "added_tokens": [5]}, "tokenizer.json: tokens and their ids cannot be read"),
        ({"model": {"vocab": {"a": 0, "b": "c"}}}, "tokenizer.json: tokens and their ids cannot be read"),
    ],
)
def test_a_damaged_tokenizer_json_is_one_line(folder, content, message):
    place = folder("discriminator", OURS)
    (place / "vocab.txt").unlink()
    (place / "tokenizer.json").write_text(json.dumps(content))
    assert message in refusal(place)


def test_without_vocab_txt_the_vocabulary_is_that_of_tokenizer_json(folder, stored_electra):
    place = folder("discriminator", OURS)
    tokens = (place / "vocab.txt").read_text().split()
    (place / "vocab.txt").unlink()
    assert "holds neither vocab.txt nor tokenizer.json; give its vocabulary as --vocab_file" in refusal(place)
    ids = {token: number for number, token in reversed(list(enumerate(tokens[:-1])))}
    added = [{"id": 4, "content": "[MASK]"}, {"id": 7, "content": tokens[-1]}]
    content = {"model": {"type": "WordPiece", "vocab": ids}, "added_tokens": added}
    (place / "tokenizer.json").write_text(json.dumps(content))
    assert read_hugging_face(str(place))[0].vocabulary_file == stored_electra().vocabulary_file
    content["added_tokens"][1]["id"] = 9
    (place / "tokenizer.json").write_text(json.dumps(content))
    assert "tokenizer.json: ids are not 0 to 7, each once" in refusal(place)
    (place / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {}}}))
    assert "is no WordPiece tokenizer" in refusal(place)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", " is empty, expected one token"), (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n", "vocabulary has 6 tokens, ")],
)
def test_a_vocabulary_that_does_not_fit_is_refused(folder, content, message):
    place = folder("discriminator", OURS)
    (place / "vocab.txt").write_bytes(content)
    model, _ = read_hugging_face(str(place))
    with pytest.raises(UserError, match=message):
        model.require_fitting_vocabulary()
