"""Texts to rows of ids: special tokens, truncation, which is counted, windows, labels of words; the alarm."""

import logging

import numpy as np
import pytest

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.kinds.question_answering import question_examples
from electra_tf.tasks.finetune.kinds.squad import Answer, Question
from electra_tf.tasks.finetune.kinds.tagging import tagging_features, values_of_words
from electra_tf.text.vocabulary import SPECIAL_TOKENS, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer
from tests.tasks.finetune.steps import CHOICE
from tests.toy import toy_finetuning_config

LETTERS = "abcdefghij"
CLS, SEP, UNK = 2, 3, 1
A = 5  # "a" has id 5, "b" 6, ... and "##a" 15, "##b" 16, ...


@pytest.fixture(scope="module")
def tokenizer():
    tokens = (*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS))
    return BertTokenizer(WordPieceVocabulary.from_tokens(tokens))


def rows_of(features, name: str = "input_ids") -> list[list[int]]:
    return [getattr(features, name)[features.row(row)].tolist() for row in range(features.num_rows)]


def test_a_row_is_cls_text_sep_and_a_long_text_is_truncated(tokenizer):
    result = text_features([["a b", "", "c d e f"]], {}, tokenizer, 5, None)
    assert rows_of(result.features) == [[CLS, 5, 6, SEP], [CLS, SEP], [CLS, 7, 8, 9, SEP]]
    assert not result.features.segment_ids.any()
    assert (result.num_truncated, result.features.example_index.tolist()) == (1, [0, 1, 2])


@pytest.mark.parametrize(
    "first, second, kept_first, kept_second",
    [
        ("a b c", "d e", "a b c", "d e"),  # fits
        ("a b c d e f", "g", "a b c d", "g"),  # the longer one loses its end
        ("a", "b c d e f g", "a", "b c d e"),
        ("a b c d", "e f g h", "a b c", "e f"),  # of two equally long ones first the second
        ("a b c d e f", "e f g h", "a b c", "e f"),
    ],
)
def test_the_longer_text_of_a_pair_is_truncated_first(tokenizer, first, second, kept_first, kept_second):
    result = text_features([[first], [second]], {}, tokenizer, 8, None)
    a, b = ([A + LETTERS.index(letter) for letter in kept.split()] for kept in (kept_first, kept_second))
    assert rows_of(result.features) == [[CLS, *a, SEP, *b, SEP]]
    assert rows_of(result.features, "segment_ids") == [[0] * (len(a) + 2) + [1] * (len(b) + 1)]
    assert result.num_truncated == int((first, second) != (kept_first, kept_second))


def test_a_long_text_has_overlapping_windows_and_the_last_ends_with_it(tokenizer):
    result = text_features([["a b", "a b c d e f g"]], {"label_ids": np.int32([7, 8])}, tokenizer, 6, 2)
    windows = [[CLS, 5, 6, 7, 8, SEP], [CLS, 7, 8, 9, 10, SEP], [CLS, 8, 9, 10, 11, SEP]]
    assert rows_of(result.features) == [[CLS, 5, 6, SEP], *windows]
    assert result.features.row_targets["label_ids"].tolist() == [7, 8, 8, 8]
    assert (result.num_truncated, result.features.example_index.tolist()) == (0, [0, 1, 1, 1])


def test_an_impossible_stride_is_refused(tokenizer):
    assert text_features([["a b c d"]], {}, tokenizer, 6, 4).features.num_rows == 1
    with pytest.raises(UserError, match="stride"):
        text_features([["a"]], {}, tokenizer, 6, 5)


def encoded_choices(tokenizer, max_seq_length: int, labels: list | None, *examples: tuple[str, list[str]]):
    contexts, texts = zip(*examples, strict=True)
    examples = Examples((list(contexts), list(texts)), labels, ["x"] * len(texts), "dev.csv", [2, 3])
    config = toy_finetuning_config(CHOICE, data={"max_seq_length": max_seq_length})
    return KINDS["multiple_choice"].encode(examples, config, tokenizer, is_training=True)


def test_each_choice_has_a_sequence_whose_context_is_truncated(tokenizer):
    result = encoded_choices(tokenizer, 8, [1, 0], ("a b c d", ["e", "f g h"]), ("a", ["b"]))
    features = result.features
    assert rows_of(features) == [[CLS, 5, 6, 7, 8, SEP, 9, SEP, CLS, 5, 6, SEP, 10, 11, 12, SEP], [CLS, 5, SEP, 6, SEP]]
    assert features.choice_splits.tolist() == [0, 8, 16, 21]
    assert features.segment_ids.tolist() == [0] * 6 + [1] * 2 + [0] * 4 + [1] * 4 + [0] * 3 + [1] * 2
    assert (features.row_targets["label_ids"].tolist(), features.example_index.tolist()) == ([1, 0], [0, 1])
    assert result.num_truncated == 1


def test_a_choice_that_does_not_fit_alone_is_refused(tokenizer, refusal):
    message = refusal(encoded_choices, tokenizer, 8, None, ("a", ["b"]), ("a", ["b", "c d e f g h"]))
    assert "dev.csv:3" in message and "more than 5 tokens" in message and "data.max_seq_length 8" in message


def test_the_label_of_a_word_is_at_its_first_piece_and_a_word_without_pieces_becomes_unk(tokenizer):
    features = tagging_features([["ab", "\x01", "c"], ["\x01"]], [[4, 2, 3], [3]], tokenizer, 9).features
    assert rows_of(features) == [[CLS, 5, 16, UNK, 7, SEP], [CLS, UNK, SEP]]
    label_ids, weights = np.int32([0, 4, 0, 2, 3, 0, 0, 3, 0]), np.float32([0, 1, 0, 1, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(features.token_targets["label_ids"], label_ids, strict=True)
    np.testing.assert_array_equal(features.token_targets["label_weights"], weights, strict=True)
    assert not features.segment_ids.any()


def test_a_long_sentence_is_truncated_and_counted_and_its_truncated_words_get_no_values(tokenizer):
    result = tagging_features([["a", "bcd", "e"], ["f"]], [[1, 2, 3], [4]], tokenizer, 5)
    assert rows_of(result.features) == [[CLS, 5, 6, 17, SEP], [CLS, 10, SEP]]
    assert result.num_truncated == 1
    assert result.features.token_targets["label_weights"].sum() == 3
    features = tagging_features([["ab", "c", "d", "e"], ["f"]], None, tokenizer, 5).features
    assert set(features.token_targets) == {"label_weights"}
    values = np.arange(12).reshape(2, 6)
    assert [row.tolist() for row in values_of_words(features, values)] == [[1, 3], [7]]


LONG, SHORT = "w5 " * 30, "w6 w7"
PAIR = {"kind": "classification", "labels": ["a", "b"], "text_columns": ["one", "two"]}


@pytest.mark.parametrize(
    ("task", "inputs", "labels"),
    [
        ({"kind": "regression", "text_columns": ["text"]}, ([LONG, SHORT, LONG],), [0.0, 0.5, 1.0]),
        (PAIR, ([LONG, SHORT, LONG], [LONG, SHORT, SHORT]), ["a", "b", "a"]),
        (PAIR | {"double_unordered": True}, ([LONG, SHORT, SHORT], [LONG, LONG, SHORT]), ["a", "b", "a"]),
        ({"kind": "similarity"}, ([LONG, SHORT, LONG], [LONG, SHORT, SHORT]), [0.0, 0.5, 1.0]),
        ({"kind": "similarity", "is_contrastive": True}, ([SHORT, SHORT, LONG], [LONG, SHORT, LONG]), [True] * 3),
        (CHOICE, ([LONG, SHORT, LONG], [["w5", "w6", "w7"], ["w5", "w6"], ["w5", "w6"]]), [0, 1, 1]),
        ({"kind": "tagging", "labels": ["O"]}, ([["w5"] * 30, ["w6"], ["w7"] * 30],), [["O"] * 30, ["O"], ["O"] * 30]),
    ],
    ids=["text", "pair", "both orders", "scored", "contrastive", "choices", "tags"],
)
def test_examples_are_counted_not_texts(data_of, caplog, task, inputs, labels):
    caplog.set_level(logging.INFO)
    data_of(task, inputs, labels)
    expected = "dev.csv: 2 of 3 examples were truncated: data.max_seq_length is 12"
    assert [line for line in caplog.messages if " examples " in line] == [expected] * 2  # of training and evaluation


BOOK = "w5 " * 5_000  # 12 tokens a row, 64 bytes a token, 16 rows: 12,288 bytes


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        # Questions end at 4 tokens, and contexts are read in windows.
        ([("w5 w6 w7 w8 w9", SHORT), ("w5", LONG), ("w5 w6 w7 w8", SHORT), ("w8 " * 9, LONG)], "2 of 4"),
        ([("w7", BOOK), ("w7", SHORT), ("w7", BOOK)], "2 of 3"),  # for each of its questions
    ],
)
def test_questions_that_are_cut_and_contexts_beyond_all_windows_count(data_of, caplog, texts, count):
    caplog.set_level(logging.INFO)
    asked = [Question(f"q{n}", *each, (Answer("w6", 0),), False) for n, each in enumerate(texts)]
    task = {"kind": "question_answering", "version_2": False, "max_query_length": 4}
    examples = question_examples(asked, "dev.json", is_labelled=True)
    data_of(task, examples.inputs, examples.labels, is_train=False)
    message = caplog.messages[-1]
    assert message.startswith(f"dev.csv: {count} examples were truncated: ")
    assert message.endswith("questions end at task.max_query_length 4")


@pytest.mark.parametrize(
    ("classes", "problem"),
    [([1, 1, 1, 1], "all 4 predictions of the dev set are odd"), ([1, 0, 1, 1], None)],
)
def test_equal_predictions_for_different_labels_raise_the_alarm(data_of, classes, problem):
    data = data_of({"kind": "classification", "labels": ["even", "odd"]}, (["w5"] * 4,), ["even", "odd"] * 2)
    outputs = {"logits": np.eye(2, dtype=np.float32)[classes], "loss": np.zeros(4, np.float32)}
    assert data.evaluated(outputs).alarm == problem
