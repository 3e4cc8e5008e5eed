"""Questions of all layouts, answers from model outputs on contexts of letters, and their scores by hand."""

import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.kinds import squad
from electra_tf.tasks.finetune.kinds.answers import Answers, Spans, n_best, predicted_answers, span_texts
from electra_tf.tasks.finetune.kinds.question_answering import question_examples
from electra_tf.tasks.finetune.kinds.squad import Answer, Question
from electra_tf.tasks.finetune.kinds.squad_features import squad_windows
from electra_tf.text.vocabulary import SPECIAL_TOKENS, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer
from tests.toy import toy_finetuning_config

CONTEXT = "The red fox ran."
RED_FOX = Question("q1", "Who ran?", CONTEXT, (Answer("red fox", 4), Answer("fox", 8)), False)
NOTHING_RAN = Question("q1", "Who ran?", CONTEXT, (), True)
IMPOSSIBLE = Question("q2", "Who sat?", CONTEXT, (), True)
OFFICIAL = [{"text": "red fox", "answer_start": 4}, {"text": "fox", "answer_start": 8}]


def squad_file(tmp_path, qas):
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"title": "Foxes", "paragraphs": [{"context": CONTEXT, "qas": qas}]}]}))
    return path


def qa(**changed):
    return {"id": "q1", "question": "Who ran?", "answers": OFFICIAL, **changed}


def in_memory(answers, name="q1") -> Table:
    columns = {"id": [name], "context": [CONTEXT], "question": ["Who ran?"], "answers": [answers]}
    return Table("train", columns, [7])


def test_json_parquet_and_tables_give_the_same_questions(write_parquet, tmp_path):
    second = {"id": "q2", "question": "Who sat?", "answers": [], "is_impossible": True, "plausible_answers": []}
    path = squad_file(tmp_path, [qa(), second])
    assert squad.read_squad(path) == [RED_FOX, IMPOSSIBLE]
    columns = {"id": ["q1", "q2"], "context": [CONTEXT, CONTEXT], "question": ["Who ran?", "Who sat?"]}
    answers = [{"text": ["red fox", "fox"], "answer_start": [4, 8]}, {"text": [], "answer_start": []}]
    questions = squad.read_squad(write_parquet("dev.parquet", {**columns, "answers": answers}))
    assert questions == [RED_FOX, IMPOSSIBLE]
    assert questions[0].context is questions[1].context
    assert squad.read_squad(in_memory(OFFICIAL)) == [RED_FOX]


def test_an_id_may_be_a_number_and_questions_may_lack_answers(tmp_path):
    for source in (squad_file(tmp_path, [qa(id=7)]), in_memory({"text": ["red fox"], "answer_start": [4.0]}, 7)):
        assert [question.id for question in squad.read_squad(source)] == ["7"]
    [question] = squad.read_squad(squad_file(tmp_path, [{"id": "q3", "question": "Why?"}]))
    assert (question.answers, question.is_impossible) == ((), False)
    [found] = squad.read_squad(squad_file(tmp_path, [qa(answers=[{"text": "fox"}])]))  # without its place
    assert (found.answers, found.is_impossible) == ((Answer("fox", -1),), False)


@pytest.mark.parametrize("answers", [[{"text": ""}], [{"text": " \n", "answer_start": 0}], [{"text": None}]])
def test_an_answer_without_text_is_no_answer(tmp_path, answers):
    for flag in ({}, {"is_impossible": None}, {"is_impossible": True}):
        assert squad.read_squad(squad_file(tmp_path, [qa(answers=answers, **flag)])) == [NOTHING_RAN]
    assert squad.read_squad(squad_file(tmp_path, [qa(answers=[*OFFICIAL, *answers])])) == [RED_FOX]
    of_table = {"text": [answers[0]["text"]], "answer_start": [-1]}
    for each in (None, [], {"text": [], "answer_start": []}, of_table):
        assert squad.read_squad(in_memory(each)) == [NOTHING_RAN]


def test_the_answers_of_an_impossible_question_are_placeholders(tmp_path):
    answers = [{"text": "no answer", "answer_start": -1}]
    assert squad.read_squad(squad_file(tmp_path, [qa(answers=answers, is_impossible=True)])) == [NOTHING_RAN]
    for flag in (True, False):
        table = in_memory(answers)
        [found] = squad.read_squad(Table("train", table.columns | {"is_impossible": [flag]}, [7]))
        assert found.is_impossible is flag


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "data.0.paragraphs.0.context"),
        ([qa(answers=[{"answer_start": 8}])], "qas.0.answers.0.text"),
        ([qa(), qa()], "'q1'"),
        ([], "no questions"),
    ],
)
def test_a_file_of_another_layout_and_a_repeated_question_are_refused_with_the_place(tmp_path, content, message):
    path = squad_file(tmp_path, content)
    if isinstance(content, str):
        path.write_text(content)
    with pytest.raises(UserError, match=rf"dev\.json.*{message}"):
        squad.read_squad(path)


def question(question_id, *answers):
    return Question(question_id, "?", "", tuple(Answer(text, 0) for text in answers), not answers)


FOX, DOG, NOTHING = question("fox", "the red fox", "fox"), question("dog", "dog"), question("nothing")


def test_the_best_answer_is_scored_with_the_keys_of_the_official_scripts_in_their_order():
    scores = squad.squad_v1_scores([FOX, DOG], {"fox": "Fox.", "dog": ""})
    assert list(scores.items()) == [("exact_match", 50.0), ("f1", 50.0)]
    scores = squad.squad_v2_scores([FOX, DOG, NOTHING], {"fox": "red fox", "dog": "", "nothing": ""})
    assert list(scores.items()) == [
        *(("exact", 200 / 3), ("f1", 200 / 3), ("total", 3)),
        *(("HasAns_exact", 50.0), ("HasAns_f1", 50.0), ("HasAns_total", 2)),
        *(("NoAns_exact", 100.0), ("NoAns_f1", 100.0), ("NoAns_total", 1)),
    ]


@pytest.mark.parametrize(
    ("predictions", "odds", "chosen", "best"),
    [
        # All are wrong, so no answer is best. The official threshold begins at 0, the chosen one below all odds.
        ({"fox": "cat", "nothing": "cat"}, {"fox": -3.0, "nothing": -5.0}, -6.0, (50.0, 0.0)),
        ({"fox": "fox", "dog": "dog", "nothing": "fox"}, {"fox": -4.0, "dog": -2.5, "nothing": -2.0}, -2.25, None),
        ({"fox": "fox", "dog": "dog"}, {"fox": -4.0, "dog": -2.5}, -1.5, None),  # all are right
        # Equal odds are not separated, as the official script does.
        ({"fox": "fox", "nothing": "fox"}, {"fox": -4.0, "nothing": -4.0}, -5.0, (100.0, -4.0)),
    ],
)
def test_the_chosen_threshold_separates_answers_by_their_odds(predictions, odds, chosen, best):
    questions = [each for each in (FOX, DOG, NOTHING) if each.id in predictions]
    assert squad.choose_null_threshold(questions, predictions, odds) == chosen
    if best is not None:
        scores = squad.squad_v2_scores(questions, predictions, odds)
        assert (scores["best_f1"], scores["best_f1_thresh"]) == best


@pytest.mark.parametrize(
    ("language", "truth", "prediction", "exact", "f1"),
    [
        ("characters", "北京故宫博物院", "故宫博物院", 0, 200 * 5 / 12),
        ("characters", "《红楼梦》", "红楼梦。", 100, 100),
        ("characters", "一九九五年", "一九九六年", 0, 60),  # the longest common stretch, not all common characters
        ("characters", "2008年 ABC", "2008 年abc", 100, 100),
        ("characters", "iPhone 4手机", "手机", 0, 200 * 2 / 6),  # words of Latin letters and numbers count once
        ("characters", "กรุงเทพ", "กรุง", 0, 200 * 4 / 11),
        ("words", "„Der Rote Platz“", "der rote platz", 100, 100),
        ("words", "l’« Étoile »", "étoile", 0, 200 / 3),
        ("words", "«Война и мир»", "война и мир", 100, 100),
        ("words", "a der an", "der", 0, 50),  # English articles are words
        ("en", "“The fox”", "fox", 0, 0),  # exactly as the official script
    ],
)
def test_answers_are_compared_by_language(language, truth, prediction, exact, f1):
    asked = [question("q", truth)]
    scores = squad.squad_v1_scores(asked, {"q": prediction}, language)
    assert scores == {"exact_match": exact, "f1": pytest.approx(f1)}
    assert squad.squad_v2_scores(asked, {"q": prediction}, language=language)["HasAns_f1"] == scores["f1"]


def test_of_several_answers_the_best_counts_and_the_null_threshold_follows_the_scores_of_the_language():
    asked = [question("q", "上海市", "北京市海淀区", "北京市"), question("n")]
    scores = squad.squad_v2_scores(asked, {"q": "北京市海", "n": "北京"}, language="characters")
    assert (scores["HasAns_f1"], scores["NoAns_f1"]) == (pytest.approx(200 * 3 / 7), 0)
    asked = [question("q", "北京故宫博物院"), question("n")]
    predictions, odds = {"q": "故宫博物院", "n": "北京"}, {"q": -4.0, "n": -2.0}
    assert squad.choose_null_threshold(asked, predictions, odds) == -5.0  # no answer is worth it
    assert squad.choose_null_threshold(asked, predictions, odds, "characters") == -3.0


@pytest.mark.parametrize(
    ("asked", "context", "language"),
    [
        ("Who wrote 红楼梦?", "Cao Xueqin wrote 红楼梦, the Dream of the Red Chamber.", "en"),
        ("?", "", "en"),
        ("Angels?", "Gabriel, Michael.", "en"),
        ("谁写了红楼梦？", "曹雪芹写了《红楼梦》。", "characters"),
        ("誰が建てたか。", "東京タワーは1958年に竣工した。", "characters"),
        ("เมืองหลวงคืออะไร", "กรุงเทพมหานคร", "characters"),
        ("Wer schrieb „Faust“?", "Goethe war in Weimar der Autor von „Faust“ und las The Times.", "words"),
        ("दिल्ली कहाँ है?", "दिल्ली भारत में है।", "words"),
    ],
)
def test_the_language_is_that_of_the_file(asked, context, language):
    assert squad.answer_language([Question("q", asked, context, (), True)]) == language


LIMITS = {"version_2": False, "max_answer_length": 3, "n_best_size": 5}


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
    names = ("start_top_index", "start_top_log_probs", "end_top_index", "end_top_log_probs")
    columns = ([[beam[i] for beam in window] for window in spans_of_windows] for i in range(4))
    types = (np.int32, np.float32, np.int32, np.float32)
    return {name: np.array(*each) for name, *each in zip(names, columns, types, strict=True)}


NO_SPAN = [(0, 0.0, (0, 0), (0.0, 0.0)), (2, 0.0, (8, 8), (0.0, 0.0))]  # [CLS] and the question's [SEP]


def test_spans_are_cut_out_of_the_context_and_the_best_is_first(windows):
    outputs = joint([(3, -1.0, (4, 3), (-0.5, -1.5)), (4, -2.0, (5, 4), (-1.0, -3.0))], NO_SPAN, NO_SPAN)
    first, second = predicted_answers(windows, outputs, **LIMITS)
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
    first, _ = predicted_answers(windows, joint(beams, after, NO_SPAN), **LIMITS)
    assert first.spans == ()


def test_spans_with_equal_scores_keep_the_order_of_windows_and_beams(windows):
    beams = [(5, -1.0, (6, 5), (-0.5, -0.5)), (3, -1.0, (3, 4), (-0.5, -0.5))]
    after = [(5, -1.0, (5, 6), (-0.5, -0.5)), (6, -2.0, (7, 6), (-0.5, -0.5))]
    first, _ = predicted_answers(windows, joint(beams, after, NO_SPAN), **LIMITS)
    assert [span.text for span in first.spans] == ["c d", "c", "A", "A  b", "f"]


def independent(start_peaks, end_peaks):
    logits = np.full([2, 3, 9], -1000.0, np.float32)
    for name, peaks in enumerate((start_peaks, end_peaks)):
        for (row, position), value in peaks.items():
            logits[name, row, position] = value
    return {"start_logits": logits[0], "end_logits": logits[1]}


def test_without_a_classifier_null_odds_compare_cls_with_the_best_span(windows):
    starts = {(0, 3): 4.0, (0, 0): 1.0, (1, 0): 0.5, (2, 0): 2.0, (2, 4): 1.0}
    ends = {(0, 4): 2.0, (0, 0): 1.5, (1, 0): 0.25, (2, 0): 3.0, (2, 5): 1.0}
    first, second = predicted_answers(windows, independent(starts, ends), **{**LIMITS, "version_2": True})
    assert (first.text, first.null_odds) == ("A  b", 0.75 - 6.0)
    assert (second.text, second.null_odds) == ("é h", 5.0 - 2.0)


def test_logits_beyond_a_window_are_ignored(windows):
    outputs = independent({(2, 3): -5.0, (2, 8): 0.0, (2, 7): 0.0}, {(2, 3): -5.0, (2, 8): 0.0, (2, 7): 0.0})
    _, second = predicted_answers(windows, outputs, **{**LIMITS, "n_best_size": 1})
    assert windows.features.lengths[2] == 7
    assert second.text == "A"


def test_a_question_without_a_window_has_no_answer(tokenizer):
    questions = [Question("q1", "?", " ", (), False), Question("q2", "?", "a", (), False)]
    windows = squad_windows(questions, tokenizer, max_seq_length=9, doc_stride=3, max_query_length=2)
    outputs = joint([(3, -1.0, (3, 3), (-1.0, -1.0))] * 2) | {"answerable_logits": np.array([-3.0], np.float32)}
    first, second = predicted_answers(windows, outputs, **{**LIMITS, "version_2": True})
    assert (first.text, second.text) == ("", "a")
    assert first.null_odds > 1000.0


def test_null_odds_are_the_smallest_of_the_windows_and_the_threshold_empties_all_but_the_n_best_list(windows):
    outputs = joint([(3, -1.0, (4, 3), (-0.5, -1.5))] * 2, NO_SPAN, [(3, -1.0, (3, 4), (-0.5, -1.0))] * 2)
    outputs["answerable_logits"] = np.array([2.5, -2.0, -1.5], np.float32)
    answers = predicted_answers(windows, outputs, **{**LIMITS, "version_2": True})
    assert [answer.null_odds for answer in answers] == [-2.0, -1.5]
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
    assert data.evaluated({}).metrics["null_threshold"] == 999_999.0  # the one with the highest F1
    evaluated = data.evaluated({}, config.task.model_copy(update={"null_threshold": -2.5}))
    assert evaluated.metrics["null_threshold"] == evaluated.task.null_threshold == -2.5
    assert set(evaluated.files()) == {"predictions_test.json", "nbest_test.json", "null_odds_test.json"}
