"""Counting words and learning pieces."""

from collections import Counter

import pytest

from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary_trainer import count_words, read_lines, train_vocabulary


def test_words_are_counted_as_the_tokenizer_cuts_them():
    lines = [b"It's  caf\xc3\xa9, CAF\xc3\x89!\n", b"\n", b"it\n"]
    counts = count_words(lines, lower_case=True, strip_accents=True)
    assert counts == {"it": 2, "'": 1, "s": 1, "cafe": 2, ",": 1, "!": 1}


def test_accents_are_counted_where_they_are_kept():
    assert count_words([b"CAF\xc3\x89"], lower_case=True, strip_accents=False) == {"café": 1}
    assert count_words([b"CAF\xc3\x89"], lower_case=False, strip_accents=False) == {"CAFÉ": 1}


def test_pieces_follow_in_the_order_of_their_frequency():
    tokens = train_vocabulary(Counter({"aab": 5, "ab": 7, "c": 9}), vocab_size=13, max_num_characters=10)
    # Pairs: a+##b 7, a+##a 5, ##a+##b 5; of the two equally frequent ones the smaller ids go first.
    assert tokens == (
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##a", "##b", "ab", "aa", "aab",
    )  # fmt: skip


def test_the_order_of_the_words_does_not_matter():
    counts = {"abab": 4, "baba": 4, "bb": 4, "aa": 4, "cab": 4}
    forwards = train_vocabulary(Counter(counts), vocab_size=15, max_num_characters=10)
    backwards = train_vocabulary(Counter(dict(reversed(counts.items()))), vocab_size=15, max_num_characters=10)
    assert forwards == backwards


def test_of_equally_frequent_characters_the_smaller_code_point_stays():
    tokens = train_vocabulary(Counter({"b": 2, "a": 2, "c": 3}), vocab_size=7, max_num_characters=2)
    assert tokens[5:] == ("a", "c")


def test_a_word_more_frequent_than_fits_a_line_keeps_its_count():
    counts = Counter({"xy": 2500, "zw": 2400})
    assert train_vocabulary(counts, vocab_size=12, max_num_characters=9)[5:] == ("w", "x", "y", "z", "##w", "##y", "xy")


def test_a_size_below_the_characters_is_refused():
    with pytest.raises(UserError, match="vocab_size is 6, but .* need 7"):
        train_vocabulary(Counter({"a": 1, "b": 1}), vocab_size=6, max_num_characters=9)


def test_a_size_that_the_text_cannot_fill_is_refused():
    with pytest.raises(UserError, match="yields only 9 tokens, expected 50"):
        train_vocabulary(Counter({"ab": 3}), vocab_size=50, max_num_characters=9)


def test_a_directory_among_the_files_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        list(read_lines([str(tmp_path)]))
