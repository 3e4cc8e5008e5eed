"""Input to a vocabulary and its report: the same for any order, cut and packing of the input."""

import json
import lzma
import sqlite3
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep import vocabulary_builder
from data_prep.settings import VocabularySettings
from data_prep.vocabulary_builder import WordTotals, build_vocabulary
from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import Vocabulary

LINES = ["The sun and the moon.", "Suns, moons;", "cafe\u0301 the sun", "mooned sunned the", "théâtre, the\x01 end"]


def build(tmp_path, *inputs, output="vocab.out", **changes):
    """(the vocabulary file's bytes, the report)."""
    changes = {"vocab_size": 45, **changes}
    report = build_vocabulary(VocabularySettings(inputs=inputs, output=str(tmp_path / output), **changes))
    assert json.loads((tmp_path / f"{output}.coverage.json").read_text()) == report
    return (tmp_path / output).read_bytes(), report


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(LINES[:2]) + "\n")
    (tmp_path / "b.txt").write_text("\n\n".join(LINES[2:]) + "\n")
    return f"{tmp_path}/*.txt"


def test_the_report_counts_what_was_read_and_changed(tmp_path, corpus):
    _, report = build(tmp_path, corpus)
    assert report["training_text"] == {
        "inputs": [corpus],
        "num_files": 2,
        "num_bytes": 90,
        "num_documents_read": 2,
        "num_documents_normalized": 1,
        "num_control_characters_dropped": 1,
        "num_documents_too_short": 0,
        "num_words": 20,
        "num_distinct_words": 14,
        "num_distinct_words_trained_on": 14,
    }
    assert report["coverage_text"] == "the training text"
    assert report["coverage"]["num_words"] == 20
    assert report["coverage"]["unknown_fraction"] == 0
    assert report["vocab_sha256"] == Vocabulary.load(tmp_path / "vocab.out").sha256


def test_coverage_is_measured_on_other_text_where_there_is_some(tmp_path, corpus):
    (tmp_path / "held_out.jsonl").write_text('{"text": "The sun, x the"}\n{"text": "moon"}\n')
    _, report = build(tmp_path, corpus, coverage_inputs=(f"{tmp_path}/*.jsonl",))
    assert report["coverage_text"]["num_words"] == 6
    assert report["coverage"]["num_words"] == 6
    assert report["coverage"]["num_unknown_tokens"] == 1
    assert report["coverage"]["single_piece_fraction"] == 5 / 6


def test_the_order_and_the_packing_of_the_input_do_not_matter(tmp_path, corpus):
    expected, _ = build(tmp_path, corpus)
    (tmp_path / "one.xz").write_bytes(lzma.compress("\n".join(LINES).encode()))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"body": line}) + "\n" for line in reversed(LINES)))
    assert build(tmp_path, f"sentences:{tmp_path}/one.xz", output="1")[0] == expected
    assert build(tmp_path, f"{tmp_path}/rows.jsonl", output="2", text_field="body")[0] == expected
    assert build(tmp_path, f"{tmp_path}/b.txt", f"{tmp_path}/a.txt", output="3")[0] == expected


def test_neither_the_size_of_the_work_units_nor_the_room_in_memory_matters(tmp_path, corpus, monkeypatch):
    expected, expected_report = build(tmp_path, corpus)
    monkeypatch.setattr(vocabulary_builder, "_UNIT_BYTES", 10)
    monkeypatch.setattr(vocabulary_builder.WordTotals.__init__, "__defaults__", (2,))
    content, report = build(tmp_path, corpus, overwrite=True)
    assert content == expected
    assert report == expected_report


@pytest.mark.slow
def test_the_number_of_processes_does_not_matter(tmp_path, corpus, monkeypatch):
    expected, expected_report = build(tmp_path, corpus)
    monkeypatch.setattr(vocabulary_builder, "_UNIT_BYTES", 10)
    assert build(tmp_path, corpus, num_processes=2, overwrite=True) == (expected, expected_report)


def test_the_settings_reach_the_file(tmp_path, corpus):
    content, _ = build(tmp_path, corpus, num_unused_tokens=3, lower_case=False, strip_accents=False, vocab_size=56)
    tokens = content.decode().split()
    assert tokens[:8] == ["[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert {"T", "S", "é"} < set(tokens)
    assert "\u0301" not in content.decode()
    changes = {"unicode_normalization": "none", "strip_accents": False, "vocab_size": 50}
    assert "\u0301" in build(tmp_path, corpus, output="left", **changes)[0].decode()


def test_no_space_for_temporary_files_is_a_user_error(tmp_path, corpus, monkeypatch):
    def full(self):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(vocabulary_builder.WordTotals, "_flush", full)
    with pytest.raises(UserError, match="^cannot write temporary files: database or disk is full.*TMPDIR$"):
        build(tmp_path, corpus)


words = st.dictionaries(st.sampled_from(["a", "ab", "b", "é", "\ue000", "\U0001f600", "我"]), st.integers(1, 9))


@given(st.lists(words, max_size=8), st.integers(1, 4))
def test_totals_are_the_same_however_few_words_fit_into_memory(counts, max_words_in_memory):
    totals = WordTotals(max_words_in_memory)
    for words_of_unit in counts:
        totals.add(words_of_unit)
    expected = sum(map(Counter, counts), Counter())
    assert list(totals.items()) == list(totals.items()) == sorted(expected.items())
    assert (totals.num_words, totals.num_distinct()) == (expected.total(), len(expected))


def test_the_most_frequent_words_are_kept_and_of_equal_ones_the_first():
    totals = WordTotals()
    totals.add({"a": 2, "b": 5, "d": 3, "c": 3, "e": 1})
    assert totals.most_frequent(2) == {"b": 5, "c": 3}
    assert totals.most_frequent(7) == {"a": 2, "b": 5, "d": 3, "c": 3, "e": 1}
