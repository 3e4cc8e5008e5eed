import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.text import characters
from electra_tf.text.characters import character_table
from electra_tf.text.normalization import DOTTED_CAPITAL_I, BasicTokenizer
from electra_tf.text.vocabulary import BERT_TEXT, TextSettings

# Characters that this Python may class differently than the table, because versions 12 to 18 reclassified them: U+055F
# became case-ignorable, U+166D a symbol instead of punctuation, U+1734 and U+1171E spacing marks instead of nonspacing
# ones, U+A9BD the reverse, U+0295 a letter without case.
RECLASSIFIED = {11: {0x55F, 0x166D, 0x1734, 0xA9BD}, 18: {0x295, 0x1734, 0x1171E}}

FORMAT = "\u0601\u180e\u200c\u200d\U000e0062\U000e0067\U000e007f"


def words(text, **settings):
    return words_and_rows([text], **settings)[0]


def words_and_rows(lines, **settings):
    result, _, rows, *_ = BasicTokenizer(TextSettings(**settings)).words(tf.constant(lines, tf.string))
    return [word.decode() for word in result.numpy()], rows.numpy().tolist()


def test_words_have_rows_and_lengths():
    lines = ["Ein Käse,", "", "  ", "日本x", "ΑΣ", "Α", "Σ"]  # the last sigmas do not depend on other lines
    result, lengths, rows, *_ = BasicTokenizer(BERT_TEXT).words(tf.constant(lines))
    assert [word.decode() for word in result.numpy()] == ["ein", "kase", ",", "日", "本", "x", "ας", "α", "σ"]
    assert lengths.numpy().tolist() == [3, 4, 1, 1, 1, 1, 2, 1, 1]
    assert rows.numpy().tolist() == [0, 0, 0, 3, 3, 3, 4, 5, 6]
    assert words_and_rows([]) == ([], [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Controls, format, private use, the replacement character and unassigned characters are deleted; Unicode 11
        # does not assign U+1F972.
        ("a\x00b\x7fc\u200dd\ue000e\ufffdf\U000e0041g\u0378h\U0001f972i", ["abcdefghi"]),
        ("a\tb\nc\rd\u00a0e\u3000f\u2028g\u2029h", list("abcdefgh")),
        # Punctuation marks and ideographs are separate words.
        ("it's $5-a^b", ["it", "'", "s", "$", "5", "-", "a", "^", "b"]),
        ("«wie…» 5€ ½ ａｂ！", ["«", "wie", "…", "»", "5€", "½", "ａｂ", "！"]),  # nothing is folded
        ("ア漢字ア", ["ア", "漢", "字", "ア"]),
        # A capital sigma is final after a cased letter, if no cased letter follows.
        ("ΟΔΟΣ", ["οδος"]),
        ("ΟΔΟΣ'", ["οδος", "'"]),
        ("Σ", ["σ"]),
        ("ΑΣ\u0301", ["ας"]),
        ("ΑΣ\u0301Α", ["ασα"]),
        ("Α\u00adΣ", ["ας"]),
        # Marks are brought into canonical order before some are stripped: U+1D165 (class 216) and U+1D16D (226) are
        # spacing marks, which stay; U+0323 (220) is stripped.
        ("a\U0001d16d\u0323\U0001d165", ["a\U0001d165\U0001d16d"]),
    ],
)
def test_words_are_those_of_berts_basic_tokenizer(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected", "of_bert"),
    [
        # Emoji of Unicode 11, then of 12 to 15; of 16, 17 and 18; a family, whose joiners go.
        ("\U0001f97a\U0001f971\U0001f972\U0001fae0\U0001fae8",
         "\U0001f97a\U0001f971\U0001f972\U0001fae0\U0001fae8", "\U0001f97a"),
        ("\U0001fae9 \U0001faea \U0001faeb", "\U0001fae9 \U0001faea \U0001faeb", ""),
        ("\U0001f9d1\u200d\U0001f9b0 \U0001f9d1\u200d\U0001f9bd",
         "\U0001f9d1\U0001f9b0 \U0001f9d1\U0001f9bd", "\U0001f9d1\U0001f9b0 \U0001f9d1"),
        # Capital letters: Vithkuqi of 14, Garay of 16. An ideograph of 13, a Todhri letter that 16 decomposes.
        ("\U00010570 \U00010d50", "\U00010597 \U00010d70", ""),
        ("\U00030edd\u4e00", "\U00030edd \u4e00", "\u4e00"),
        ("\U000105c9", "\U000105d2", ""),
        # Punctuation and a nonspacing mark of 14.
        ("a\u2e5ab", "a \u2e5a b", "ab"),
        ("a\u0898b", "ab", "ab"),
        # Currency signs of 13 and 14 are symbols. What no version assigns may be assigned by a later one.
        ("5\u20bf5\u20c0", "5\u20bf5\u20c0", "5\u20bf5"),
        ("a\u0378b \U0001f8ff", "a\u0378b \U0001f8ff", "ab"),
        ("a\ue000b\U000f0000c\ufffd", "abc", "abc"),
    ],
)  # fmt: skip
def test_characters_after_unicode_11_stay_with_the_newer_tables(text, expected, of_bert):
    assert " ".join(words(text, unicode=18)) == expected
    assert " ".join(words(text)) == of_bert


@pytest.mark.parametrize(
    ("text", "expected", "of_bert"),
    [
        *((f"a{each}b", "a b", "ab") for each in "\x0b\x0c\x1c\x1f\x85\u200b\u2061\u2064\ufff9\ufffb"),
        # Joiners in Persian, Malayalam (at the end of a word) and a family; Mongolian; England's flag; a sign of years.
        *((text, text, text.translate({ord(each): None for each in FORMAT}))
          for text in ("می\u200cخواهم", "അവന്\u200d", "\U0001f469\u200d\U0001f467", "ᠬᠠᠢᠷ\u180eᠠ",
                       "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\u0601١٩")),
        # Hints for layout: a soft hyphen, word joiners, marks of direction; then what no text should have.
        *((f"a{each}b", "ab", "ab") for each in "\xad\u2060\ufeff\u061c\u200e\u200f\u202a\u202e\u2066\u2069\x00\x7f"),
        ("ΑΣ\u200d", "ας\u200d", "ας"),
    ],
)  # fmt: skip
def test_format_characters_separate_or_spell_in_new_vocabularies(text, expected, of_bert):
    assert " ".join(words(text, strip_accents=False, unicode=18, format_characters=True)) == expected
    assert " ".join(words(text, strip_accents=False, unicode=18)) == of_bert


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["eie", "istanbul", "\u1100\u1161"]),
        ({"strip_accents": False}, ["éïe", "i\u0307stanbul", "가"]),
        ({"lower_case": False}, ["ÉÏE", "İstanbul", "가"]),
    ],
)
def test_case_and_accents_are_dropped_or_kept(settings, expected):
    assert words("ÉÏE İstanbul 가", **settings) == expected


def test_invalid_utf_8_is_dropped_as_python_drops_it():
    lines = [b"\xff\xfeab", b"a\xc3", b"\xe2\x82x", b"\xed\xa0\x80y", b"\xf4\x90\x80\x80z", b"\xc0\xafw"]
    assert words_and_rows(lines) == (["ab", "a", "x", "y", "z", "w"], [0, 1, 2, 3, 4, 5])


# BERT's definitions of the properties (tokenization.py), in terms of this Python's Unicode database.
ASCII_PUNCTUATION = [*range(0x21, 0x30), *range(0x3A, 0x41), *range(0x5B, 0x61), *range(0x7B, 0x7F)]
CJK_RANGES = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF)]
CJK_RANGES += [(0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F)]


def is_deleted(character: str) -> bool:
    return (unicodedata.category(character)[0] == "C" and character not in "\t\n\r") or character == "\ufffd"


def is_isolated(character: str) -> bool:
    is_cjk = any(first <= ord(character) <= last for first, last in CJK_RANGES)
    return ord(character) in ASCII_PUNCTUATION or unicodedata.category(character)[0] == "P" or is_cjk


def is_cased(character: str) -> bool:
    """Whether a capital sigma after the character is a final one."""
    return (character + "Σ").lower()[-1] == "ς"


PREDICATES = {
    characters.DELETED: is_deleted,
    characters.SPACE: str.isspace,
    characters.ISOLATED: is_isolated,
    characters.NONSPACING_MARK: lambda character: unicodedata.category(character) == "Mn",
    characters.CASED: is_cased,
    characters.CASE_IGNORABLE: lambda c: not is_cased(c) and ("A" + c + "Σ").lower()[-1] == "ς",
}


@pytest.mark.parametrize("version", [11, 18])
def test_the_table_agrees_with_this_python_on_the_characters_that_both_have(version):
    table = character_table(TextSettings(unicode=version))
    kept = np.flatnonzero((table & characters.DELETED) == 0).tolist()
    kept = [code_point for code_point in kept if unicodedata.category(chr(code_point)) != "Cn"]
    differing = set()
    for code_point in kept:
        properties, character = int(table[code_point]), chr(code_point)
        agrees = all(bool(properties & bit) == holds(character) for bit, holds in PREDICATES.items())
        lowered = chr(code_point + (properties >> characters.LOWER_CASE_SHIFT))
        if character != DOTTED_CAPITAL_I:
            agrees &= lowered == character.lower()
        if not agrees:
            differing.add(code_point)
    assert len(kept) > 130_000
    assert {hex(code_point) for code_point in differing - RECLASSIFIED[version]} == set()


def test_the_newer_table_deletes_what_python_deletes_except_unassigned_characters():
    is_deleted_here = (character_table(TextSettings(unicode=18)) & characters.DELETED) != 0
    assigned = [chr(code_point) for code_point in range(0x110000) if unicodedata.category(chr(code_point)) != "Cn"]
    differing = [hex(ord(each)) for each in assigned if is_deleted_here[ord(each)] != is_deleted(each)]
    assert differing == []
