"""Answers and tags with a byte-level BPE: tokens that begin with a space, characters of several tokens."""

import numpy as np
import pytest

from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.kinds.squad import Answer, Question
from electra_tf.tasks.finetune.kinds.squad_features import training_windows
from electra_tf.tasks.finetune.kinds.tagging import tagging_features
from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import Vocabulary
from tests.byte_level import byte_level

CLS, SEP = 269, 270


@pytest.fixture(scope="module")
def tokenizer():
    return create_tokenizer(Vocabulary.from_bytes(byte_level(), "a test"))


@pytest.mark.parametrize(
    ("context", "answer", "start", "expected"),
    [
        ("the cat on the", "cat", 4, "cat"),
        ("the   cat", "cat", 6, "cat"),
        ("(the cat)", "the cat", 1, "the cat"),
        ("on 日本 the", "本", 4, "本"),
        ("on \U0001f600 the", "\U0001f600", 3, "\U0001f600"),
        ("cafe\u0301 the", "cafe\u0301", 0, "cafe\u0301"),
        ("the cat", "cat", 0, "cat"),
    ],
)
def test_the_tokens_of_an_answer_are_those_with_its_characters(tokenizer, context, answer, start, expected):
    question = Question("id", "cat?", context, (Answer(answer, start),), is_impossible=False)
    sizes = {"max_seq_length": 40, "doc_stride": 8, "max_query_length": 4}
    windows, dropped = training_windows([question], tokenizer, **sizes)
    assert dropped == ([] if expected else ["id"])
    if expected is not None:
        targets, shift = windows.features.row_targets, windows.windows.position.numpy()[0]
        first, last = (int(targets[f"{name}_positions"][0] - shift) for name in ("start", "end"))
        assert context[windows.token_starts.numpy()[first] : windows.token_ends.numpy()[last]] == expected


def test_each_word_but_the_first_begins_with_its_space_and_has_its_label_there(tokenizer):
    features = tagging_features([["the", "cat", "日"], ["cat", "the"]], [[1, 2, 3], [2, 1]], tokenizer, 12).features
    row = [CLS, 257, 261, 162, 245, 98, SEP]  # no space is written before an ideograph
    assert features.input_ids.tolist() == [*row, CLS, 260, 258, SEP]
    assert features.token_targets["label_ids"].tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 2, 1, 0]
    assert np.flatnonzero(features.token_targets["label_weights"]).tolist() == [1, 2, 3, 8, 9]


def test_pairs_of_texts_have_the_special_tokens_of_the_file(tokenizer):
    features = text_features([["the cat"], ["cat"]], {}, tokenizer, 12, None).features
    assert features.input_ids.tolist() == [CLS, 257, 261, SEP, 260, SEP]
    assert features.segment_ids.tolist() == [0, 0, 0, 0, 1, 1]
