import hashlib
import json

import pytest
from tokenizers import Tokenizer, models

from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import (
    BERT_TEXT,
    CASED_TEXT,
    SPECIAL_TOKENS,
    StoredTokenizer,
    TextSettings,
    Vocabulary,
    WordPieceVocabulary,
)
from electra_tf.text.vocabulary_settings import chosen_settings, require_possible_tokens
from tests.byte_level import byte_level
from tests.sentence_pieces import train

TOKENS = ["[PAD]", "the", "[UNK]", "[CLS]", "##s", "[SEP]", "[MASK]"]


def lines(*tokens: str) -> bytes:
    return "".join(f"{token}\n" for token in tokens).encode()


def test_tokens_ids_and_hash_of_a_file(tmp_path):
    # A Unicode line separator within a token does not end the line.
    content = lines(*TOKENS, "a\u2028b")
    (tmp_path / "vocab.txt").write_bytes(content)
    vocabulary = Vocabulary.load(tmp_path / "vocab.txt")
    assert vocabulary.tokens == (*TOKENS, "a\u2028b")
    assert (vocabulary.size, vocabulary.pad_id, vocabulary.unk_id) == (8, 0, 2)
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (3, 5, 6)
    assert vocabulary.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lines(*TOKENS[:3], *TOKENS[4:]), r"lacks \[CLS\]"),
        (lines("the", *TOKENS[:1], *TOKENS[2:]), r"\[PAD\] on line 2"),
        (lines("", *TOKENS), "is damaged, or no spm.model"),
        (lines("\ufeff[PAD]", *TOKENS[1:]), r"lacks \[PAD\]"),
        (b"[PAD]\n\xff\n", "is damaged, or no vocab.txt: .utf-8. codec .* position 6"),
        (byte_level(("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[HIDE]")), r"lacks \[MASK\]"),
        (b'{"model": ', "is damaged, or no tokenizer.json"),
        (Tokenizer(models.Unigram([("a", 0.0)])).to_str().encode(), "is one of Unigram, expected BPE"),
        (train("bpe", normalization_rule_name="nmt_nfkc"), "identity"),
        (train("bpe", split_by_whitespace=False), "across a space"),
    ],
    ids=range(10),
)
def test_a_wrong_vocabulary_is_a_user_error(content, message):
    with pytest.raises(UserError, match=f"vocabulary a/path .*{message}"):
        Vocabulary.from_bytes(content, "a/path")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("\u2028\na", ["\u2028", "a"]),  # as in BERT's Chinese vocabulary
        ("\u00a0\n\x1c\na", ["\u00a0", "\x1c", "a"]),
        (" \n\t\r\na", [8, 9, "a"]),
        ("a\nb\na", [8, "b", "a"]),  # the last line counts, as in a dictionary that is filled line by line
        ("[UNK]\na", ["[UNK]", "a"]),
        ("a \r\n b\r\n", ["a", "b"]),
        ("a\n\n\n", ["a"]),
        ("a\n\u3000\n", ["a", "\u3000"]),
        ("a\rb\n\vc\u2028d", ["a\rb", "c\u2028d"]),
    ],
)
def test_every_line_of_a_published_vocabulary_keeps_its_id(content, expected):
    vocabulary = Vocabulary.from_bytes(lines(*TOKENS) + content.encode(), "vocab.txt")
    assert list(vocabulary.tokens[7:]) == [f"[line {each}]" if isinstance(each, int) else each for each in expected]
    assert vocabulary.unk_id == (7 if expected[0] == "[UNK]" else 2)
    assert len(set(vocabulary.tokens)) == vocabulary.size


@pytest.mark.parametrize(("num_rows", "fits"), [(6, False), (7, True), (1031, True), (1032, False)])
def test_a_word_table_may_have_up_to_1024_rows_without_a_token(num_rows, fits):
    vocabulary = Vocabulary.from_bytes(lines(*TOKENS), "vocab.txt")
    assert vocabulary.fits(num_rows) == fits


NONE_GIVEN = dict.fromkeys(TextSettings._fields)
PLAIN = [f"w{i}" for i in range(80)]
FLAGS = {name: f"--no-{name}" for name in TextSettings._fields}


def vocabulary_of(*tokens: str) -> WordPieceVocabulary:
    return WordPieceVocabulary.from_tokens([*SPECIAL_TOKENS, *PLAIN, *tokens])


def choose(vocabulary, files: dict[str, bytes] | None = None, **flags) -> TextSettings:
    return chosen_settings(vocabulary, "a/vocab.txt", (files or {}).get, NONE_GIVEN | flags)


def beside(vocabulary, **settings) -> dict[str, bytes]:
    content = {"vocab_sha256": vocabulary.sha256} | settings
    return {"a/vocab.txt.json": json.dumps(content).encode()}


# A setting that is newer than the file has BERT's value. A cased vocabulary never strips accents.
@pytest.mark.parametrize(
    ("stated", "flags", "expected"),
    [
        ({**BERT_TEXT._asdict(), "lower_case": False, "isolate_cjk": False}, {}, (False, True, False, 11, False, "")),
        ({"unicode": 18}, {}, (True, True, True, 18, False, "")),
        ({"segment": "m -o"}, {"segment": "none"}, (True, True, True, 11, False, "m -o")),
        ({"lower_case": False}, {"lower_case": False}, (False, True, True, 11, False, "")),
        ({"lower_case": False}, {"strip_accents": False}, (False, True, True, 11, False, "")),
    ],
)
def test_a_vocabularys_own_settings_are_taken(stated, flags, expected):
    vocabulary = vocabulary_of()
    assert choose(vocabulary, beside(vocabulary, **stated), **flags) == expected


@pytest.mark.parametrize(
    ("stated", "flags", "named"),
    [
        ({"lower_case": False}, {"lower_case": True}, "--lower_case.*a/vocab.txt"),
        ({}, {"strip_accents": False}, "--no-strip_accents.*a/vocab.txt"),
        ({}, {"unicode": 18}, "--unicode=18.*a/vocab.txt"),
        ({"vocab_sha256": "of another"}, {}, "a/vocab.txt.json"),
    ],
)
def test_a_contradicting_flag_and_settings_of_another_vocabulary_are_refused(stated, flags, named):
    vocabulary = vocabulary_of()
    with pytest.raises(UserError, match=named):
        choose(vocabulary, beside(vocabulary, **stated), **flags)


@pytest.mark.parametrize("content", [byte_level(), train("bpe")], ids=["byte level", "SentencePiece"])
@pytest.mark.parametrize(("name", "value"), [("lower_case", True), ("isolate_cjk", True), ("unicode", 18)])
def test_a_vocabulary_with_its_own_normalization_refuses_another(content, name, value):
    vocabulary = Vocabulary.from_bytes(content, "a/vocab")
    with pytest.raises(UserError, match=f"^--{name}"):
        choose(vocabulary, **{name: value})
    assert choose(vocabulary) == vocabulary.text_settings


@pytest.mark.parametrize("flags", [{}, {"strip_accents": False}, {"unicode": 18}])
def test_a_vocabulary_without_settings_has_those_of_bert_and_of_the_flags(flags):
    assert choose(vocabulary_of(), **flags) == TextSettings(**flags)


@pytest.mark.parametrize(("given", "stated"), [("m -o", "m -o"), ("none", "")])
def test_ideographs_of_segmented_words_are_not_isolated_unless_it_is_said(given, stated):
    assert choose(vocabulary_of(*IDEOGRAPHS), segment=given) == TextSettings(isolate_cjk=False, segment=stated)
    assert choose(vocabulary_of(), segment=given, isolate_cjk=True) == TextSettings(segment=stated)


CAPITALS = [f"W{i}" for i in range(7)]
ACCENTS = [f"ü{i}" for i in range(7)]
HANGUL = [f"##한{i}" for i in range(7)]
IDEOGRAPHS = [f"東京{i}" for i in range(7)]


@pytest.mark.parametrize(
    ("tokens", "flag"),
    [
        (CAPITALS, "--no-lower_case"),
        (ACCENTS, "--no-strip_accents"),
        (HANGUL, "--no-strip_accents"),
        (IDEOGRAPHS, "--no-isolate_cjk"),
    ],
)
def test_a_vocabulary_whose_tokens_never_occur_is_refused_naming_the_flag(tokens, flag):
    with pytest.raises(UserError, match=f"a/vocab.txt: 7 of 92 tokens.* {tokens[0]},.*{flag}"):
        choose(vocabulary_of(*tokens))


@pytest.mark.parametrize(
    "tokens",
    [
        [*(f"v{i}" for i in range(10)), *(f"[unused{i}]" for i in range(40)), *CAPITALS[:5]],  # up to 5 %
        [f"##{chr(0x4E00 + i)}" for i in range(50)],  # single ideographs within words
    ],
)
def test_few_impossible_tokens_and_ideographs_within_words_do_no_harm(tokens):
    assert choose(vocabulary_of(*tokens)) == BERT_TEXT


@pytest.mark.parametrize("tokens", [CAPITALS, ACCENTS, HANGUL])
def test_any_token_can_occur_in_cased_text(tokens):
    require_possible_tokens(StoredTokenizer(vocabulary_of(*tokens).content, CASED_TEXT), "x", FLAGS)
