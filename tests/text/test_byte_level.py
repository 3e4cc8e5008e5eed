import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import Tokenizer, models, normalizers

from benchmarks.tokenizer_ids import odd_lines
from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import ByteLevelVocabulary, StoredTokenizer, Vocabulary, WordPieceVocabulary
from tests.byte_level import ALPHABET, MMBERT, MODERNBERT, byte_level, trained


def load(content: bytes) -> Vocabulary:
    return Vocabulary.from_bytes(content, "tokenizer.json")


def changed(name: str = "", **settings) -> bytes:
    """A tokenizer.json with other settings of a part of it."""
    content = json.loads(byte_level())
    (content[name] if name else content).update(settings)
    return json.dumps(content).encode()


@pytest.fixture(scope="module")
def tokenizer():
    return create_tokenizer(load(byte_level()))


@pytest.fixture(scope="module")
def library_tokenizer():
    """Of a file that gives the same ids, but is not of the form that runs in graphs."""
    return create_tokenizer(load(changed("model", ignore_merges=True)))


@pytest.mark.parametrize("name", ["tokenizer", "library_tokenizer"])
@pytest.mark.parametrize(
    ("text", "ids", "places"),
    [
        ("The cat", [51, 256, 261], [(0, 1), (1, 3), (4, 7)]),
        (" the  cat ", [258, 220, 261, 220], [(1, 4), (5, 5), (6, 9), (10, 10)]),
        ("the   cat", [257, 267, 260], [(0, 3), (6, 6), (6, 9)]),
        ("the\u00a0cat", [257, 126, 254, 260], [(0, 3), (4, 4), (4, 4), (4, 7)]),
        ("a\n\nb", [64, 198, 198, 65], [(0, 1), (2, 2), (3, 3), (3, 4)]),
        ("e\u0301", [262], [(0, 2)]),  # NFC
        ("は日", [264, 162, 245, 98], [(0, 1), (1, 2), (1, 2), (1, 2)]),
        ("I \U0001f600", [40, 265, 253, 246, 222], [(0, 1), (2, 3), (2, 3), (2, 3), (2, 3)]),
        ("don't", [67, 266, 6, 83], [(0, 1), (1, 3), (3, 4), (4, 5)]),
        ("[SEP]", [58, 50, 36, 47, 60], [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),  # not the special token
        ("the cat " * 9, [257, 261, *[258, 261] * 8, 220], None),  # longer than the file's truncation
        (b"a\xe4\xb8b", [64, 171, 123, 121, 65], [(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)]),  # U+FFFD
        ("", [], []),
    ],
)
def test_ids_of_a_text_and_its_characters(name, text, ids, places, request):
    tokenizer = request.getfixturevalue(name)
    found, starts, ends = (each.to_list()[0] for each in tokenizer.tokenize_with_offsets(tf.constant([text])))
    assert (found, tokenizer.tokenize(tf.constant([text])).to_list()) == (ids, [ids])
    assert places is None or list(zip(starts, ends, strict=True)) == places


def test_texts_are_tokenized_in_batches_also_of_none(tokenizer):
    assert tokenizer.tokenize(["the", "", "cat"]).to_list() == [[257], [], [260]]
    empty = tokenizer.tokenize_with_offsets(tf.constant([], tf.string))
    assert [each.to_list() for each in empty] == [[], [], []]
    assert tokenizer.tokens_of(tf.constant([258, 271])).numpy().tolist() == ["Ġthe".encode(), b"[PAD]"]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("\u1100\u1161", [(0, 2)] * 3),  # two parts of a Hangul syllable, which is three tokens
        ("か\u3099a", [(0, 2), (0, 2), (2, 3)]),
        ("a\u212bb", [(0, 1), (1, 2), (1, 2), (2, 3)]),
        ("a\u0301\u0316\U0001e4efb", [(0, 3)] * 4 + [(3, 4)] * 4 + [(4, 5)]),  # one mark changes places, one is young
    ],
)
def test_tokens_have_all_characters_that_are_normalized_together(tokenizer, text, places):
    _, starts, ends = (each.to_list() for each in tokenizer.tokenize_with_offsets(tf.constant(["é", text])))
    assert list(zip(starts[1], ends[1], strict=True)) == places


# Two spaces and more before words, joined tokens, and characters that the tables of TensorFlow and `tokenizers` differ
# in: young letters, numbers, marks, and letters that NFC joins.
HARD_TEXTS = (
    "a  b   c    the\t\tcat\n\n the  \n cat \u3000x\u00a0\u00a0y \x1cz 7th 'the's 'LL we'll 'tis",
    "   the      cat  ",
    "a\U0001e5d0 \U0001e5f11 \U0002ebf0a b\u0301\u0897\u0316 \U00016d63\U00016d67 \U000105d2\u0307",
    "\U0001611e\U0001611e",
    "<x>the<x><y <y> <x",
    b"\xf0\x9f\x98a\xed\xa0\x80\xc3 \xff\xef\xbb\xbf\x00",
    "",
)


def test_a_graph_gives_the_ids_of_the_library():
    lines = Path(__file__).parents[1].joinpath("fixtures/hard_sentences.txt").read_text(encoding="utf-8").split("\n")
    content = json.loads(trained(lines, 1500))
    added = ["<x>", "<x><y", " <y", "    "]
    content["added_tokens"] += [
        {**content["added_tokens"][0], "id": 1500 + i, "content": a} for i, a in enumerate(added)
    ]
    texts = [*HARD_TEXTS, *lines, *odd_lines(200), "\n".join(lines)]
    tokenizer = create_tokenizer(load(json.dumps(content).encode()))
    tokenize = tf.function(tokenizer.tokenize, [tf.TensorSpec([None], tf.string)], autograph=False)
    found = tokenize(tf.constant(texts)).to_list()
    library = Tokenizer.from_str(json.dumps(content))
    library.no_truncation()
    library.encode_special_tokens = True
    strings = [text.decode(errors="replace") if isinstance(text, bytes) else text for text in texts]
    assert found == [each.ids for each in library.encode_batch(strings, add_special_tokens=False)]
    assert tokenizer.tokenize_with_offsets(tf.constant(texts))[0].to_list() == found


def test_tokens_that_the_merges_never_make_are_in_no_text():
    """In "abc", (b, c) comes first, and "abc" is no merge of a and bc. A word has no character but those of bytes."""
    merges = [["b", "c"], ["a", "b"], ["ab", "c"]]
    vocab = {token: index for index, token in enumerate([*ALPHABET, "bc", "ab", "abc", "日"])}
    tokenizer = create_tokenizer(load(changed("model", merges=merges, vocab=vocab)))
    assert tokenizer.runs_in_graphs
    ids = tokenizer.tokenize(["abc", "ab", "xabcab", "日"]).to_list()
    assert ids == [[64, 256], [257], [87, 64, 256, 257], [162, 245, 98]]


@pytest.mark.slow
def test_every_character_gives_the_ids_of_the_library(tokenizer, library_tokenizer):
    assigned = [*range(0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE0200)]
    for begin in range(0, len(assigned), 5000):
        texts = [f"a{c} {c}1{c}\u0301\u0316{c}{c}" for c in map(chr, assigned[begin : begin + 5000])]
        assert tokenizer.tokenize(texts).to_list() == library_tokenizer.tokenize(texts).to_list()


def _added(at: int = 0, **settings) -> bytes:
    """With other settings of an added token: of three spaces, or of a special one."""
    tokens = json.loads(byte_level())["added_tokens"]
    tokens[at].update(settings)
    return changed(added_tokens=tokens)


@pytest.mark.parametrize(
    "content",
    [
        changed("pre_tokenizer", add_prefix_space=True),
        changed("pre_tokenizer", use_regex=False),
        changed(pre_tokenizer={"type": "Whitespace"}),
        changed(normalizer={"type": "NFKC"}),
        changed("model", ignore_merges=True),
        changed("model", merges=[*json.loads(byte_level())["model"]["merges"], ["th", "e"]], vocab={
            **json.loads(byte_level())["model"]["vocab"], "th": 267}),
        changed("model", vocab={k: v for k, v in json.loads(byte_level())["model"]["vocab"].items() if k != "ĉ"}),
        _added(single_word=True),
        _added(lstrip=True),
        _added(normalized=False),
        _added(content="a  b"),
        _added(content="a "),
        _added(content="é", id=ALPHABET.index("é")),
        _added(at=1, normalized=True),
    ],
)  # fmt: skip
def test_files_of_other_forms_do_not_run_in_graphs(content):
    assert not create_tokenizer(load(content)).runs_in_graphs


def test_words_are_in_their_context_in_graphs_as_outside(tokenizer):
    words = ["the", "cat", "日本", "「は", "\u00a0a", "é"]
    rows = tf.constant([0] * 6 + [2] * 6, tf.int64)
    found = tokenizer.in_context(tf.constant(words * 2), rows).numpy()
    assert [word.decode() for word in found] == [*tokenizer.vocabulary.in_context(words)] * 2
    assert tokenizer.in_context(tf.constant([], tf.string), tf.constant([], tf.int64)).shape == [0]


def test_special_tokens_have_the_ids_of_the_file():
    vocabulary = load(byte_level())
    assert isinstance(vocabulary, ByteLevelVocabulary) and vocabulary.size == 273
    assert list(vocabulary.special_ids.values()) == [268, 271, 269, 270, 272]
    gemma = load(byte_level(MMBERT, further=("<s>", "</s>")))  # tags of HTML
    assert (gemma.cls_id, gemma.sep_id, gemma.pad_id, gemma.mask_id) == (271, 272, 273, 274)
    assert load(byte_level(("[PAD]", *MODERNBERT[1:3], "[PAD]", "[MASK]"))).unk_id == 268  # no unknown token


def test_words_begin_with_a_space_or_are_marks():
    vocabulary = load(byte_level())
    begins = dict(zip(vocabulary.tokens, vocabulary.begins_word(), strict=True))
    assert all(begins[token] for token in ("Ġthe", "Ġ", "Ċ", ".", "'", "[MASK]", "Ġð"))
    assert not any(begins[token] for token in ("the", "s", "7", "Ã©", "ãģ¯", "ãģ", "Ã"))


def test_pieces_in_plain_text_with_bytes_for_other_characters():
    """As mmBERT has them."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<0xC4>", "<0xA0>", "▁", "c", "a", "▁c", "▁ca", ".", "Ġ"]
    model = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[("▁", "c"), ("▁c", "a")],
                       unk_token="<unk>", byte_fallback=True)  # fmt: skip
    library = Tokenizer(model)
    library.add_special_tokens(tokens[:5])
    library.normalizer = normalizers.Replace(" ", "▁")
    vocabulary = load(library.to_str().encode())
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.byte_ids) == (2, 1, (5, 6))
    assert np.flatnonzero(vocabulary.begins_word()).tolist() == [0, 1, 2, 3, 4, 7, 10, 11, 12]
    ids, starts, ends = (each.to_list()[0] for each in create_tokenizer(vocabulary).tokenize_with_offsets(["ca caĠ"]))
    assert (ids, starts, ends) == ([8, 9, 11, 13], [0, 1, 3, 5], [1, 2, 5, 6])


def test_sentences_after_the_first_one_begin_with_their_space_except_in_chinese_and_japanese():
    sentences = ["the", "cat", "日本", "は", "「は", "é"]
    assert load(byte_level()).in_context(sentences) == ["the", " cat", "日本", "は", "「は", " é"]
    # A tokenizer that puts a space before each text needs none; nor does WordPiece.
    with_spaces = load(byte_level(prefix_space=True))
    assert with_spaces.in_context(sentences) == sentences
    assert create_tokenizer(with_spaces).tokenize(["the"]).to_list() == [[258]]
    assert WordPieceVocabulary.from_tokens(["[PAD]"]).in_context(sentences) == sentences


def test_it_is_stored_without_settings_of_its_own(tokenizer):
    assert StoredTokenizer.of(byte_level(), (True, True, True, 11)).settings == tokenizer.settings
    assert tokenizer.to_hugging_face().to_str(pretty=True).encode() == byte_level()
