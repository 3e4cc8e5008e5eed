from collections import Counter

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.text import vocabulary_trainer, wordpiece_trainer
from electra_tf.text.normalization import BasicTokenizer
from electra_tf.text.vocabulary import CASED_TEXT, SPECIAL_TOKENS, TextSettings, WordPieceVocabulary
from electra_tf.text.vocabulary_trainer import measure_coverage, most_frequent, num_covering
from electra_tf.text.wordpiece import BertTokenizer
from electra_tf.text.wordpiece_trainer import WordPieceVocabularyTrainer, special_tokens


def count(*lines, **settings):
    counter = WordPieceVocabularyTrainer(99, 99, 0, TextSettings(**settings)).word_counter()
    counter.add(lines)
    return counter.take()


def train(counts, vocab_size, num_unused_tokens=0):
    return WordPieceVocabularyTrainer(vocab_size, 99, num_unused_tokens).train(Counter(counts)).tokens


def test_words_are_counted_after_basic_tokenization():
    assert count("It's  café, CAFÉ!", "", "it") == {"it": 2, "'": 1, "s": 1, "cafe": 2, ",": 1, "!": 1}


def test_counts_do_not_depend_on_how_often_strings_are_split(monkeypatch):
    lines = ["one two, three", "two three", "Three! two."] * 3
    expected = count(*lines)
    monkeypatch.setattr(vocabulary_trainer, "_RUNS_AT_ONCE", 2)
    monkeypatch.setattr(vocabulary_trainer, "_WORDS_PER_CALL", 3)
    assert count(*lines) == expected


def test_a_word_over_200_characters_is_cut_and_not_trained_on():
    counts = count("a" * 200, "b" * 201, "b" * 5000)
    assert counts == {"a" * 200: 1, "b" * 201: 2}
    assert not any("b" in token for token in train(counts, vocab_size=8))


def test_tokens_of_more_than_256_bytes_are_replaced_by_later_ones():
    tokens = train(Counter({"═" * 86: 9, "ab": 2, "abc": 1}), vocab_size=23)
    assert len(tokens) == 23 and "abc" in tokens
    assert max(len(token.removeprefix("##").encode()) for token in tokens) <= 256


def test_the_counter_and_the_tokenizer_split_words_at_the_same_characters():
    settings = CASED_TEXT._replace(format_characters=True)
    lines = [f"a{character}b" for character in map(chr, range(0xD800)) if not character.isalnum()]
    words = BasicTokenizer(settings).words(tf.constant(lines))[0]
    expected = Counter(word.decode() for word in words.numpy().tolist())
    assert count(*lines, **settings._asdict()) == expected


def test_pieces_are_ordered_by_frequency():
    # Pairs: a+##b 7, a+##a 5, ##a+##b 5; the pair with smaller ids comes first if both are equally frequent.
    expected = "[PAD] [unused0] [UNK] [CLS] [SEP] [MASK] a b c ##a ##b ab aa aab"
    assert " ".join(train({"aab": 5, "ab": 7, "c": 9}, vocab_size=14, num_unused_tokens=1)) == expected


@pytest.mark.parametrize(
    ("num_unused", "expected"),
    [
        (2, ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]),
        # [UNK] is 100, as in BERT's vocabularies.
        (101, ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]",
               "[unused99]", "[unused100]"]),
    ],
)  # fmt: skip
def test_special_tokens_follow_up_to_99_unused_slots(num_unused, expected):
    assert list(special_tokens(num_unused)) == expected


@pytest.mark.parametrize(
    ("counts", "vocab_size", "num_characters"),
    [
        ([10**6] * 60 + [1] * 5000, 30522, 1000),  # at least a thousand
        # 99.99 % of the text, 5,000 x 100 + 50, are 500,000 less 0.005, which takes all frequent characters.
        ([100] * 5000 + [1] * 50, 30522, 5000),
        ([100] * 5000, 6000, 2000),  # beyond a thousand, at most a third of the vocabulary
        ([100] * 5000, 600, 1000),
    ],
)
def test_the_default_number_of_characters(counts, vocab_size, num_characters):
    assert num_covering(counts, vocab_size) == num_characters


def test_counts_above_the_limit_are_scaled_down(monkeypatch):
    monkeypatch.setattr(wordpiece_trainer, "MAX_TRAINING_OCCURRENCES", 100)
    lines = list(wordpiece_trainer._as_lines(Counter({"a": 6000, "b": 3994, "c": 6})))
    assert [len(line.split()) for line in lines] == [60, 40, 1]


def test_the_most_frequent_words_are_trained_on_up_to_a_total_size():
    counts = Counter({"often": 9, "twice": 2, "two": 2, "one": 1})
    assert most_frequent(counts, 13, len) == {"often": 9, "twice": 2, "two": 2}
    assert most_frequent(counts, 99, len) == counts


def test_of_equally_frequent_words_a_hash_chooses_whatever_their_order():
    words = [f"{letter}{i}" for letter in "abcdefghij" for i in range(100)]
    chosen = most_frequent(Counter(dict.fromkeys(words, 1)), 200, lambda word: 1)
    assert len(chosen) == 200
    assert chosen == most_frequent(Counter(dict.fromkeys(reversed(words), 1)), 200, lambda word: 1)
    assert {word[0] for word in chosen} == set("abcdefghij")


@pytest.mark.parametrize(
    ("counts", "vocab_size", "complaint"),
    [
        ({"a": 1, "b": 1}, 6, "vocab_size is 6, but .* need 7"),
        ({"ab": 3}, 50, "yields only 9 tokens, expected 50"),
    ],
)
def test_a_size_that_the_text_does_not_fit_is_refused(counts, vocab_size, complaint):
    with pytest.raises(UserError, match=complaint):
        train(counts, vocab_size)


VOCABULARY = WordPieceVocabulary.from_tokens(
    (*SPECIAL_TOKENS, "the", "sun", "##day", "##s", "!", "e", "##\u0301", "我")
)


def test_coverage_weighs_words_by_their_counts():
    words = {"the": 10, "sundays": 4, "suns": 3, "moon": 2, "!": 5}
    # Tokens: sun ##day ##s 12, sun ##s 6, the 10, ! 5, moon 2 (unknown).
    assert measure_coverage(words.items(), BertTokenizer(VOCABULARY)) == {
        "num_words": 24,
        "num_characters": 83,
        "num_tokens": 35,
        "num_unknown_tokens": 2,
        "num_single_piece_words": 15,
        "unknown_fraction": 2 / 35,
        "tokens_per_word": 35 / 24,
        "characters_per_token": 83 / 35,
        "single_piece_fraction": 15 / 24,
    }


def test_coverage_counts_the_tokens_of_the_text():
    lines = ["The sundays, the Sun! THE Moons", "é É 我the我", "s" * 300, "ΣΑΣ the\u200bsun\x0bs İ"]
    coverage = measure_coverage(count(*lines).items(), BertTokenizer(VOCABULARY))
    ids = BertTokenizer(VOCABULARY).tokenize(lines).flat_values.numpy().tolist()
    assert (coverage["num_tokens"], coverage["num_unknown_tokens"]) == (len(ids), ids.count(1))
