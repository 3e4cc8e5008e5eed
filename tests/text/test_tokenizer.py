"""The tokenizer against the ids of the authors' own code, and wherever it has to run: eager, tf.data, SavedModel."""

import json
import lzma
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.text import normalization
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import SPECIAL_TOKENS, UNK, Vocabulary

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tokenization.jsonl"
# A directory with tokenization.jsonl.xz, and BERT's vocabulary of 30,522 tokens to which its ids refer.
GOLDEN_DIR = os.environ.get("ELECTRA_TF_GOLDEN_DIR")
BERT_VOCAB_FILE = os.environ.get("ELECTRA_TF_BERT_VOCAB_FILE")
MODES = [(True, True), (True, False), (False, False)]  # lower_case, strip_accents


def vocabulary_of(tokens):
    return Vocabulary(SPECIAL_TOKENS + tuple(sorted(set(tokens) - set(SPECIAL_TOKENS))), sha256="")


def tokens_of(tokenizer, texts):
    ids = tokenizer.tokenize(tf.constant([text if isinstance(text, bytes) else text.encode() for text in texts]))
    return [[token.decode() for token in row] for row in tokenizer.tokens_of(ids).to_list()]


@pytest.fixture(scope="module")
def golden_lines():
    return [json.loads(line) for line in FIXTURE.read_text().splitlines()]


@pytest.fixture(scope="module")
def golden_vocabulary(golden_lines):
    return vocabulary_of(token for line in golden_lines for token in line["tokens"] + line["tokens_keep_accents"])


@pytest.fixture(scope="module")
def character_vocabulary():
    """Every character that BERT keeps, so that ids tell any two normalisations apart."""
    table = normalization.character_table()
    dropped = normalization.DELETED | normalization.SPACE
    characters = [chr(code_point) for code_point in range(0x10000) if not table[code_point] & dropped]
    return vocabulary_of(characters + ["##" + character for character in characters])


@pytest.mark.parametrize(("strip_accents", "expected"), [(True, "tokens"), (False, "tokens_keep_accents")])
def test_tokens_are_those_of_the_authors_code(golden_lines, golden_vocabulary, strip_accents, expected):
    tokenizer = BertTokenizer(golden_vocabulary, strip_accents=strip_accents)
    found = tokens_of(tokenizer, [line["text"] for line in golden_lines])
    differing = [line["text"] for line, tokens in zip(golden_lines, found, strict=True) if tokens != line[expected]]
    assert len(golden_lines) == 137
    assert differing == []


@pytest.mark.slow
@pytest.mark.skipif(
    not (GOLDEN_DIR and BERT_VOCAB_FILE), reason="ELECTRA_TF_GOLDEN_DIR and ELECTRA_TF_BERT_VOCAB_FILE are not set"
)
@pytest.mark.parametrize(("strip_accents", "expected"), [(True, "ids"), (False, "ids_keep_accents")])
def test_all_golden_lines_have_the_ids_of_the_authors_code(strip_accents, expected):
    with lzma.open(Path(GOLDEN_DIR) / "tokenization.jsonl.xz", "rt") as file:
        lines = [json.loads(line) for line in file]
    tokenizer = BertTokenizer(Vocabulary.load(BERT_VOCAB_FILE), strip_accents=strip_accents)
    found = tokenizer.tokenize(tf.constant([line["text"].encode() for line in lines])).to_list()
    differing = [line["text"] for line, ids in zip(lines, found, strict=True) if ids != line[expected]]
    assert len(lines) == 8551
    assert differing == []


@pytest.mark.parametrize(("lower_case", "strip_accents"), MODES)
def test_each_plain_character_has_the_same_ids_on_both_paths(character_vocabulary, lower_case, strip_accents):
    tokenizer = BertTokenizer(character_vocabulary, lower_case, strip_accents)
    characters = [chr(code_point) for code_point in range(0x10000) if not 0xD800 <= code_point < 0xE000]
    is_plain = tokenizer.is_plain(tf.constant([character.encode() for character in characters])).numpy()
    plain = [character for character, holds in zip(characters, is_plain, strict=True) if holds]
    lines = [f"a{character}B {character} {character}{character}" for character in plain]
    texts = tf.constant([line.encode() for line in lines])
    by_plain_path = tokenizer._tokenize_plain(texts).to_list()
    by_exact_path = tokenizer._tokenize_exactly(texts).to_list()
    differing = [line for line, a, b in zip(lines, by_plain_path, by_exact_path, strict=True) if a != b]
    assert len(plain) > 21_000
    assert differing == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a" * 200, 200), ("a" * 201, 1), ("é" * 200, 200), ("é" * 201, 1), ("漢" * 201, 201), ("a." * 150, 300)],
)
def test_a_word_is_unknown_from_201_characters_on_not_bytes(text, expected):
    tokenizer = BertTokenizer(vocabulary_of(["a", "##a", "e", "##e", ".", "漢"]))
    tokens = tokens_of(tokenizer, [text])[0]
    assert len(tokens) == expected
    assert (tokens == ["[UNK]"]) == (expected == 1)


def test_a_batch_of_plain_and_other_lines_keeps_its_order():
    tokenizer = BertTokenizer(vocabulary_of(["one", "two", "…", "[", "]", "pad", "##s"]))
    found = tokens_of(tokenizer, ["one", "two…", "", "TWOs one", "…", b"one\xff", "[PAD]"])
    assert found == [["one"], ["two", "…"], [], ["two", "##s", "one"], ["…"], ["one"], ["[", "pad", "]"]]


@pytest.mark.parametrize("texts", [[], [b""], [b"\xff", b" "]])
def test_no_text_gives_no_tokens(texts):
    ids = BertTokenizer(vocabulary_of(["a"])).tokenize(tf.constant(texts, tf.string))
    assert ids.dtype == tf.int32
    assert ids.to_list() == [[] for _ in texts]


def test_tokens_of_keeps_the_shape():
    tokenizer = BertTokenizer(vocabulary_of(["a", "b"]))
    assert tokenizer.tokens_of(tf.constant([[5, 6, 0], [1, 5, 5]])).numpy().tolist() == [
        [b"a", b"b", b"[PAD]"],
        [b"[UNK]", b"a", b"a"],
    ]
    assert tokenizer.tokens_of(tf.ragged.constant([[6], [], [5, 5]])).to_list() == [[b"b"], [], [b"a", b"a"]]


def cuts_of(tokenizer, text):
    """What each token's offsets cut out of a text, with the token."""
    ids, starts, ends = (found.to_list()[0] for found in tokenizer.tokenize_with_offsets(tf.constant([text.encode()])))
    return [(text[start:end], tokenizer.vocabulary.tokens[i]) for i, start, end in zip(ids, starts, ends, strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Plain, fast", [("Pla", "pla"), ("in", "##in"), (",", ","), ("fast", "fast")]),
        ("«fast» é 漢in", [("«", "«"), ("fast", "fast"), ("»", "»"), ("é", "e"), ("漢", "漢"), ("in", "in")]),
        # Each line from here on takes the exact path.
        ("in\u200b… FAST", [("in", "in"), ("…", "…"), ("FAST", "fast")]),  # zero-width space
        ("fa\u200bst", [("fa\u200bst", "fast")]),
        ("plae\u0301in", [("pla", "pla"), ("e\u0301", "##e"), ("in", "##in")]),
        ("e\u0301\u0323 e", [("e\u0301\u0323", "e"), ("e", "e")]),
        ("… \u0301in", [("…", "…"), ("in", "in")]),  # a mark after a space belongs to nothing
        ("\u0130n \U0001f600 \u0130", [("\u0130n", "in"), ("\U0001f600", "[UNK]"), ("\u0130", "i")]),
        ("ΑΣ\u00a0ΑΣΑ", [("ΑΣ", "ας"), ("ΑΣ", "ασ"), ("Α", "##α")]),
        ("in " + "a" * 201 + " in", [("in", "in"), ("a" * 201, "[UNK]"), ("in", "in")]),
        ("\ufffd\x00in\x7f", [("in", "in")]),
        ("가in", [("가", "\u1100"), ("가", "##\u1161"), ("in", "##in")]),  # one character, two pieces
    ],
)  # fmt: skip
def test_offsets_cut_tokens_out_of_the_text(text, expected):
    pieces = [
        "pla",
        "##in",
        "in",
        ",",
        "fast",
        "«",
        "»",
        "e",
        "##e",
        "漢",
        "…",
        "ας",
        "ασ",
        "##α",
        "i",
        "\u1100",
        "##\u1161",
    ]
    assert cuts_of(BertTokenizer(vocabulary_of(pieces)), text) == expected


def test_marks_at_the_start_of_a_line_do_not_belong_to_the_line_before():
    tokenizer = BertTokenizer(vocabulary_of(["in", "e", "…"]))
    _, starts, ends = tokenizer.tokenize_with_offsets(tf.constant(["…e", "", "\u0301\u0301in", "e\u0301"]))
    assert starts.to_list() == [[0, 1], [], [2], [0]]
    assert ends.to_list() == [[1, 2], [], [4], [2]]


def test_offsets_without_lines_are_empty():
    found = BertTokenizer(vocabulary_of(["a"])).tokenize_with_offsets(tf.constant([], tf.string))
    assert [(part.dtype, part.to_list()) for part in found] == [(tf.int32, []), (tf.int64, []), (tf.int64, [])]


ODD = "aBz09 \t\n\u00a0\u202f.,'…é\u0301\u0323\u0130ıß\u00ad\u200b\x00\ufffd漢日アΣσς가\u1100"
ODD += "\U0001f600\U0001d165\U0001d16dÅ€Ǆ"


@pytest.mark.parametrize(("lower_case", "strip_accents"), MODES)
def test_offsets_of_random_text(character_vocabulary, lower_case, strip_accents):
    tokenizer = BertTokenizer(character_vocabulary, lower_case, strip_accents)
    chance = random.Random(17)
    lines = ["".join(chance.choices(ODD, k=chance.randrange(40))) for _ in range(2000)]
    lines += ["".join(chance.choices("aé漢 .", k=chance.randrange(300))) for _ in range(500)]
    texts = tf.constant([line.encode() for line in lines])
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    assert ids.to_list() == tokenizer.tokenize(texts).to_list()
    for line, row_starts, row_ends in zip(lines, starts.to_list(), ends.to_list(), strict=True):
        assert row_starts == sorted(row_starts)
        assert row_ends == sorted(row_ends)
        assert all(0 <= start < end <= len(line) for start, end in zip(row_starts, row_ends, strict=True))
    cuts = [
        line[start:end]
        for line, *offsets in zip(lines, starts.to_list(), ends.to_list(), strict=True)
        for start, end in zip(*offsets, strict=True)
    ]
    pieces = [tokenizer.vocabulary.tokens[i].removeprefix("##") for i in ids.flat_values.numpy()]
    # A cut is tokenized to its piece again, except where others decide (sigma, order of marks) or it has more pieces.
    special = set("Σ가\u0130\U0001d165\U0001d16d")
    alone = [(cut, piece) for cut, piece in zip(cuts, pieces, strict=True) if piece != UNK and not special & set(cut)]
    again = tokenizer.tokenize(tf.constant([cut.encode() for cut, _ in alone])).to_list()
    found = ["".join(tokenizer.vocabulary.tokens[i].removeprefix("##") for i in row) for row in again]
    assert len(alone) > 20_000
    assert found == [piece for _, piece in alone]


def test_both_paths_give_the_same_offsets(character_vocabulary):
    for modes in MODES:
        tokenizer = BertTokenizer(character_vocabulary, *modes)
        characters = tf.constant([chr(c).encode() for c in range(0x2E80)])
        plain = [c.decode() for c in tf.boolean_mask(characters, tokenizer.is_plain(characters)).numpy()]
        texts = tf.constant([f"a{c}B {c} {c}{c}".encode() for c in plain])
        by_plain_path = tokenizer._tokenize_plain_with_offsets(texts)
        by_exact_path = tokenizer._tokenize_exactly_with_offsets(texts)
        for one, other in zip(by_plain_path, by_exact_path, strict=True):
            assert one.to_list() == other.to_list()


LOAD_AND_RUN = """
import json, sys
import tensorflow as tf
import tensorflow_text
module = tf.saved_model.load(sys.argv[1])
texts = [json.loads(line)["text"] for line in open(sys.argv[2])]
tokens = module.tokens(tf.constant([text.encode() for text in texts]))
assert not any(name.startswith("electra_tf") for name in sys.modules)
print(json.dumps([[token.decode() for token in row] for row in tokens.to_list()]))
"""


@pytest.mark.slow
def test_a_saved_model_tokenizes_in_a_process_without_this_project(tmp_path, golden_lines, golden_vocabulary):
    module = tf.Module()
    module.tokenizer = BertTokenizer(golden_vocabulary)
    module.tokens = tf.function(
        lambda texts: module.tokenizer.tokens_of(module.tokenizer.tokenize(texts)),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path / "model"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [sys.executable, "-c", LOAD_AND_RUN, str(tmp_path / "model"), str(FIXTURE)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [line["tokens"] for line in golden_lines]
