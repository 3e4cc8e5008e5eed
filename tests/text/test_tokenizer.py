import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import SentencePieceProcessor

from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import SPECIAL_TOKENS, UNK, TextSettings, Vocabulary, WordPieceVocabulary
from tests.sentence_pieces import LINES, train

# Compatibility forms, decomposed letters, unusual spaces, marks, NUL, an emoji, the marker itself.
ODD_LINES = [
    "",
    "   ",
    "  the   cat ",
    "\ufb01ne \u00bd caf\u00e9 cafe\u0301 か\u3099",
    "the\tcat\u2028sat\u200bon\x85the\u00a0mat\u3000hat",
    "the\u2581cat",
    "cat\x00hat",
    "the \U0001f600 cat",
]


@pytest.fixture(scope="module", params=["bpe", "unigram", "bpe with bytes", "unigram with bytes"])
def model(request) -> bytes:
    model_type, *options = request.param.split(" with ")
    vocab_size = {"bpe": 83, "unigram": 51}[model_type]
    return train(model_type, byte_fallback=bool(options), vocab_size=vocab_size + 256 * len(options))


@pytest.fixture(scope="module")
def tokenizer(model):
    return create_tokenizer(Vocabulary.from_bytes(model, "a test"))


def test_ids_of_plain_lines_are_those_of_the_library(model, tokenizer):
    expected = SentencePieceProcessor(model_proto=model).encode(LINES)
    assert tokenizer.tokenize(tf.constant(LINES)).to_list() == expected


def test_hugging_face_gives_the_same_ids(tokenizer):
    lines = [line for line in LINES + ODD_LINES if "[MASK]" not in line]
    encoded = tokenizer.to_hugging_face().encode_batch(lines, add_special_tokens=False)
    assert [each.ids for each in encoded] == tokenizer.tokenize(tf.constant(lines)).to_list()


def test_a_mask_in_hugging_faces_text_takes_the_space_before_it(tokenizer):
    ids = tokenizer.to_hugging_face().encode("the [MASK] cat", add_special_tokens=False).ids
    assert ids == [*tokenizer.tokenize(["the"]).to_list()[0], 4, *tokenizer.tokenize(["cat"]).to_list()[0]]


@pytest.mark.parametrize("lines", [LINES + ODD_LINES, [""], []], ids=["lines", "an empty one", "none"])
def test_tokenizing_with_offsets_gives_the_same_ids(tokenizer, lines):
    lines = tf.constant(lines, tf.string)
    assert tokenizer.tokenize_with_offsets(lines)[0].to_list() == tokenizer.tokenize(lines).to_list()


@pytest.fixture(scope="module")
def whole_words():
    """A tokenizer whose pieces of "the", "cat" and "hat" are whole words."""
    return create_tokenizer(Vocabulary.from_bytes(train("bpe"), "a test"))


def test_a_sentence_piece_tokenizer_outlives_a_new_seed_and_another_tokenizer(whole_words):
    expected, other = whole_words.tokenize(LINES).to_list(), create_tokenizer(whole_words.vocabulary)
    tf.random.set_seed(3)
    del other
    assert whole_words.tokenize(LINES).to_list() == expected
    other = create_tokenizer(Vocabulary.from_bytes(train("unigram", vocab_size=51), "a test"))
    assert whole_words.tokenize(LINES).to_list() == expected != other.tokenize(LINES).to_list()


def pieces_and_texts(tokenizer, text: str) -> list[tuple[str, str]]:
    ids, starts, ends = (ragged.to_list()[0] for ragged in tokenizer.tokenize_with_offsets([text]))
    tokens = [tokenizer.vocabulary.tokens[index] for index in ids]
    return [(token, text[start:end]) for token, start, end in zip(tokens, starts, ends, strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the cat", [("▁the", "the"), ("▁cat", "cat")]),
        ("  the \u2028 cat ", [("▁the", "the"), ("▁cat", "cat")]),
        ("ﬁ the", [("▁", ""), ("f", "ﬁ"), ("i", ""), ("▁the", "the")]),
        ("Ka\u0308se, the", [("▁Käse", "Ka\u0308se"), (",", ","), ("▁the", "the")]),
        ("", []),
    ],
)
def test_offsets_are_characters_of_the_given_text(whole_words, text, expected):
    assert pieces_and_texts(whole_words, text) == expected


@pytest.mark.parametrize("unknown", ["Ж", "\u0000"])
def test_a_long_run_of_unknown_characters_is_cut_and_has_the_same_ids(monkeypatch, unknown):
    lengths = []

    class Recorder(tf_text.SentencepieceTokenizer):
        def tokenize(self, texts):
            lengths.append(int(tf.reduce_max(tf.strings.length(texts))))
            return super().tokenize(texts)

    monkeypatch.setattr(tf_text, "SentencepieceTokenizer", Recorder)
    tokenizer = create_tokenizer(Vocabulary.from_bytes(train("bpe"), "a test"))
    long = f"the {unknown * 20_000} cat{unknown * 3}"
    expected = tokenizer.tokenize([f"the {unknown} cat{unknown}"]).to_list()
    assert tokenizer.tokenize([long]).to_list() == expected
    assert lengths[-1] < 1000
    assert pieces_and_texts(tokenizer, long)[-3:] == [(UNK, unknown * 20_000), ("▁cat", "cat"), (UNK, unknown * 3)]


def test_bytes_of_a_long_run_of_unknown_characters_all_have_ids():
    tokenizer = create_tokenizer(Vocabulary.from_bytes(train("bpe", byte_fallback=True, vocab_size=339), "a test"))
    assert tokenizer.tokenize(["Ж" * 6_000]).row_lengths().numpy().tolist() == [1 + 2 * 6_000]


def test_words_begin_at_markers_and_at_marks(whole_words):
    begins = dict(zip(whole_words.vocabulary.tokens, whole_words.vocabulary.begins_word(), strict=True))
    assert (begins["▁the"], begins["▁"], begins[","], begins["a"], begins["。"]) == (True, True, True, False, True)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "東 京 大 学 の abc 東 京 ."),
        ({"isolate_cjk": False}, "東京 ##大学 の abc 東京 ."),
        ({"lower_case": False, "isolate_cjk": False}, "東京 ##大学 の ABC 東京 ."),
    ],
)
def test_hugging_face_gives_the_same_word_pieces(settings, expected):
    tokens = [*SPECIAL_TOKENS, *"東京大学の.", "東京", "##大学", "abc", "ABC"]
    tokenizer = create_tokenizer(WordPieceVocabulary.from_tokens(tokens), TextSettings(**settings))
    (ids,) = tokenizer.tokenize(["東京大学 の ABC 東京."]).to_list()
    assert " ".join(tokens[index] for index in ids) == expected
    assert tokenizer.to_hugging_face().encode("東京大学 の ABC 東京.", add_special_tokens=False).ids == ids


NEWER = "🥺 🥱🥲 🫠x 🫨, 🫩 🫪 🧑\u200d🦽❤\ufe0f \ua7ba\U00010570 \U00010e80\u20c0 \U0001e4d0 \U00030edd漢"
NEWER += " \u0378 \U0001fffd"  # unassigned
# 🧑🦽 is then three characters, and the others are a\u200ca, क, a letter, a letter, ᠠ, a vowel separator and ᠡ.
FORMATTED = NEWER + " a\u200ca \x0bक\u200b\u200eα\x1c\u00adβ\u2028ᠠ\u180eᠡ"


@pytest.mark.parametrize(
    ("text", "format_characters", "num_ids"), [(NEWER, False, 21), (FORMATTED, True, 21 + 1 + 3 + 3 + 3)]
)
def test_newer_characters_have_the_same_ids_in_hugging_face(text, format_characters, num_ids):
    characters = sorted(set(text.lower()) - set(" \ua7ba\U00010570") | {"\ua7bb", "\U00010597"})
    tokens = [*SPECIAL_TOKENS, *characters, *("##" + each for each in characters)]
    settings = TextSettings(unicode=18, format_characters=format_characters)
    tokenizer = create_tokenizer(WordPieceVocabulary.from_tokens(tokens), settings)
    (ids,) = tokenizer.tokenize([text]).to_list()
    assert len(ids) == num_ids and 1 not in ids
    assert tokenizer.to_hugging_face().encode(text, add_special_tokens=False).ids == ids
