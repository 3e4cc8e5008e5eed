"""Answers from model outputs, on contexts whose tokens are letters."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.kinds.answers import (
    Answers,
    Spans,
    n_best,
    predicted_answers,
    span_texts,
)
from electra_tf.tasks.finetune.kinds.question_answering import question_examples
from electra_tf.tasks.finetune.kinds.squad import Question
from electra_tf.tasks.finetune.kinds.squad_features import squad_windows
from electra_tf.text.vocabulary import SPECIAL_TOKENS, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer
from tests.toy import toy_finetuning_config

SETTINGS = {"version_2": False, "max_answer_length": 3, "n_best_size": 5}
LOW = -1000.0


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(WordPieceVocabulary.from_tokens((*SPECIAL_TOKENS, *"abcdefgh?")))


@pytest.fixture
def windows(tokenizer):
    """Two of the first question, [CLS] ? [SEP] a b c d e [SEP] and [CLS] ? [SEP] d e f g h [SEP]; one of the second."""
    contexts = {"q1": "A  b c d e f g h", "q2": "A é h"}
    questions = [Question(key, "?", context, (), False) for key, context in contexts.items()]
    return squad_windows(questions, tokenizer, max_seq_length=9, doc_stride=3, max_query_length=2)


def joint(*spans_of_windows):
    """Outputs of a beam of 2; each window is a list of two (start, log-probability, ends, their log-probabilities)."""
    columns = [np.array([[beam[i] for beam in window] for window in spans_of_windows]) for i in range(4)]
    starts, start_scores, ends, end_scores = columns
    return {
        "start_top_index": starts.astype(np.int32),
        "start_top_log_probs": start_scores.astype(np.float32),
        "end_top_index": ends.astype(np.int32),
        "end_top_log_probs": end_scores.astype(np.float32),
    }


NOTHING = [(0, 0.0, (0, 0), (0.0, 0.0)), (2, 0.0, (8, 8), (0.0, 0.0))]  # [CLS] and the question's [SEP]


def test_spans_are_cut_out_of_the_context_and_the_best_is_first(windows):
    outputs = joint([(3, -1.0, (4, 3), (-0.5, -1.5)), (4, -2.0, (5, 4), (-1.0, -3.0))], NOTHING, NOTHING)
    first, second = predicted_answers(windows, outputs, **SETTINGS)
    assert [(span.text, span.start, span.end) for span in first.spans] == [
        ("A  b", 0, 4), ("A", 0, 1), ("b c", 3, 6), ("b", 3, 4)
    ]  # fmt: skip
    assert [span.start_score + span.end_score for span in first.spans] == [-1.5, -2.5, -3.0, -5.0]
    assert sum(span.probability for span in first.spans) == pytest.approx(1.0)
    assert first.spans[0].probability / first.spans[1].probability == pytest.approx(np.e)
    assert (first.text, second.text, second.spans, first.null_odds) == ("A  b", "", (), None)


def test_impossible_spans_are_left_out(windows):
    beams = [
        (3, -1.0, (8, 2), (-0.5, -0.5)),  # ends at [SEP]; ends in the question
        (4, -1.0, (3, 7), (-0.5, -0.5)),  # ends before its start; has four tokens
    ]
    # d, which has more context in the first window
    after = [(3, -1.0, (3, 4), (-0.5, -0.5)), (0, 0.0, (3, 4), (0.0, 0.0))]
    first, _ = predicted_answers(windows, joint(beams, after, NOTHING), **SETTINGS)
    assert first.spans == ()


def test_spans_with_equal_scores_keep_the_order_of_windows_and_beams(windows):
    beams = [(5, -1.0, (6, 5), (-0.5, -0.5)), (3, -1.0, (3, 4), (-0.5, -0.5))]
    after = [(5, -1.0, (5, 6), (-0.5, -0.5)), (6, -2.0, (7, 6), (-0.5, -0.5))]
    first, _ = predicted_answers(windows, joint(beams, after, NOTHING), **SETTINGS)
    assert [span.text for span in first.spans] == ["c d", "c", "A", "A  b", "f"]


def test_null_odds_are_the_smallest_null_score_of_the_windows(windows):
    outputs = joint(NOTHING, NOTHING, NOTHING) | {"answerable_logits": np.array([2.5, -1.5, 0.25], np.float32)}
    first, second = predicted_answers(windows, outputs, **{**SETTINGS, "version_2": True})
    assert (first.null_odds, second.null_odds) == (-1.5, 0.25)


def independent(start_peaks, end_peaks):
    logits = np.full([2, 3, 9], LOW, np.float32)
    for name, peaks in enumerate((start_peaks, end_peaks)):
        for (row, position), value in peaks.items():
            logits[name, row, position] = value
    return {"start_logits": logits[0], "end_logits": logits[1]}


def test_without_a_classifier_null_odds_compare_cls_with_the_best_span(windows):
    starts = {(0, 3): 4.0, (0, 0): 1.0, (1, 0): 0.5, (2, 0): 2.0, (2, 4): 1.0}
    ends = {(0, 4): 2.0, (0, 0): 1.5, (1, 0): 0.25, (2, 0): 3.0, (2, 5): 1.0}
    first, second = predicted_answers(windows, independent(starts, ends), **{**SETTINGS, "version_2": True})
    assert (first.text, first.null_odds) == ("A  b", 0.75 - 6.0)
    assert (second.text, second.null_odds) == ("é h", 5.0 - 2.0)


def test_logits_beyond_a_window_are_ignored(windows):
    outputs = independent({(2, 3): -5.0, (2, 8): 0.0, (2, 7): 0.0}, {(2, 3): -5.0, (2, 8): 0.0, (2, 7): 0.0})
    _, second = predicted_answers(windows, outputs, **{**SETTINGS, "n_best_size": 1})
    assert windows.features.lengths[2] == 7
    assert second.text == "A"


def test_a_question_without_a_window_has_no_answer(tokenizer):
    questions = [Question("q1", "?", " ", (), False), Question("q2", "?", "a", (), False)]
    windows = squad_windows(questions, tokenizer, max_seq_length=9, doc_stride=3, max_query_length=2)
    outputs = joint([(3, -1.0, (3, 3), (-1.0, -1.0))] * 2) | {"answerable_logits": np.array([-3.0], np.float32)}
    first, second = predicted_answers(windows, outputs, **{**SETTINGS, "version_2": True})
    assert (first.text, second.text) == ("", "a")
    assert first.null_odds > 1000.0


def test_the_threshold_empties_predictions_but_not_the_n_best_list(windows):
    outputs = joint([(3, -1.0, (4, 3), (-0.5, -1.5))] * 2, NOTHING, [(3, -1.0, (3, 4), (-0.5, -1.0))] * 2)
    outputs["answerable_logits"] = np.array([-2.0, -2.0, -1.5], np.float32)
    answers = predicted_answers(windows, outputs, **{**SETTINGS, "version_2": True})
    assert Answers(answers, None).texts == {"q1": "A  b", "q2": "A"}
    assert Answers(answers, -2.0).texts == {"q1": "A  b", "q2": ""}
    assert list(answers[1].spans[0][:3]) == ["A", 0, 1]


def test_only_the_best_span_of_equal_texts_is_listed_for_each_question():
    question = tf.constant([0, 0, 0, 1], tf.int64)
    start, end = tf.constant([0, 3, 6, 0], tf.int64), tf.constant([2, 5, 7, 2], tf.int64)
    scores = tf.constant([-2.0, -0.5, -1.5, -4.0]), tf.constant([-1.0, -0.5, -0.5, -1.0])
    texts = span_texts(tf.constant(["ab ab é", "ab", "no span"]), question, start, end)
    listed = n_best(Spans(question, start, end, *scores), texts, 3, n_best_size=3)
    listed = {name: values.numpy().tolist() for name, values in listed.items()}
    assert listed["text"] == [[b"ab", "é".encode(), b""], [b"ab", b"", b""], [b""] * 3]
    assert listed["start"] == [[3, 6, 0], [0, 0, 0], [0, 0, 0]]
    assert listed["end"] == [[5, 7, 0], [2, 0, 0], [0, 0, 0]]
    assert listed["num_answers"] == [2, 1, 0]
    lowest = tf.float32.min
    assert listed["score"] == [[-1.0, -2.0, lowest], [-5.0, lowest, lowest], [lowest] * 3]
    share = 1 / (1 + np.exp(-1.0))
    np.testing.assert_allclose(listed["probability"], [[share, 1 - share, 0], [1, 0, 0], [0] * 3], atol=1e-7)
    # An invalid byte counts as a character.
    texts = span_texts(tf.constant([b"a\xffbc"]), *(tf.constant([value], tf.int64) for value in (0, 1, 3)))
    assert texts.numpy().tolist() == ["\ufffdb".encode()]


def test_questions_of_a_test_file_are_answered_with_the_null_threshold_of_the_dev_set(tokenizer):
    config = toy_finetuning_config({"kind": "question_answering", "version_2": True, "max_query_length": 4})
    examples = question_examples([Question("q1", "?", "", (), True)], "test.json", is_labelled=True)
    data = TaskData(config, tokenizer, None, {"test": examples})
    assert data.evaluated({}).metrics["null_threshold"] != -2.5  # the one with the highest F1
    evaluated = data.evaluated({}, config.task.model_copy(update={"null_threshold": -2.5}))
    assert evaluated.metrics["null_threshold"] == evaluated.task.null_threshold == -2.5
    names = {"predictions_test.json", "nbest_test.json", "null_odds_test.json"}
    assert set(evaluated.files()) == names
