"""SQuAD's questions from all layouts, mistakes in them, and scores of answers by hand."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.squad import (
    Answer,
    Question,
    choose_null_threshold,
    read_questions,
    read_squad,
    squad_v1_scores,
    squad_v2_scores,
)

CONTEXT = "The red fox ran."
RED_FOX = Question("q1", "Who ran?", CONTEXT, (Answer("red fox", 4), Answer("fox", 8)), False)
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
    for source in (squad_file(tmp_path, [qa(id=7)]), in_memory({"text": ["red fox"], "answer_start": [4]}, 7)):
        assert [question.id for question in read_squad(source)] == ["7"]
    [question] = read_squad(squad_file(tmp_path, [{"id": "q3", "question": "Why?"}]))
    assert (question.answers, question.is_impossible) == ((), False)


@pytest.mark.parametrize("answers", [None, [{"text": "fox"}], {"text": ["fox"], "answer_start": []}])
def test_answers_of_another_layout_are_refused_with_their_row(answers):
    with pytest.raises(UserError, match="train:7 has .* as 'answers', expected lists of 'text' and 'answer_start'"):
        read_squad(in_memory(answers))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "data.0.paragraphs.0.context"),
        ('{"data": []}', "no question"),
        ([qa(answers=[{"text": "fox"}])], "qas.0.answers.0.answer_start"),
        ([qa(), qa()], "'q1'"),
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


def test_a_question_without_an_answer_is_refused_in_version_1():
    with pytest.raises(UserError, match="nothing.*squad_v2"):
        squad_v1_scores([FOX, NOTHING], {"fox": "fox"})
