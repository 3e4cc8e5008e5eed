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
    content = {"vocab_sha256": vocabulary.sha256, **BERT_TEXT._asdict(), **settings}
    return {"a/vocab.txt.json": json.dumps(content).encode()}


def test_a_vocabularys_own_settings_are_taken():
    vocabulary = vocabulary_of()
    assert choose(vocabulary, beside(vocabulary, lower_case=False, isolate_cjk=False))[:3] == (False, True, False)
    assert choose(vocabulary, beside(vocabulary, unicode=18)).unicode == 18


def test_a_vocabulary_without_a_version_of_unicode_has_berts():
    vocabulary = vocabulary_of()
    files = {"a/vocab.txt.json": json.dumps({"vocab_sha256": vocabulary.sha256, "lower_case": False}).encode()}
    assert choose(vocabulary, files) == (False, True, True, 11, False)
    assert choose(vocabulary).unicode == 11
    assert choose(vocabulary, unicode=18).unicode == 18


def test_a_vocabulary_built_before_format_characters_counted_keeps_its_ids():
    vocabulary = vocabulary_of()
    content = {"vocab_sha256": vocabulary.sha256, **BERT_TEXT._asdict(), "unicode": 18}
    del content["format_characters"]
    assert choose(vocabulary, {"a/vocab.txt.json": json.dumps(content).encode()}) == (True, True, True, 18, False)


@pytest.mark.parametrize("flags", [{"lower_case": False}, {"strip_accents": False}])  # which a cased one never strips
def test_a_flag_that_agrees_with_the_vocabulary_is_accepted(flags):
    vocabulary = vocabulary_of()
    assert choose(vocabulary, beside(vocabulary, lower_case=False), **flags).lower_case is False


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"lower_case": True}, "--lower_case"),
        ({"unicode": 18}, "--unicode=18"),
    ],
)
def test_a_flag_that_contradicts_the_vocabulary_is_refused(flags, named):
    vocabulary = vocabulary_of()
    with pytest.raises(UserError, match=f"{named}.*a/vocab.txt"):
        choose(vocabulary, beside(vocabulary, lower_case=False), **flags)


def test_settings_of_another_vocabulary_are_refused():
    with pytest.raises(UserError, match="a/vocab.txt.json"):
        choose(vocabulary_of(), beside(vocabulary_of("x")))


def test_a_vocabulary_without_settings_has_those_of_bert_and_of_the_flags():
    assert choose(vocabulary_of(), strip_accents=False) == TextSettings(strip_accents=False)


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
