"""Settings that a vocabulary states, flags that contradict them, and vocabularies that do not fit."""

import json

import pytest

from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import (
    BERT_TEXT,
    CASED_TEXT,
    SPECIAL_TOKENS,
    StoredTokenizer,
    TextSettings,
    WordPieceVocabulary,
)
from electra_tf.text.vocabulary_settings import chosen_settings, require_possible_tokens

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
        ({**BERT_TEXT._asdict(), "lower_case": False, "isolate_cjk": False}, {}, (False, True, False, 11, False)),
        ({"unicode": 18}, {}, (True, True, True, 18, False)),
        ({"lower_case": False}, {"lower_case": False}, (False, True, True, 11, False)),
        ({"lower_case": False}, {"strip_accents": False}, (False, True, True, 11, False)),
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


@pytest.mark.parametrize("flags", [{}, {"strip_accents": False}, {"unicode": 18}])
def test_a_vocabulary_without_settings_has_those_of_bert_and_of_the_flags(flags):
    assert choose(vocabulary_of(), **flags) == TextSettings(**flags)


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


def test_up_to_five_percent_of_the_tokens_may_be_impossible():
    fitting = vocabulary_of(*[f"v{i}" for i in range(10)], *[f"[unused{i}]" for i in range(40)], *CAPITALS[:5])
    assert choose(fitting) == BERT_TEXT


@pytest.mark.parametrize("tokens", [CAPITALS, ACCENTS, HANGUL])
def test_any_token_can_occur_in_cased_text(tokens):
    require_possible_tokens(StoredTokenizer(vocabulary_of(*tokens).content, CASED_TEXT), "x", FLAGS)


def test_single_ideographs_within_words_do_no_harm():
    chinese = vocabulary_of(*(f"##{chr(0x4E00 + i)}" for i in range(50)))
    assert choose(chinese) == BERT_TEXT
