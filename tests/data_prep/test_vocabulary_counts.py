"""Totals of words: exact, in bounded memory, without a trace afterwards."""

import os
import tempfile
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.vocabulary_counts import WordTotals, most_frequent


@pytest.fixture
def temporary_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def totals_of(counts, max_words_in_memory):
    with WordTotals(max_words_in_memory) as totals:
        for words in counts:
            totals.add(words)
        return totals.num_words, list(totals.items())


def test_totals_come_in_the_order_of_the_words():
    counts = [{"b": 2, "é": 1}, {"a": 3, "b": 4}]
    assert totals_of(counts, max_words_in_memory=10) == (10, [("a", 3), ("b", 6), ("é", 1)])


words = st.dictionaries(st.sampled_from(["a", "ab", "b", "é", "\ue000", "\U0001f600", "我"]), st.integers(1, 9))


@given(st.lists(words, max_size=8), st.integers(1, 4))
def test_totals_are_the_same_however_few_words_fit_into_memory(counts, max_words_in_memory):
    expected = sum(map(Counter, counts), Counter())
    assert totals_of(counts, max_words_in_memory) == (expected.total(), sorted(expected.items()))


def test_totals_can_be_read_twice():
    with WordTotals(max_words_in_memory=1) as totals:
        totals.add({"a": 1, "b": 2})
        totals.add({"b": 5})
        assert list(totals.items()) == list(totals.items()) == [("a", 1), ("b", 7)]


def test_temporary_files_are_gone_afterwards_even_after_an_error(temporary_directory):
    with pytest.raises(KeyError), WordTotals(max_words_in_memory=1) as totals:
        totals.add({"a": 1, "b": 2})
        assert len(list(temporary_directory.iterdir())) == 1
        raise KeyError
    assert os.listdir(temporary_directory) == []


def test_the_most_frequent_words_are_kept_and_of_equal_ones_the_first():
    items = [("a", 2), ("b", 5), ("c", 3), ("d", 3), ("e", 1)]
    assert most_frequent(items, 2) == ({"b": 5, "c": 3}, 5)
    assert most_frequent(reversed(items), 2) == ({"b": 5, "c": 3}, 5)


def test_fewer_words_than_asked_for_are_all_kept():
    assert most_frequent([("a", 2), ("b", 5)], 7) == ({"a": 2, "b": 5}, 2)
