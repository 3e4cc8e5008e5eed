"""SQuAD's questions from all layouts, mistakes in them, and scores of answers by hand."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.kinds.squad import (
    Answer,
    Question,
    answer_language,
    choose_null_threshold,
    read_questions,
    read_squad,
    squad_v1_scores,
    squad_v2_scores,
)

CONTEXT = "The red fox ran."
RED_FOX = Question("q1", "Who ran?", CONTEXT, (Answer("red fox", 4), Answer("fox", 8)), False)
NOTHING_RAN = Question("q1", "Who ran?", CONTEXT, (), True)
IMPOSSIBLE = Question("q2", "Who sat?", CONTEXT, (), True)
OFFICIAL = [{"text": "red fox", "answer_start": 4}, {"text": "fox", "answer_start": 8}]


def squad_file(tmp_path, qas):
    path = tmp_path / "dev.json"
    paragraphs = [{"context": CONTEXT, "qas": qas}]
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "Foxes", "paragraphs": paragraphs}]}))
    return path


def qa(**changed):
    return {"id": "q1", "question": "Who ran?", "answers": OFFICIAL, **changed}


def in_memory(answers, name="q1") -> Table:
    columns = {"id": [name], "context": [CONTEXT], "question": ["Who ran?"], "answers": [answers]}
    return Table("train", columns, [7])


def test_json_parquet_and_tables_give_the_same_questions(tmp_path):
    second = {"id": "q2", "question": "Who sat?", "answers": [], "is_impossible": True, "plausible_answers": []}
    path = squad_file(tmp_path, [qa(), second])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_squad(path) == [RED_FOX, IMPOSSIBLE]
    columns = {"id": ["q1", "q2"], "context": [CONTEXT, CONTEXT], "question": ["Who ran?", "Who sat?"]}
    answers = [{"text": ["red fox", "fox"], "answer_start": [4, 8]}, {"text": [], "answer_start": []}]
    pyarrow.parquet.write_table(pyarrow.table({**columns, "answers": answers}), tmp_path / "dev.parquet")
    questions = read_squad(tmp_path / "dev.parquet")
    assert questions == [RED_FOX, IMPOSSIBLE]
    assert questions[0].context is questions[1].context
    assert read_squad(in_memory(OFFICIAL)) == [RED_FOX]


def test_an_id_may_be_a_number_and_questions_may_lack_answers(tmp_path):
    for source in (squad_file(tmp_path, [qa(id=7)]), in_memory({"text": ["red fox"], "answer_start": [4.0]}, 7)):
        assert [question.id for question in read_squad(source)] == ["7"]
    [question] = read_squad(squad_file(tmp_path, [{"id": "q3", "question": "Why?"}]))
    assert (question.answers, question.is_impossible) == ((), False)


NO_TEXT = [{"text": "", "answer_start": -1}]


@pytest.mark.parametrize(
    "answers", [NO_TEXT, [{"text": ""}], [{"text": " \n", "answer_start": 0}], [{"text": None, "answer_start": None}]]
)
def test_an_answer_without_text_is_no_answer_in_json(tmp_path, answers):
    for flag in ({}, {"is_impossible": None}, {"is_impossible": True}):
        assert read_squad(squad_file(tmp_path, [qa(answers=answers, **flag)])) == [NOTHING_RAN]
    assert read_squad(squad_file(tmp_path, [qa(answers=[*OFFICIAL, *answers])])) == [RED_FOX]


@pytest.mark.parametrize(
    "answers", [None, [], NO_TEXT, {"text": [], "answer_start": []}, {"text": [""], "answer_start": [-1]}]
)
def test_an_answer_without_text_is_no_answer_in_parquet(answers):
    assert read_squad(in_memory(answers)) == [NOTHING_RAN]


def test_the_answers_of_an_impossible_question_are_placeholders(tmp_path):
    answers = [{"text": "no answer", "answer_start": -1}]
    assert read_squad(squad_file(tmp_path, [qa(answers=answers, is_impossible=True)])) == [NOTHING_RAN]
    table = in_memory(answers)
    columns = {name: values * 2 for name, values in table.columns.items()} | {"id": ["q1", "q2"]}
    both = Table("train", columns | {"is_impossible": [True, False]}, [7, 8])
    assert [each.is_impossible for each in read_squad(both)] == [True, False]


def test_an_answer_without_its_place_is_one_to_score(tmp_path):
    [found] = read_squad(squad_file(tmp_path, [qa(answers=[{"text": "fox"}])]))
    assert (found.answers, found.is_impossible) == ((Answer("fox", -1),), False)


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
        read_squad(path)


def test_json_lines_without_ids_are_numbered(tmp_path):
    path = tmp_path / "new.jsonl"
    path.write_text('{"id": "a", "question": "Who?", "context": "A fox."}\n{"question": "Why?", "context": ""}\n')
    questions = [(each.id, each.question, each.context) for each in read_questions(path)]
    assert questions == [("a", "Who?", "A fox."), ("1", "Why?", "")]


def question(question_id, *answers):
    return Question(question_id, "?", "", tuple(Answer(text, 0) for text in answers), not answers)


FOX, DOG, NOTHING = question("fox", "the red fox", "fox"), question("dog", "dog"), question("nothing")


def test_version_1_scores_the_best_answer():
    scores = squad_v1_scores([FOX, DOG], {"fox": "Fox.", "dog": ""})
    assert list(scores.items()) == [("exact_match", 50.0), ("f1", 50.0)]


def test_version_2_has_the_keys_of_the_official_script_in_its_order():
    scores = squad_v2_scores([FOX, DOG, NOTHING], {"fox": "red fox", "dog": "", "nothing": ""})
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
    assert choose_null_threshold(questions, predictions, odds) == chosen
    if best is not None:
        scores = squad_v2_scores(questions, predictions, odds)
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
        ("characters", "東京タワー", "大阪", 0, 0),
        ("words", "„Der Rote Platz“", "der rote platz", 100, 100),
        ("words", "l’« Étoile »", "étoile", 0, 200 / 3),
        ("words", "«Война и мир»", "война и мир", 100, 100),
        ("words", "a der an", "der", 0, 50),  # English articles are words
        ("words", "القاهرة، مصر", "القاهرة", 0, 200 / 3),
        ("en", "“The fox”", "fox", 0, 0),  # exactly as the official script
        ("en", "北京故宫博物院", "故宫博物院", 0, 0),
    ],
)
def test_answers_are_compared_by_language(language, truth, prediction, exact, f1):
    asked = [question("q", truth)]
    scores = squad_v1_scores(asked, {"q": prediction}, language)
    assert scores == {"exact_match": exact, "f1": pytest.approx(f1)}
    assert squad_v2_scores(asked, {"q": prediction}, language=language)["HasAns_f1"] == scores["f1"]


def test_the_best_of_several_answers_counts_and_an_empty_one_for_no_answer():
    asked = [question("q", "上海市", "北京市海淀区", "北京市"), question("n")]
    scores = squad_v2_scores(asked, {"q": "北京市", "n": ""}, language="characters")
    assert (scores["exact"], scores["f1"]) == (100, 100)
    scores = squad_v2_scores(asked, {"q": "北京市海", "n": "北京"}, language="characters")
    assert (scores["HasAns_f1"], scores["NoAns_f1"]) == (pytest.approx(200 * 3 / 7), 0)


def test_the_null_threshold_follows_the_scores_of_the_language():
    asked = [question("q", "北京故宫博物院"), question("n")]
    predictions, odds = {"q": "故宫博物院", "n": "北京"}, {"q": -4.0, "n": -2.0}
    assert choose_null_threshold(asked, predictions, odds) == -5.0  # no answer is worth it
    assert choose_null_threshold(asked, predictions, odds, "characters") == -3.0


@pytest.mark.parametrize(
    ("asked", "context", "language"),
    [
        ("Who ran?", CONTEXT, "en"),
        ("Who wrote 红楼梦?", "Cao Xueqin wrote 红楼梦, the Dream of the Red Chamber.", "en"),
        ("?", "", "en"),
        ("Angels?", "Gabriel, Michael.", "en"),
        ("谁写了红楼梦？", "曹雪芹写了《红楼梦》。", "characters"),
        ("TensorFlow 是谁发布的？", "TensorFlow 2.20 由 Google 发布。", "characters"),
        ("誰が建てたか。", "東京タワーは1958年に竣工した。", "characters"),
        ("เมืองหลวงคืออะไร", "กรุงเทพมหานคร", "characters"),
        ("수도는 어디인가?", "대한민국의 수도는 서울이다.", "words"),
        ("Wer schrieb „Faust“?", "Goethe war in Weimar der Autor von „Faust“ und las The Times.", "words"),
        ("Où est Paris ?", "Paris est la capitale de la France.", "words"),
        ("ما هي عاصمة مصر؟", "القاهرة هي عاصمة مصر.", "words"),
        ("दिल्ली कहाँ है?", "दिल्ली भारत में है।", "words"),
    ],
)
def test_the_language_is_that_of_the_file(asked, context, language):
    assert answer_language([Question("q", asked, context, (), True)]) == language
