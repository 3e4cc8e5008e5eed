import json
import lzma
import os
import random
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.text import characters
from electra_tf.text.vocabulary import SPECIAL_TOKENS, UNK, TextSettings, Vocabulary, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tokenization.jsonl"
# A directory with tokenization.jsonl.xz, and BERT's vocabulary of 30,522 tokens to which its ids refer.
GOLDEN_DIR = os.environ.get("ELECTRA_TF_GOLDEN_DIR")
BERT_VOCAB_FILE = os.environ.get("ELECTRA_TF_BERT_VOCAB_FILE")
MODES = [(True, True), (True, False), (False, False)]  # lower_case, strip_accents


def vocabulary_of(tokens):
    return WordPieceVocabulary.from_tokens(SPECIAL_TOKENS + tuple(sorted(set(tokens) - set(SPECIAL_TOKENS))))


def tokens_of(tokenizer, texts):
    ids = tokenizer.tokenize(tf.constant([text if isinstance(text, bytes) else text.encode() for text in texts]))
    return [[token.decode() for token in row] for row in tokenizer.tokens_of(ids).to_list()]


@pytest.fixture(scope="module")
def character_vocabulary():
    """All characters that BERT keeps, so that different normalizations give different ids."""
    table = characters.character_table()
    dropped = characters.DELETED | characters.SPACE
    kept = [chr(code_point) for code_point in range(0x10000) if not table[code_point] & dropped]
    return vocabulary_of(kept + ["##" + character for character in kept])


@pytest.mark.parametrize(("strip_accents", "expected"), [(True, "tokens"), (False, "tokens_keep_accents")])
def test_tokens_are_those_of_the_authors_code(strip_accents, expected):
    lines = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
    vocabulary = vocabulary_of(token for line in lines for token in line["tokens"] + line["tokens_keep_accents"])
    tokenizer = BertTokenizer(vocabulary, TextSettings(strip_accents=strip_accents))
    result = tokens_of(tokenizer, [line["text"] for line in lines])
    differing = [line["text"] for line, tokens in zip(lines, result, strict=True) if tokens != line[expected]]
    assert len(lines) == 137
    assert differing == []


@pytest.mark.slow
@pytest.mark.skipif(
    not (GOLDEN_DIR and BERT_VOCAB_FILE), reason="ELECTRA_TF_GOLDEN_DIR and ELECTRA_TF_BERT_VOCAB_FILE are not set"
)
@pytest.mark.parametrize(("strip_accents", "expected"), [(True, "ids"), (False, "ids_keep_accents")])
def test_all_golden_lines_have_the_ids_of_the_authors_code(strip_accents, expected):
    with lzma.open(Path(GOLDEN_DIR) / "tokenization.jsonl.xz", "rt") as file:
        lines = [json.loads(line) for line in file]
    tokenizer = BertTokenizer(Vocabulary.load(BERT_VOCAB_FILE), TextSettings(strip_accents=strip_accents))
    result = tokenizer.tokenize(tf.constant([line["text"].encode() for line in lines])).to_list()
    differing = [line["text"] for line, ids in zip(lines, result, strict=True) if ids != line[expected]]
    assert len(lines) == 8551
    assert differing == []


IDEOGRAPHS = range(0x4E20, 0x9FD0)  # for which the first and the last of them stand


@pytest.mark.parametrize(
    ("lower_case", "strip_accents", "left_out", "least"),
    [(True, True, IDEOGRAPHS, 1_000), *(pytest.param(*mode, (), 21_000, marks=pytest.mark.slow) for mode in MODES)],
)
def test_plain_characters_have_the_same_ids_and_offsets_on_both_paths(
    character_vocabulary, lower_case, strip_accents, left_out, least
):
    tokenizer = BertTokenizer(character_vocabulary, TextSettings(lower_case, strip_accents))
    characters = [chr(each) for each in range(0x10000) if not 0xD800 <= each < 0xE000 and each not in left_out]
    is_plain = tokenizer.is_plain(tf.constant([character.encode() for character in characters])).numpy()
    plain = [character for character, holds in zip(characters, is_plain, strict=True) if holds]
    lines = [f"a{character}B {character} {character}{character}" for character in plain]
    # A control character, which is deleted, makes a line take the exact path.
    texts, others = (tf.constant([(line + end).encode() for line in lines]) for end in ("", "\x01"))
    assert all(tokenizer.is_plain(texts)) and not any(tokenizer.is_plain(others))
    by_plain_path, by_exact_path = (
        [part.to_list() for part in tokenizer.tokenize_with_offsets(each)] for each in (texts, others)
    )
    rows = zip(lines, *by_plain_path, *by_exact_path, strict=True)
    assert [line for line, *parts in rows if parts[:3] != parts[3:]] == []
    assert len(plain) > least
    assert tokenizer.tokenize(texts).to_list() == tokenizer.tokenize(others).to_list() == by_plain_path[0]


def test_plain_characters_are_the_same_in_all_tables(character_vocabulary):
    tokenizer = BertTokenizer(character_vocabulary, TextSettings(lower_case=False))
    code_points = [each for each in range(0x10000) if not 0xD800 <= each < 0xE000]
    texts = tf.strings.unicode_encode(tf.constant(code_points)[:, tf.newaxis], "UTF-8")
    plain = tf.boolean_mask(code_points, tokenizer.is_plain(texts)).numpy()
    older, newer, newest = (
        characters.character_table(settings)[plain] & ~characters.CASED
        for settings in (TextSettings(), TextSettings(unicode=18), TextSettings(unicode=18, format_characters=True))
    )
    assert (older == newer).all() and (newer == newest).all()
    # Case matters to a capital sigma alone, which is not plain.


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a" * 200, 200), ("a" * 201, 1), ("é" * 200, 200), ("é" * 201, 1), ("漢" * 201, 201), ("a." * 150, 300)],
)
def test_a_word_of_more_than_200_characters_is_unknown(text, expected):
    tokenizer = BertTokenizer(vocabulary_of(["a", "##a", "e", "##e", ".", "漢"]))
    tokens = tokens_of(tokenizer, [text])[0]
    assert len(tokens) == expected
    assert (tokens == ["[UNK]"]) == (expected == 1)


def test_plain_and_other_lines_keep_their_order():
    tokenizer = BertTokenizer(vocabulary_of(["one", "two", "…", "[", "]", "pad", "##s"]))
    result = tokens_of(tokenizer, ["one", "two…", "", "TWOs one", "…", b"one\xff", "[PAD]"])
    assert result == [["one"], ["two", "…"], [], ["two", "##s", "one"], ["…"], ["one"], ["[", "pad", "]"]]


@pytest.mark.parametrize("texts", [[], [b"\xff", b""]])
def test_empty_text_has_no_tokens_and_offsets(texts):
    texts = tf.constant(texts, tf.string)
    tokenizer = BertTokenizer(vocabulary_of(["a"]))
    for part in (tokenizer.tokenize(texts), *tokenizer.tokenize_with_offsets(texts)):
        assert part.to_list() == [[] for _ in texts]


def test_tokens_of_ids_keep_the_shape():
    tokenizer = BertTokenizer(vocabulary_of(["a", "b"]))
    assert tokenizer.tokens_of(tf.constant([[5, 6], [1, 0]])).numpy().tolist() == [[b"a", b"b"], [b"[UNK]", b"[PAD]"]]
    assert tokenizer.tokens_of(tf.ragged.constant([[6], [], [5, 5]])).to_list() == [[b"b"], [], [b"a", b"a"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Plain, fast", [("Pla", "pla"), ("in", "##in"), (",", ","), ("fast", "fast")]),
        ("«fast» é 漢in", [("«", "«"), ("fast", "fast"), ("»", "»"), ("é", "e"), ("漢", "漢"), ("in", "in")]),
        # All lines from here on take the exact path.
        ("in\u200b… FAST", [("in", "in"), ("…", "…"), ("FAST", "fast")]),  # zero-width space
        ("fa\u200bst", [("fa\u200bst", "fast")]),
        ("plae\u0301in", [("pla", "pla"), ("e\u0301", "##e"), ("in", "##in")]),
        ("e\u0301\u0323 e", [("e\u0301\u0323", "e"), ("e", "e")]),
        ("… \u0301in", [("…", "…"), ("in", "in")]),  # a mark after a space belongs to no character
        ("\u0130n \U0001f600 \u0130", [("\u0130n", "in"), ("\U0001f600", "[UNK]"), ("\u0130", "i")]),
        ("ΑΣ\u00a0ΑΣΑ", [("ΑΣ", "ας"), ("ΑΣ", "ασ"), ("Α", "##α")]),
        ("in " + "a" * 201 + " in", [("in", "in"), ("a" * 201, "[UNK]"), ("in", "in")]),
        ("\ufffd\x00in\x7f", [("in", "in")]),
        ("가in", [("가", "\u1100"), ("가", "##\u1161"), ("in", "##in")]),  # one character, two pieces
    ],
)  # fmt: skip
def test_offsets_are_the_positions_of_tokens_in_the_text(text, expected):
    pieces = ["pla", "##in", "in", ",", "fast", "«", "»", "e", "##e", "漢", "…", "ας", "ασ", "##α", "i"]
    pieces += ["\u1100", "##\u1161"]
    tokenizer = BertTokenizer(vocabulary_of(pieces))
    found = (part.to_list()[0] for part in tokenizer.tokenize_with_offsets(tf.constant([text.encode()])))
    cuts = [(text[start:end], tokenizer.vocabulary.tokens[token]) for token, start, end in zip(*found, strict=True)]
    assert cuts == expected


def test_marks_at_the_start_of_a_line_do_not_belong_to_the_previous_line():
    tokenizer = BertTokenizer(vocabulary_of(["in", "…"]))
    _, starts, ends = tokenizer.tokenize_with_offsets(tf.constant(["…", "", "\u0301\u0301in"]))
    assert (starts.to_list(), ends.to_list()) == ([[0], [], [2]], [[1], [], [4]])


ODD = "aBz09 \t\n\u00a0\u202f.,'…é\u0301\u0323\u0130ıß\u00ad\u200b\x00\ufffd漢日アΣσς가\u1100"
ODD += "\U0001f600\U0001d165\U0001d16dÅ€Ǆ"


@pytest.mark.parametrize(
    ("lower_case", "strip_accents"), [(True, True), pytest.param(False, False, marks=pytest.mark.slow)]
)
def test_offsets_of_random_text(character_vocabulary, lower_case, strip_accents):
    tokenizer = BertTokenizer(character_vocabulary, TextSettings(lower_case, strip_accents))
    chance = random.Random(17)
    lines = ["".join(chance.choices(ODD, k=chance.randrange(40))) for _ in range(2000)]
    lines += ["".join(chance.choices("aé漢 .", k=chance.randrange(300))) for _ in range(500)]
    texts = tf.constant([line.encode() for line in lines])
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    assert ids.to_list() == tokenizer.tokenize(texts).to_list()
    cuts = []
    for line, row_starts, row_ends in zip(lines, starts.to_list(), ends.to_list(), strict=True):
        assert row_starts == sorted(row_starts) and row_ends == sorted(row_ends)
        assert all(0 <= start < end <= len(line) for start, end in zip(row_starts, row_ends, strict=True))
        cuts += [line[start:end] for start, end in zip(row_starts, row_ends, strict=True)]
    pieces = [tokenizer.vocabulary.tokens[i].removeprefix("##") for i in ids.flat_values.numpy()]
    # A token's text gives the same token again, except where neighbours matter (sigma, order of marks).
    special = set("Σ가\u0130\U0001d165\U0001d16d")
    alone = [(cut, piece) for cut, piece in zip(cuts, pieces, strict=True) if piece != UNK and not special & set(cut)]
    again = tokenizer.tokenize(tf.constant([cut.encode() for cut, _ in alone])).to_list()
    result = ["".join(tokenizer.vocabulary.tokens[i].removeprefix("##") for i in row) for row in again]
    assert len(alone) > 20_000
    assert result == [piece for _, piece in alone]


# Tokens that no text has, as lines of published vocabularies; `again` also stands before the last line.
UNUSED_LINES = ["\u2028", "\u00a0", "\u3000", "##\u2028", "", "\u0085", "", "##\u00a0", "again", " "]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b again", [5, 16, 18]),
        ("a\u3000b \u00a0", [5, 16]),
        ("\u2028\u00a0\u3000\u0085", []),
        ("a\u0085b", [5, 17]),  # a control character is deleted
        ("\u01c6\u00a0a \u2028", [1, 5]),  # the exact path
        ("[line 6] a", [1, 1, 1, 1, 5]),
    ],
)
def test_lines_without_a_token_of_text_change_no_id(text, expected):
    lines = [*SPECIAL_TOKENS, "a", *UNUSED_LINES, "b", "##b", "again"]
    vocabulary = Vocabulary.from_bytes("".join(f"{line}\n" for line in lines).encode(), "a test")
    tokenizer = BertTokenizer(vocabulary)
    assert tokenizer.tokenize([text]).to_list() == [expected]
    assert tokenizer.to_hugging_face().encode(text, add_special_tokens=False).ids == expected
    assert tokenizer.to_hugging_face().get_vocab_size() == len(lines)


@pytest.mark.parametrize("tail", ["", " \u01c6"], ids=["plain", "exact"])
def test_a_token_with_a_space_changes_no_other_text(tail):
    tokens = (*SPECIAL_TOKENS, "new", "a", "b", "##s", "new york", "a b", "b\u3000")
    tokenizer = BertTokenizer(WordPieceVocabulary.from_tokens(tokens))
    found = tokens_of(tokenizer, [text + tail for text in ("new news", "a  b a", "new york", "a b \u2028")])
    unknown = [UNK] * bool(tail)
    assert found == [["new", "new", "##s", *unknown], ["a", "b", "a", *unknown], ["new", UNK, *unknown],
                     ["a", "b", *unknown]]  # fmt: skip
