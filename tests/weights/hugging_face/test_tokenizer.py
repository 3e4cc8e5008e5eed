"""Tokenizers of Hugging Face folders: transformers gives our ids, and published folders are read."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer, processors

from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings, Vocabulary, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer
from electra_tf.weights.hugging_face.reader import read_hugging_face
from electra_tf.weights.hugging_face.tokenizer import read_tokenizer, tokenizer_files
from electra_tf.weights.hugging_face.writer import write_hugging_face
from electra_tf.weights.source import load_trained, source_overrides
from electra_tf.weights.stored_model import SourceOverrides
from tests.byte_level import MMBERT, byte_level
from tests.sentence_pieces import train
from tests.toy import VOCABULARY
from tests.weights.conftest import MASKED_LM, MODERN, assert_same_weights, refusal

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tokenization.jsonl"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "cafe", "café", "Café", "a", "##a", "Paris", "!"]
OURS = {"electra_tf": {"objective": "electra"}}
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def write_files(place: Path, tokenizer) -> None:
    """The tokenizer's files, with as much of a config.json as transformers needs."""
    files = tokenizer_files(tokenizer, max_length=13) | {"config.json": b'{"model_type": "electra"}'}
    for name, value in files.items():
        (place / name).write_bytes(value)


def test_an_id_far_beyond_the_number_of_tokens_is_refused(folder):
    place = folder("discriminator")
    for content in (byte_level(), json.dumps({"model": {"type": "WordPiece", "vocab": {"a": 5}}}).encode()):
        (place / "tokenizer.json").write_bytes(re.sub(rb": 5\b", b": 2147483647", content, count=1))
        message = refusal(lambda: load_trained(place).finished())
        assert str(place) in message and "a token has the id 2147483647" in message


@pytest.fixture
def both(tmp_path, transformers):
    """`both(tokens, lower_case=False)`: transformers' tokenizer of a folder, and ours."""

    def load(tokens: list[str], **settings):
        ours = BertTokenizer(WordPieceVocabulary.from_tokens(tokens), TextSettings(**settings))
        write_files(tmp_path, ours)
        return transformers.AutoTokenizer.from_pretrained(tmp_path), ours

    return load


@pytest.fixture
def place(folder):
    """`place({"tokenizer_config.json": {...}}, {...})`: a folder with these files and entries of config.json."""

    def write(files: dict | None = None, config: dict | None = None) -> Path:
        written = folder("discriminator", OURS | (config or {}))
        for name, content in (files or {}).items():
            (written / name).write_text(json.dumps(content))
        return written

    return write


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False])
def test_transformers_lowers_and_strips_as_our_tokenizer(both, lower_case, strip_accents):
    theirs, ours = both(TOKENS, lower_case=lower_case, strip_accents=strip_accents)
    texts = ["Café Paris!", "paris", "a" * 150, "a" * 200, "a" * 201, "Paris\u00a0cafe\u0301"]
    ids = ours.tokenize(texts).to_list()
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ids
    assert ids[2] == [9] + [10] * 149  # BertTokenizer of transformers would give [UNK]


ADDED = {"[ENT]": 13, "[URL]": 14}


@pytest.mark.parametrize(
    ("name", "content", "end"),
    [
        ("added_tokens.json", ADDED, "\n"),
        ("tokenizer_config.json", {"added_tokens_decoder": {i: {"content": t} for t, i in ADDED.items()}}, "\n"),
        ("added_tokens.json", ADDED | {"[CLS]": 2, "far": 20}, ""),  # one of vocab.txt, one after a gap
    ],
)
def test_added_tokens_follow_vocab_txt_as_in_transformers(tmp_path, name, content, end):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + end)
    (tmp_path / name).write_text(json.dumps(content))
    stored, _, notes = read_tokenizer(str(tmp_path))
    assert stored.content.decode() == "".join(f"{token}\n" for token in [*TOKENS, *ADDED])
    assert "added_tokens [ENT], [URL]" in notes[0]


def test_without_added_tokens_vocab_txt_is_kept_to_the_byte(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\r\na")
    assert read_tokenizer(str(tmp_path))[0].content == b"[PAD]\r\na"


@pytest.mark.parametrize("unicode", [11, 18])
def test_the_version_of_unicode_is_read_back_also_after_transformers_has_saved_the_folder(both, tmp_path, unicode):
    theirs, _ = both([*TOKENS, "\U0001fae0"], unicode=unicode)
    assert theirs("\U0001fae0", add_special_tokens=False)["input_ids"] == ([13] if unicode == 18 else [])
    assert read_tokenizer(str(tmp_path))[0].settings == (True, True, True, unicode, False, "")
    theirs.save_pretrained(tmp_path / "again")
    assert read_tokenizer(str(tmp_path / "again"))[0].settings.unicode == unicode
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del config["unicode"]  # as in a folder of an older version, or of another program
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert read_tokenizer(str(tmp_path))[0].settings.unicode == 11


def test_format_characters_have_our_ids_in_transformers_and_are_read_back(both, tmp_path):
    theirs, ours = both([*TOKENS, "a\u200ca", "paris\u200d"], format_characters=True)
    texts = ["a\u200ca", "Paris\u200bcaf\u00e9", "paris\u200d", "a\x1ca\x0ba\x85a", "pa\u00adris\u200e"]
    assert ours.tokenize(texts).to_list() == [[13], [5, 6], [14], [9, 9, 9, 9], [5]]
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ours.tokenize(texts).to_list()
    assert read_tokenizer(str(tmp_path))[0].settings == ours.settings


def test_transformers_gives_the_ids_of_a_sentence_piece_model_which_reads_back(tmp_path, transformers):
    ours = create_tokenizer(Vocabulary.from_bytes(train("bpe"), "a test"))
    write_files(tmp_path, ours)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [
        "これは日本語の文です。",
        "\u3000か\u3099 \ufb01 \u00bd ",
        "e\u0301a" + "\u0316\u0301" * 20,
        "",
        "the\u2028cat",
    ]
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ours.tokenize(texts).to_list()
    the, cat = (ids for (ids,) in ours.tokenize(["the", "cat"]).to_list())
    assert theirs("the [MASK] cat", "cat")["input_ids"] == [2, the, 4, cat, 3, cat, 3]
    assert read_tokenizer(str(tmp_path)) == ((ours.vocabulary.content, TextSettings(False, False, False)), "", [])
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert not {"do_lower_case", "strip_accents", "tokenize_chinese_chars"} & set(config)


def test_texts_and_pairs_have_special_tokens_and_segments(both):
    theirs, _ = both(TOKENS)
    rows = theirs(["paris [MASK]", "cafe"], ["a", "a a"], padding=True)
    assert dict(rows) == {
        "input_ids": [[2, 5, 4, 3, 9, 3], [2, 6, 3, 9, 9, 3]],
        "token_type_ids": [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1]],
        "attention_mask": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]],
    }
    assert (theirs.model_max_length, theirs.pad_token_id, theirs.mask_token_id) == (13, 0, 4)
    assert theirs.decode([5, 9, 10]) == "paris aa"


@pytest.mark.parametrize(("strip_accents", "expected"), [(True, "tokens"), (False, "tokens_keep_accents")])
def test_only_hard_lines_have_other_tokens_than_in_the_authors_code(both, strip_accents, expected):
    lines = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]
    special = TOKENS[:5]
    tokens = special + sorted({token for line in lines for token in line[expected]} - set(special))
    theirs, _ = both(tokens, strip_accents=strip_accents)
    differing = {line["kind"] for line in lines if theirs.tokenize(line["text"]) != line[expected]}
    assert differing == {"greek", "special_tokens_literal"}


@pytest.mark.parametrize(
    ("config", "normalizer", "expected"),
    [
        (None, None, (True, True)),
        ({"do_lower_case": False}, None, (False, False)),
        ({"do_lower_case": False, "strip_accents": True}, None, (False, False)),
        ({"do_lower_case": True, "strip_accents": False}, None, (True, False)),
        (None, {"lowercase": False, "strip_accents": None}, (True, True)),
        ({"tokenizer_class": "BertTokenizerFast", "do_lower_case": False}, {"lowercase": True}, (False, False)),
        (GENERIC | {"do_lower_case": True}, {"lowercase": False, "strip_accents": None}, (False, False)),
        ({"do_lower_case": True}, {"lowercase": True, "strip_accents": None}, (True, True)),  # published uncased models
        (GENERIC | {"do_lower_case": True}, {"lowercase": None, "strip_accents": False}, (True, False)),
    ],
)
def test_casing_and_accents_of_a_folder_are_read(place, config, normalizer, expected):
    files = {"tokenizer_config.json": config or {}, "tokenizer.json": {"normalizer": normalizer} if normalizer else {}}
    assert read_hugging_face(str(place(files))).stored_tokenizer.settings[:2] == expected


def test_tokens_of_tokenizer_json_take_precedence_over_vocab_txt(place):
    tokens = VOCABULARY.decode().split()
    ids = {token: number for number, token in reversed(list(enumerate(tokens[:-1])))}
    added = [{"id": 4, "content": "[MASK]"}, {"id": len(tokens) - 1, "content": tokens[-1]}]
    folder = place({"tokenizer.json": {"model": {"type": "WordPiece", "vocab": ids}, "added_tokens": added}})
    (folder / "vocab.txt").write_text("another\n")
    assert read_hugging_face(str(folder)).stored_tokenizer.content == VOCABULARY
    overrides = SourceOverrides(vocabulary=b"mine")
    assert read_hugging_face(str(folder), overrides).stored_tokenizer.content == b"mine"


def test_ids_that_tokenizer_json_leaves_out_keep_those_behind_them(place):
    """The library's reader of vocab.txt gives both U+2028 and U+3000 the name "", of which it keeps the last."""
    tokens = VOCABULARY.decode().split()
    tokens[5:8] = "\u2028", "\u3000", "again"
    tokens[-1] = "again"
    ids = {token.strip(): number for number, token in enumerate(tokens)}
    assert len(ids) == len(tokens) - 2
    content = read_hugging_face(str(place({"tokenizer.json": {"model": {"vocab": ids}}}))).stored_tokenizer.content
    vocabulary = Vocabulary.from_bytes(content, "a test")
    assert vocabulary.tokens == (*tokens[:5], "[line 6]", "[line 7]", "[line 8]", *tokens[8:])


CONFIG, FAST = "tokenizer_config.json", "tokenizer.json"


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        (CONFIG, {"do_lower_case": False, "strip_accents": True}, "strip_accents true"),
        (FAST, {"normalizer": {"type": "NFKC"}}, "normalizer NFKC"),
        (FAST, {"added_tokens": [{"content": "[MASK]"}, {"content": "[E1]"}]}, "added_tokens [E1];"),
        (FAST, {"model": {"continuing_subword_prefix": "_"}}, "continuing_subword_prefix '_'"),
        (CONFIG, {"additional_special_tokens": ["[E1]", {"content": "[E2]"}]}, "added_tokens [E1], [E2];"),
        (CONFIG, {"extra_special_tokens": {"user_token": "<u>"}}, "added_tokens <u>;"),
        ("special_tokens_map.json", {"additional_special_tokens": ["[SEP]", "[E1]"]}, "added_tokens [E1];"),
        (CONFIG, {"never_split": ["[SEP]", "C++"]}, "never_split C++;"),
        (CONFIG, {"split_by": "jamo", "lowercase": False}, f"in {CONFIG} the unknown split_by, lowercase;"),
    ],
)
def test_a_tokenizer_that_is_not_berts_gives_a_warning(place, file, content, part):
    folder = place({file: content})
    (note,) = read_hugging_face(str(folder)).notes
    assert note.startswith(f"warning: {folder} has {part}")


JAPANESE = {"tokenizer_class": "BertJapaneseTokenizer"}
OWN_CODE = {"tokenizer_class": "BertTokenizer", "auto_map": {"AutoTokenizer": ["code.JamoTokenizer", None]}}


@pytest.mark.parametrize(
    ("of_model", "file", "content", "names"),
    [
        ({}, CONFIG, JAPANESE, ["BertJapaneseTokenizer"]),
        (JAPANESE, CONFIG, {"do_lower_case": False}, ["BertJapaneseTokenizer"]),
        ({}, CONFIG, {"word_tokenizer_type": "mecab", "subword_tokenizer_type": "character"}, ["mecab", "character"]),
        ({}, CONFIG, {"tokenizer_class": "RoFormerTokenizerFast"}, ["RoFormerTokenizer"]),
        ({}, CONFIG, OWN_CODE, ["JamoTokenizer"]),
        ({}, FAST, {"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}, ["Unigram"]),
    ],
)
def test_a_folder_that_needs_a_tokenizer_of_its_own_is_refused_for_text(place, of_model, file, content, names):
    folder = place({file: content}, of_model)
    message = refusal(load_trained(folder).finished)
    assert all(name in message for name in (*names, str(folder), "vocab_file", "input"))


def test_text_that_was_cut_before_is_read_with_the_vocabulary_of_such_a_folder(place):
    folder = place({"tokenizer_config.json": {"word_tokenizer_type": "mecab"}})
    (folder / "vocab.txt").write_bytes(VOCABULARY.replace(b"w46\n", "東京\n".encode()))
    model = load_trained(folder, source_overrides(str(folder / "vocab.txt"))).finished()
    assert model.tokenizer.tokenize(["東京"]).to_list() == [[46]]
    (note,) = load_trained(folder).notes  # for data whose tokenizer is known
    assert "needs its tokenizer BertJapaneseTokenizer" in note


@pytest.mark.parametrize("name", ["ElectraTokenizer", "MobileBertTokenizerFast"])
def test_a_class_that_tokenizes_as_berts_is_read(place, name):
    assert load_trained(place(config={"tokenizer_class": name})).finished().tokenizer.settings == TextSettings()


@pytest.mark.parametrize(("file", "content"), [("spm.model", "any"), ("tokenizer.json", '{"model": {"type": "BPE"}}')])
def test_a_file_with_a_whole_tokenizer_counts_whatever_its_class(tmp_path, file, content):
    (tmp_path / file).write_text(content)
    assert read_tokenizer(str(tmp_path), tokenizer_class="AlbertTokenizer")[1] == ""


def test_the_tokenizers_that_transformers_saves_for_electra_give_no_warning(place):
    config = {
        **{"tokenizer_class": "ElectraTokenizerFast", "tokenize_chinese_chars": True, "never_split": None},
        **{"name_or_path": "x", "truncation_side": "left", "bos_token": "[CLS]", "novel": None, "is_local": True},
        **{"additional_special_tokens": ["[MASK]"], "extra_special_tokens": {}},
    }
    added = [{"content": content} for content in (*TOKENS[:5], "[unused7]")]
    folder = place({"tokenizer_config.json": config, "tokenizer.json": {"added_tokens": added}})
    assert read_hugging_face(str(folder)).notes == ()


def test_the_normalizer_of_tokenizer_json_counts_with_modernbert(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"normalizer": {"lowercase": False}}))
    assert read_tokenizer(str(tmp_path), "modernbert")[0].settings[:3] == (False, False, True)


CLS, SEP, PAD, MASK = 269, 270, 271, 272
TEXTS = ["the cat", "  caf\u00e9 e\u0301 \U0001f600", "日本語", "a\n\n b", "don't"]


@pytest.fixture(scope="module")
def byte_model(stored):
    """A masked language model of ModernBERT's kind."""
    model = stored(encoder=MODERN | {"vocab_size": 273}, objective=MASKED_LM)
    return dataclasses.replace(model, stored_tokenizer=StoredTokenizer(byte_level(), TextSettings(False, False, False)))


@pytest.fixture(scope="module")
def byte_folder(byte_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("modern") / "folder"
    write_hugging_face(byte_model, folder)
    return folder


def test_a_byte_level_file_is_written_to_the_byte_and_read_back(byte_model, byte_folder):
    assert (byte_folder / "tokenizer.json").read_bytes() == byte_level()
    again = read_hugging_face(str(byte_folder))
    assert again.stored_tokenizer == byte_model.stored_tokenizer
    assert not any("tokenizer" in note for note in again.notes)
    assert_same_weights(again.weights, byte_model.weights)
    config = json.loads((byte_folder / "config.json").read_text())
    ids = {"pad": PAD, "cls": CLS, "bos": CLS, "sep": SEP, "eos": SEP}
    assert {name: config[f"{name}_token_id"] for name in ids} == ids


def test_transformers_gives_the_ids_of_a_byte_level_file(byte_model, byte_folder):
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(byte_folder)
    assert theirs(TEXTS, add_special_tokens=False)["input_ids"] == byte_model.tokenizer.tokenize(TEXTS).to_list()
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
