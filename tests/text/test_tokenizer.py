"""The tokenizer against the ids of the authors' own code, and wherever it has to run: eager, tf.data, SavedModel."""

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.text import normalization
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

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
