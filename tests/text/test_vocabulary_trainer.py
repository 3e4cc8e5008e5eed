"""Counting words, learning pieces, and how well a vocabulary fits a text."""

from collections import Counter

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.text import vocabulary_trainer
from electra_tf.text.normalization import BasicTokenizer
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from electra_tf.text.vocabulary_trainer import WordCounter, measure_coverage, special_tokens, train_vocabulary


def count(*lines, lower_case=True, strip_accents=True):
    counter = WordCounter(lower_case, strip_accents)
    counter.add(lines)
    return counter.take()


def train(counts, vocab_size, num_unused_tokens=0):
    sizes = {"vocab_size": vocab_size, "max_num_characters": 99, "num_unused_tokens": num_unused_tokens}
    return train_vocabulary(Counter(counts), **sizes)


def test_words_are_counted_as_the_tokenizer_cuts_them():
    assert count("It's  café, CAFÉ!", "", "it") == {"it": 2, "'": 1, "s": 1, "cafe": 2, ",": 1, "!": 1}


def test_counts_are_the_same_however_often_the_counter_makes_room(monkeypatch):
    lines = ["one two, three", "two three", "Three! two."] * 3
    expected = count(*lines)
    monkeypatch.setattr(vocabulary_trainer, "_RUNS_AT_ONCE", 2)
    monkeypatch.setattr(vocabulary_trainer, "_WORDS_PER_CALL", 3)
    assert count(*lines) == expected


def test_of_a_word_too_long_for_any_piece_only_the_beginning_is_kept():
    counts = count("a" * 200, "b" * 201, "b" * 5000)
    assert counts == {"a" * 200: 1, "b" * 201: 2}
    assert not any("b" in token for token in train(counts, vocab_size=8))


def test_every_character_separates_words_where_the_tokenizer_says_so():
    lines = [f"a{character}b" for character in map(chr, range(0x10000)) if not character.isalnum()]
    lines = [line for line in lines if not "\ud800" <= line[1] <= "\udfff"]
    words = BasicTokenizer(lower_case=False, strip_accents=False).words(tf.constant(lines))[0]
    expected = Counter(word.decode() for word in words.numpy().tolist())
    assert count(*lines, lower_case=False, strip_accents=False) == expected


def test_pieces_follow_in_the_order_of_their_frequency():
    # Pairs: a+##b 7, a+##a 5, ##a+##b 5; of the two equally frequent ones the smaller ids go first.
    expected = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##a ##b ab aa aab"
    assert " ".join(train({"aab": 5, "ab": 7, "c": 9}, vocab_size=13)) == expected


def test_unused_slots_stand_before_the_unknown_token():
    expected = "[PAD] [unused0] [unused1] [UNK] [CLS] [SEP] [MASK] a b ##b ab"
    assert " ".join(train({"ab": 3}, vocab_size=11, num_unused_tokens=2)) == expected


def test_with_99_unused_slots_or_more_the_special_tokens_have_berts_ids():
    for num_unused_tokens in (99, 994):
        tokens = special_tokens(num_unused_tokens)
        assert tokens[0] == "[PAD]"
        assert tokens[1:100] == tuple(f"[unused{i}]" for i in range(99))
        assert tokens[100:104] == ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
        assert tokens[104:] == tuple(f"[unused{i}]" for i in range(99, num_unused_tokens))


@pytest.mark.parametrize(
    ("counts", "vocab_size", "num_characters"),
    [
        ([10**6] * 60 + [1] * 5000, 30522, 1000),  # at least a thousand
        # As many as make up the text: 99.99 % of 5,000 x 100 + 50 are 500,000 less 0.005, so the last frequent one too.
        ([100] * 5000 + [1] * 50, 30522, 5000),
        ([100] * 5000, 6000, 2000),  # beyond a thousand, at most a third of the vocabulary
        ([100] * 5000, 600, 1000),
    ],
)
def test_without_a_number_given_the_text_and_the_vocabulary_say_how_many_characters_stay(
    counts, vocab_size, num_characters
):
    assert vocabulary_trainer._num_covering(counts, vocab_size) == num_characters


def test_counts_beyond_what_is_trained_on_keep_their_proportion(monkeypatch):
    monkeypatch.setattr(vocabulary_trainer, "MAX_TRAINING_OCCURRENCES", 100)
    lines = list(vocabulary_trainer._as_lines(Counter({"a": 6000, "b": 3994, "c": 6})))
    assert [len(line.split()) for line in lines] == [60, 40, 1]


def test_turkish_is_lowered_as_bert_does_it_by_no_rules_of_turkish():
    assert count("IŞIK ışık İnci", strip_accents=False) == {"işik": 1, "ışık": 1, "i\u0307nci": 1}
    assert count("IŞIK ışık İnci") == {"isik": 1, "ısık": 1, "inci": 1}


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


VOCABULARY = Vocabulary((*SPECIAL_TOKENS, "the", "sun", "##day", "##s", "!", "e", "##\u0301", "我"), sha256="")


def test_words_are_weighed_by_their_counts():
    words = {"the": 10, "sundays": 4, "suns": 3, "moon": 2, "!": 5}
    # sun ##day ##s: 12, sun ##s: 6, the: 10, !: 5, moon: 2 unknown ones.
    assert measure_coverage(words.items(), BertTokenizer(VOCABULARY)) == {
        "num_words": 24,
        "num_tokens": 35,
        "num_unknown_tokens": 2,
        "num_single_piece_words": 15,
        "unknown_fraction": 2 / 35,
        "tokens_per_word": 35 / 24,
        "single_piece_fraction": 15 / 24,
    }


def test_no_text_has_no_unknown_token():
    assert measure_coverage([], BertTokenizer(VOCABULARY))["unknown_fraction"] == 0


@pytest.mark.parametrize(("lower_case", "strip_accents"), [(True, True), (True, False), (False, False)])
def test_words_give_the_tokens_of_the_text_they_were_cut_from(lower_case, strip_accents):
    tokenizer = BertTokenizer(VOCABULARY, lower_case, strip_accents)
    lines = ["The sundays, the Sun! THE Moons", "é É 我the我", "s" * 300, "ΣΑΣ the\u200bsun\x0bs İ"]
    coverage = measure_coverage(count(*lines, lower_case=lower_case, strip_accents=strip_accents).items(), tokenizer)
    ids = tokenizer.tokenize(lines).flat_values.numpy().tolist()
    assert (coverage["num_tokens"], coverage["num_unknown_tokens"]) == (len(ids), ids.count(1))
