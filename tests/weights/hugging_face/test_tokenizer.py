"""Tokenizers of Hugging Face folders: transformers gives our ids, and published folders are read."""

import json
from pathlib import Path

import pytest

from electra_tf.config.errors import UserError
from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import TextSettings, Vocabulary, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer
from electra_tf.weights.hugging_face.reader import read_hugging_face
from electra_tf.weights.hugging_face.tokenizer import read_tokenizer, tokenizer_files
from electra_tf.weights.source import load_trained, source_overrides
from electra_tf.weights.stored_model import SourceOverrides
from tests.sentence_pieces import train
from tests.toy import VOCABULARY

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tokenization.jsonl"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "cafe", "café", "Café", "a", "##a", "Paris", "!"]
OURS = {"electra_tf": {"objective": "electra"}}
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}
MODES = [(True, True), (True, False), (False, False), (False, True)]  # lower_case, strip_accents


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.fixture
def both(tmp_path, transformers):
    """`both(vocabulary, lower_case, strip_accents)`: transformers' tokenizer of a folder, and ours."""

    def load(tokens: list[str], lower_case: bool, strip_accents: bool, **newer):
        vocabulary = WordPieceVocabulary.from_tokens(tokens)
        ours = BertTokenizer(vocabulary, TextSettings(lower_case, strip_accents, **newer))
        files = tokenizer_files(ours, max_length=13) | {"config.json": b'{"model_type": "electra"}'}
        for name, value in files.items():
            (tmp_path / name).write_bytes(value)
        return transformers.AutoTokenizer.from_pretrained(tmp_path), ours

    return load


@pytest.mark.parametrize(("lower_case", "strip_accents"), MODES)
def test_transformers_lowers_and_strips_as_our_tokenizer(both, lower_case, strip_accents):
    theirs, ours = both(TOKENS, lower_case, strip_accents)
    texts = ["Café Paris!", "paris", "a" * 150, "a" * 200, "a" * 201, "Paris\u00a0cafe\u0301"]
    ids = ours.tokenize(texts).to_list()
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ids
    assert ids[2] == [9] + [10] * 149  # BertTokenizer of transformers would give [UNK]


ADDED = {"[ENT]": 13, "[URL]": 14}


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("added_tokens.json", ADDED),
        ("tokenizer_config.json", {"added_tokens_decoder": {str(i): {"content": t} for t, i in ADDED.items()}}),
        ("added_tokens.json", ADDED | {"[CLS]": 2, "far": 20}),  # one of vocab.txt, one after a gap
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
    theirs, _ = both([*TOKENS, "\U0001fae0"], True, True, unicode=unicode)
    assert theirs("\U0001fae0", add_special_tokens=False)["input_ids"] == ([13] if unicode == 18 else [])
    assert read_tokenizer(str(tmp_path))[0].settings == (True, True, True, unicode, False)
    theirs.save_pretrained(tmp_path / "again")
    assert read_tokenizer(str(tmp_path / "again"))[0].settings.unicode == unicode
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del config["unicode"]  # as in a folder of an older version, or of another program
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert read_tokenizer(str(tmp_path))[0].settings.unicode == 11


def test_format_characters_have_our_ids_in_transformers_and_are_read_back(both, tmp_path):
    theirs, ours = both([*TOKENS, "a\u200ca", "paris\u200d"], True, True, format_characters=True)
    texts = ["a\u200ca", "Paris\u200bcaf\u00e9", "paris\u200d", "a\x1ca\x0ba\x85a", "pa\u00adris\u200e"]
    assert ours.tokenize(texts).to_list() == [[13], [5, 6], [14], [9, 9, 9, 9], [5]]
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ours.tokenize(texts).to_list()
    assert read_tokenizer(str(tmp_path))[0].settings == ours.settings


@pytest.fixture
def pieces(tmp_path, transformers):
    """transformers' tokenizer of a folder with a SentencePiece model, and ours."""
    ours = create_tokenizer(Vocabulary.from_bytes(train("bpe"), "a test"))
    for name, value in (tokenizer_files(ours, max_length=13) | {"config.json": b'{"model_type": "electra"}'}).items():
        (tmp_path / name).write_bytes(value)
    return transformers.AutoTokenizer.from_pretrained(tmp_path), ours


def test_transformers_gives_the_ids_of_a_sentence_piece_model(pieces):
    theirs, ours = pieces
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


def test_a_folder_of_a_sentence_piece_model_reads_back(pieces, tmp_path):
    _, ours = pieces
    assert read_tokenizer(str(tmp_path)) == ((ours.vocabulary.content, TextSettings(False, False, False)), "", [])
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert not {"do_lower_case", "strip_accents", "tokenize_chinese_chars"} & set(config)


def test_texts_and_pairs_have_special_tokens_and_segments(both):
    theirs, _ = both(TOKENS, True, True)
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
    theirs, _ = both(tokens, True, strip_accents)
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
def test_casing_and_accents_of_a_folder_are_read(folder, config, normalizer, expected):
    place = folder("discriminator", OURS)
    files = {"tokenizer_config.json": config, "tokenizer.json": normalizer and {"normalizer": normalizer}}
    for name, content in files.items():
        if content:
            (place / name).write_text(json.dumps(content))
    model = read_hugging_face(str(place))
    assert model.stored_tokenizer.settings[:2] == expected


def test_tokens_of_tokenizer_json_take_precedence_over_vocab_txt(folder):
    place = folder("discriminator", OURS)
    tokens = (place / "vocab.txt").read_text().split()
    (place / "vocab.txt").write_text("another\n")
    ids = {token: number for number, token in reversed(list(enumerate(tokens[:-1])))}
    added = [{"id": 4, "content": "[MASK]"}, {"id": len(tokens) - 1, "content": tokens[-1]}]
    content = {"model": {"type": "WordPiece", "vocab": ids}, "added_tokens": added}
    (place / "tokenizer.json").write_text(json.dumps(content))
    assert read_hugging_face(str(place)).stored_tokenizer.content == VOCABULARY
    overrides = SourceOverrides(vocabulary=b"mine")
    assert read_hugging_face(str(place), overrides).stored_tokenizer.content == b"mine"


def test_ids_that_tokenizer_json_leaves_out_keep_those_behind_them(folder):
    """The library's reader of vocab.txt gives both U+2028 and U+3000 the name "", of which it keeps the last."""
    place = folder("discriminator", OURS)
    tokens = (place / "vocab.txt").read_text().split()
    tokens[5:8] = "\u2028", "\u3000", "again"
    tokens[-1] = "again"
    ids = {token.strip(): number for number, token in enumerate(tokens)}
    assert len(ids) == len(tokens) - 2
    (place / "tokenizer.json").write_text(json.dumps({"model": {"vocab": ids}}))
    vocabulary = Vocabulary.from_bytes(read_hugging_face(str(place)).stored_tokenizer.content, "a test")
    assert vocabulary.tokens == (*tokens[:5], "[line 6]", "[line 7]", "[line 8]", *tokens[8:])


def test_a_tokenizer_json_of_another_kind_is_refused_for_text(folder):
    place = folder("discriminator", OURS)
    (place / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}))
    with pytest.raises(UserError, match="needs its tokenizer Unigram, which is not computed here"):
        read_hugging_face(str(place)).finished()


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        ("tokenizer_config.json", {"do_lower_case": False, "strip_accents": True}, "strip_accents true"),
        ("tokenizer.json", {"normalizer": {"type": "NFKC"}}, "normalizer NFKC"),
        ("tokenizer.json", {"added_tokens": [{"content": "[MASK]"}, {"content": "[E1]"}]}, "added_tokens [E1];"),
        ("tokenizer.json", {"model": {"continuing_subword_prefix": "_"}}, "continuing_subword_prefix '_'"),
        (
            "tokenizer_config.json",
            {"additional_special_tokens": ["[E1]", {"content": "[E2]"}]},
            "added_tokens [E1], [E2]",
        ),
        ("tokenizer_config.json", {"extra_special_tokens": {"user_token": "<u>"}}, "added_tokens <u>;"),
        ("special_tokens_map.json", {"additional_special_tokens": ["[SEP]", "[E1]"]}, "added_tokens [E1];"),
        ("tokenizer_config.json", {"never_split": ["[SEP]", "C++"]}, "never_split C++;"),
        (
            "tokenizer_config.json",
            {"split_by": "jamo", "lowercase": False},
            "in tokenizer_config.json the unknown split_by, lowercase;",
        ),
    ],
)
def test_a_tokenizer_that_is_not_berts_gives_a_warning(folder, file, content, part):
    place = folder("discriminator", OURS)
    (place / file).write_text(json.dumps(content))
    (note,) = list(read_hugging_face(str(place)).notes)
    assert note.startswith(f"warning: {place} has {part}")


JAPANESE = {"tokenizer_class": "BertJapaneseTokenizer"}
OWN_CODE = {"tokenizer_class": "BertTokenizer", "auto_map": {"AutoTokenizer": ["code.JamoTokenizer", None]}}


@pytest.mark.parametrize(
    ("of_model", "of_tokenizer", "names"),
    [
        ({}, JAPANESE, ["BertJapaneseTokenizer"]),
        (JAPANESE, {"do_lower_case": False}, ["BertJapaneseTokenizer"]),
        ({}, {"word_tokenizer_type": "mecab", "subword_tokenizer_type": "character"}, ["mecab", "character"]),
        ({}, {"tokenizer_class": "KoBERTTokenizer"}, ["KoBERTTokenizer"]),
        ({}, {"tokenizer_class": "RoFormerTokenizerFast"}, ["RoFormerTokenizer"]),
        ({}, OWN_CODE, ["JamoTokenizer"]),
    ],
)
def test_a_folder_that_needs_a_tokenizer_of_its_own_is_refused_for_text(folder, of_model, of_tokenizer, names):
    place = folder("discriminator", OURS | of_model)
    (place / "tokenizer_config.json").write_text(json.dumps(of_tokenizer))
    with pytest.raises(UserError) as caught:
        load_trained(str(place)).finished()
    assert all(name in str(caught.value) for name in (*names, str(place), "vocab_file", "input"))


def test_text_that_was_cut_before_is_read_with_the_vocabulary_of_such_a_folder(folder):
    place = folder("discriminator", OURS)
    (place / "tokenizer_config.json").write_text(json.dumps({"word_tokenizer_type": "mecab"}))
    tokens = [*(place / "vocab.txt").read_text().split()[:-1], "東京"]
    (place / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    model = load_trained(str(place), source_overrides(str(place / "vocab.txt"))).finished()
    assert model.tokenizer.tokenize(["東京"]).to_list() == [[len(tokens) - 1]]
    notes = load_trained(str(place)).notes  # for data whose tokenizer is known
    assert [("needs its tokenizer BertJapaneseTokenizer" in note) for note in notes] == [True]


@pytest.mark.parametrize("name", ["ElectraTokenizer", "MobileBertTokenizerFast", "LayoutLMTokenizer"])
def test_a_class_that_tokenizes_as_berts_is_read(folder, name):
    place = folder("discriminator", OURS | {"tokenizer_class": name})
    assert load_trained(str(place)).finished().tokenizer.settings == TextSettings()


@pytest.mark.parametrize(("file", "content"), [("spm.model", "any"), ("tokenizer.json", '{"model": {"type": "BPE"}}')])
def test_a_file_with_a_whole_tokenizer_counts_whatever_its_class(tmp_path, file, content):
    (tmp_path / file).write_text(content)
    assert read_tokenizer(str(tmp_path), tokenizer_class="AlbertTokenizer")[1] == ""


def test_the_tokenizers_that_transformers_saves_for_electra_give_no_warning(folder):
    place = folder("discriminator", OURS)
    config = {"tokenizer_class": "ElectraTokenizerFast", "tokenize_chinese_chars": True}
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    harmless = {
        "never_split": None,
        "name_or_path": "x",
        "truncation_side": "left",
        "bos_token": "[CLS]",
        "novel": None,
    }
    config |= harmless | {"additional_special_tokens": ["[MASK]"], "extra_special_tokens": {}, "is_local": True}
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    added = [{"content": content} for content in (*TOKENS[:5], "[unused7]")]
    (place / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    assert list(read_hugging_face(str(place)).notes) == []


def test_the_normalizer_of_tokenizer_json_counts_with_modernbert(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"normalizer": {"lowercase": False}}))
    assert read_tokenizer(str(tmp_path), "modernbert")[0].settings[:3] == (False, False, True)
