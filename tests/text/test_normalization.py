"""BERT's basic tokenization step by step; the character table compared with the Unicode database of this Python."""

import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text

from electra_tf.text import normalization
from electra_tf.text.normalization import BasicTokenizer, character_table
from electra_tf.text.vocabulary import BERT_TEXT, TextSettings

# Characters that Unicode 12 to 15 reclassified: U+055F became case-ignorable, U+166D a symbol instead of punctuation,
# U+1734 and U+A9BD spacing marks instead of nonspacing ones.
RECLASSIFIED = {0x55F, 0x166D, 0x1734, 0xA9BD}


def words(text, *, lower_case=True, strip_accents=True):
    return words_and_rows([text], lower_case, strip_accents)[0]


def words_and_rows(lines, lower_case=True, strip_accents=True):
    result, _, rows = BasicTokenizer(TextSettings(lower_case, strip_accents)).words(tf.constant(lines, tf.string))
    return [word.decode() for word in result.numpy()], rows.numpy().tolist()


def test_words_have_rows_and_lengths():
    result, lengths, rows = BasicTokenizer(BERT_TEXT).words(tf.constant(["Ein Käse,", "", "  ", "日本x"]))
    assert [word.decode() for word in result.numpy()] == ["ein", "kase", ",", "日", "本", "x"]
    assert lengths.numpy().tolist() == [3, 4, 1, 1, 1, 1]
    assert rows.numpy().tolist() == [0, 0, 0, 3, 3, 3]
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
        ("«wie…»", ["«", "wie", "…", "»"]),  # the ellipsis stays one character
        ("5€ ½ ™", ["5€", "½", "™"]),  # symbols outside ASCII are not punctuation, and nothing is folded
        ("ア漢字ア", ["ア", "漢", "字", "ア"]),
        ("ａｂ！", ["ａｂ", "！"]),  # full width
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


def test_the_final_sigma_does_not_depend_on_other_lines():
    assert words_and_rows(["ΑΣ", "Α", "Σ"]) == (["ας", "α", "σ"], [0, 1, 2])


@pytest.mark.parametrize(
    ("strip_accents", "expected"), [(True, ["eie", "istanbul", "가"]), (False, ["éïe", "i\u0307stanbul", "가"])]
)
def test_accents_are_stripped_or_kept(strip_accents, expected):
    expected = [unicodedata.normalize("NFD", word) if strip_accents else word for word in expected]
    assert words("ÉÏE İstanbul 가", strip_accents=strip_accents) == expected


def test_case_and_accents_stay_without_lower_case():
    assert words("ÉCOLE İ Σ\u0301", lower_case=False) == ["ÉCOLE", "İ", "Σ\u0301"]


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
    normalization.DELETED: is_deleted,
    normalization.SPACE: str.isspace,
    normalization.ISOLATED: is_isolated,
    normalization.NONSPACING_MARK: lambda character: unicodedata.category(character) == "Mn",
    normalization.CASED: is_cased,
    normalization.CASE_IGNORABLE: lambda c: not is_cased(c) and ("A" + c + "Σ").lower()[-1] == "ς",
}


def test_the_table_agrees_with_this_python_on_the_characters_of_unicode_11():
    table = character_table()
    kept = np.flatnonzero((table & normalization.DELETED) == 0).tolist()
    differing = set()
    for code_point in kept:
        properties, character = int(table[code_point]), chr(code_point)
        agrees = all(bool(properties & bit) == holds(character) for bit, holds in PREDICATES.items())
        lowered = chr(code_point + (properties >> normalization.LOWER_CASE_SHIFT))
        if character != normalization.DOTTED_CAPITAL_I:
            agrees &= lowered == character.lower()
        if not agrees:
            differing.add(code_point)
    assert len(kept) > 130_000
    assert differing <= RECLASSIFIED, [hex(code_point) for code_point in differing - RECLASSIFIED]


def test_the_table_has_the_characters_of_unicode_11_only():
    table = character_table()
    assert not table[0x1F97A] & normalization.DELETED  # the newest emoji of Unicode 11
    assert table[0x1F971] & normalization.DELETED  # one of Unicode 12


def test_every_character_that_tensorflow_orders_as_a_mark_is_one_of_the_table():
    code_points = np.array([*range(0xD800), *range(0xE000, 0x20000)])
    is_mark = (character_table()[code_points] & normalization.MARK) != 0
    characters = tf.strings.unicode_encode(tf.constant(code_points, tf.int32)[:, tf.newaxis], "UTF-8")
    before = tf_text.normalize_utf8(tf.strings.join(["a", characters, "\u0334"]), "NFD")  # class 1, the lowest
    after = tf_text.normalize_utf8(tf.strings.join(["a\u0345", characters]), "NFD")  # class 240, the highest
    # A letter that ends with U+0345 once decomposed is none.
    decomposed = tf_text.normalize_utf8(characters, "NFD")
    moves_after = tf.strings.regex_full_match(after, "a[^\u0345]+\u0345") & ~tf.strings.regex_full_match(
        decomposed, ".*\u0345"
    )
    moves = tf.strings.regex_full_match(before, "a\u0334.+") | moves_after
    assert np.count_nonzero(moves) > 900
    assert [hex(each) for each in code_points[moves.numpy() & ~is_mark]] == []
