"""Texts to rows of ids: special tokens, truncation, windows, and the labels of words."""

from types import SimpleNamespace

import numpy as np
import pytest

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.kinds.tagging import tagging_features, values_of_words
from electra_tf.text.vocabulary import SPECIAL_TOKENS, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer

LETTERS = "abcdefghij"
CLS, SEP, UNK = 2, 3, 1
A = 5  # "a" has id 5, "b" 6, ... and "##a" 15, "##b" 16, ...


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(
        WordPieceVocabulary.from_tokens((*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS)))
    )


def rows_of(features) -> list[list[int]]:
    return [features.input_ids[features.row(row)].tolist() for row in range(features.num_rows)]


def segments_of(features) -> list[list[int]]:
    return [features.segment_ids[features.row(row)].tolist() for row in range(features.num_rows)]


def test_a_row_is_cls_text_sep_and_a_long_text_is_truncated(tokenizer):
    result = text_features([["a b", "", "c d e f"]], {}, tokenizer, 5, None)
    assert rows_of(result.features) == [[CLS, 5, 6, SEP], [CLS, SEP], [CLS, 7, 8, 9, SEP]]
    assert segments_of(result.features) == [[0] * 4, [0] * 2, [0] * 5]
    assert result.num_truncated == 1
    assert result.features.example_index.tolist() == [0, 1, 2]


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
    assert segments_of(result.features) == [[0] * (len(a) + 2) + [1] * (len(b) + 1)]
    assert result.num_truncated == int((first, second) != (kept_first, kept_second))


def test_a_long_text_has_overlapping_windows_and_the_last_ends_with_it(tokenizer):
    targets = {"label_ids": np.int32([7, 8])}
    result = text_features([["a b", "a b c d e f g"]], targets, tokenizer, 6, 2)
    assert rows_of(result.features) == [
        [CLS, 5, 6, SEP],
        [CLS, 5, 6, 7, 8, SEP],
        [CLS, 7, 8, 9, 10, SEP],
        [CLS, 8, 9, 10, 11, SEP],
    ]
    assert result.features.example_index.tolist() == [0, 1, 1, 1]
    assert result.features.row_targets["label_ids"].tolist() == [7, 8, 8, 8]
    assert result.num_truncated == 0


def test_an_impossible_stride_is_refused(tokenizer):
    assert text_features([["a b c d"]], {}, tokenizer, 6, 4).features.num_rows == 1
    with pytest.raises(UserError, match="stride"):
        text_features([["a"]], {}, tokenizer, 6, 5)


def encoded_choices(tokenizer, max_seq_length: int, labels: list | None, *examples: tuple[str, list[str]]):
    contexts, texts = zip(*examples, strict=True)
    examples = Examples((list(contexts), list(texts)), labels, ["x"] * len(texts), "dev.csv", [2, 3])
    config = SimpleNamespace(data=SimpleNamespace(max_seq_length=max_seq_length))
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
    message = refusal(encoded_choices, tokenizer, 6, None, ("a", ["b"]), ("a", ["b", "c d e f"]))
    assert "dev.csv:3" in message and "more than 3 tokens" in message and "data.max_seq_length 6" in message


def test_the_label_of_a_word_is_at_its_first_piece(tokenizer):
    features = tagging_features([["ab", "c"], ["d"]], [[4, 2], [3]], tokenizer, 9).features
    assert rows_of(features) == [[CLS, 5, 16, 7, SEP], [CLS, 8, SEP]]
    targets = {"label_ids": np.int32([0, 4, 0, 2, 0, 0, 3, 0]), "label_weights": np.float32([0, 1, 0, 1, 0, 0, 1, 0])}
    for name, values in targets.items():
        np.testing.assert_array_equal(features.token_targets[name], values, strict=True)
    assert features.segment_ids.tolist() == [0] * 8


def test_a_word_without_pieces_becomes_unk_and_keeps_its_label(tokenizer):
    features = tagging_features([["a", "\x01", "b"], ["\x01"]], [[1, 2, 3], [4]], tokenizer, 9).features
    assert rows_of(features) == [[CLS, 5, UNK, 6, SEP], [CLS, UNK, SEP]]
    assert features.token_targets["label_ids"].tolist() == [0, 1, 2, 3, 0, 0, 4, 0]


def test_a_long_sentence_is_truncated_and_counted_and_its_truncated_words_get_no_values(tokenizer):
    result = tagging_features([["a", "bcd", "e"], ["f"]], [[1, 2, 3], [4]], tokenizer, 5)
    assert rows_of(result.features) == [[CLS, 5, 6, 17, SEP], [CLS, 10, SEP]]
    assert result.num_truncated == 1
    assert result.features.token_targets["label_weights"].sum() == 3
    features = tagging_features([["ab", "c", "d", "e"], ["f"]], None, tokenizer, 5).features
    assert set(features.token_targets) == {"label_weights"}
    values = np.arange(12).reshape(2, 6)
    assert [row.tolist() for row in values_of_words(features, values)] == [[1, 3], [7]]
