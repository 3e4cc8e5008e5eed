import numpy as np
import pytest
import tensorflow as tf
from tokenizers import Tokenizer, models, normalizers

from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import ByteLevelVocabulary, StoredTokenizer, Vocabulary, WordPieceVocabulary
from tests.byte_level import MMBERT, MODERNBERT, byte_level


def load(content: bytes) -> Vocabulary:
    return Vocabulary.from_bytes(content, "tokenizer.json")


@pytest.fixture(scope="module")
def tokenizer():
    return create_tokenizer(load(byte_level()))


@pytest.mark.parametrize(
    ("text", "ids", "places"),
    [
        ("The cat", [51, 256, 261], [(0, 1), (1, 3), (4, 7)]),
        (" the  cat ", [258, 220, 261, 220], [(1, 4), (5, 5), (6, 9), (10, 10)]),
        ("the   cat", [257, 267, 260], [(0, 3), (6, 6), (6, 9)]),
        ("the\u00a0cat", [257, 126, 254, 260], [(0, 3), (4, 4), (4, 4), (4, 7)]),
        ("a\n\nb", [64, 198, 198, 65], [(0, 1), (2, 2), (3, 3), (3, 4)]),
        ("e\u0301", [262], [(0, 2)]),  # NFC
        ("\u1100\u1161", [166, 108, 222], [(0, 1), (0, 1), (0, 2)]),  # two parts of a Hangul syllable
        ("か\u3099", [263, 234], [(0, 1), (0, 2)]),
        ("は日", [264, 162, 245, 98], [(0, 1), (1, 2), (1, 2), (1, 2)]),
        ("I \U0001f600", [40, 265, 253, 246, 222], [(0, 1), (2, 3), (2, 3), (2, 3), (2, 3)]),
        ("don't", [67, 266, 6, 83], [(0, 1), (1, 3), (3, 4), (4, 5)]),
        ("[SEP]", [58, 50, 36, 47, 60], [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),  # not the special token
        ("the cat " * 9, [257, 261, *[258, 261] * 8, 220], None),  # longer than the file's truncation
        (b"a\xffb", [64, 171, 123, 121, 65], [(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)]),  # U+FFFD
        ("", [], []),
    ],
)
def test_ids_of_a_text_and_its_characters(tokenizer, text, ids, places):
    found, starts, ends = (each.to_list()[0] for each in tokenizer.tokenize_with_offsets(tf.constant([text])))
    assert (found, tokenizer.tokenize(tf.constant([text])).to_list()) == (ids, [ids])
    assert places is None or list(zip(starts, ends, strict=True)) == places


def test_texts_are_tokenized_in_batches_also_of_none(tokenizer):
    assert tokenizer.tokenize(["the", "", "cat"]).to_list() == [[257], [], [260]]
    empty = tokenizer.tokenize_with_offsets(tf.constant([], tf.string))
    assert [each.to_list() for each in empty] == [[], [], []]
    assert not tokenizer.runs_in_graphs
    assert tokenizer.tokens_of(tf.constant([258, 271])).numpy().tolist() == ["Ġthe".encode(), b"[PAD]"]


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
