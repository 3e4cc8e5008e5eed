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
    score_files,
    squad_v1_scores,
    squad_v2_scores,
)

CONTEXT = "The red fox ran."
RED_FOX = Question("q1", "Who ran?", CONTEXT, (Answer("red fox", 4), Answer("fox", 8)), False)
IMPOSSIBLE = Question("q2", "Who sat?", CONTEXT, (), True)


def squad_file(tmp_path, qas, name="dev.json"):
    path = tmp_path / name
    path.write_text(
        json.dumps({"version": "v2.0", "data": [{"title": "Foxes", "paragraphs": [{"context": CONTEXT, "qas": qas}]}]})
    )
    return path


def qa(**changed):
    return {"id": "q1", "question": "Who ran?", "answers": [{"text": "red fox", "answer_start": 4}], **changed}


def test_questions_of_a_json_file_keep_its_order(tmp_path):
    answers = [{"text": "red fox", "answer_start": 4}, {"text": "fox", "answer_start": 8}]
    second = {"id": "q2", "question": "Who sat?", "answers": [], "is_impossible": True, "plausible_answers": []}
    assert read_squad(squad_file(tmp_path, [qa(answers=answers), second])) == [RED_FOX, IMPOSSIBLE]


def test_an_id_may_be_a_number(tmp_path):
    answers = {"text": ["red fox"], "answer_start": [4]}
    columns = {"id": [7], "context": [CONTEXT], "question": ["Who ran?"], "answers": [answers]}
    for source in (squad_file(tmp_path, [qa(id=7)]), Table("train", columns, [1])):
        assert [question.id for question in read_squad(source)] == ["7"]


def test_questions_may_lack_answers(tmp_path):
    [question] = read_squad(squad_file(tmp_path, [{"id": "q3", "question": "Why?"}]))
    assert (question.answers, question.is_impossible) == ((), False)


def test_a_parquet_file_gives_the_same_questions(tmp_path):
    table = pyarrow.table(
        {
            "id": ["q1", "q2"],
            "context": [CONTEXT, CONTEXT],
            "question": ["Who ran?", "Who sat?"],
            "answers": [{"text": ["red fox", "fox"], "answer_start": [4, 8]}, {"text": [], "answer_start": []}],
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "dev.parquet")
    questions = read_squad(tmp_path / "dev.parquet")
    assert questions == [RED_FOX, IMPOSSIBLE]
    assert questions[0].context is questions[1].context


def in_memory(answers) -> Table:
    columns = {"id": ["q1"], "context": [CONTEXT], "question": ["Who ran?"], "answers": [answers]}
    return Table("train", columns, [7])


def test_a_table_may_have_the_answers_of_the_official_layout():
    answers = [{"text": "red fox", "answer_start": 4}, {"text": "fox", "answer_start": 8}]
    assert read_squad(in_memory(answers)) == [RED_FOX]


@pytest.mark.parametrize("answers", [None, [{"text": "fox"}], {"text": ["fox"], "answer_start": []}])
def test_answers_of_another_layout_are_refused_with_their_row(answers):
    with pytest.raises(UserError, match="train:7 has .* as 'answers', expected lists of 'text' and 'answer_start'"):
        read_squad(in_memory(answers))


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = squad_file(tmp_path, [qa()])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert [question.id for question in read_squad(path)] == ["q1"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [\n  {"title": }]}', "line 2"),
        ("[]", "the file"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "data.0.paragraphs.0.context"),
        ('{"data": []}', "no question"),
    ],
)
def test_a_file_of_another_layout_is_refused_with_the_place(tmp_path, content, message):
    path = tmp_path / "dev.json"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"dev\.json.*{message}"):
        read_squad(path)


@pytest.mark.parametrize(
    ("qas", "place"),
    [
        ([qa(answers=[{"text": "fox"}])], "qas.0.answers.0.answer_start"),
        ([qa(question=None)], "qas.0.question"),
        ([qa(), qa()], "'q1'"),
    ],
)
def test_an_incomplete_or_repeated_question_is_named(tmp_path, qas, place):
    with pytest.raises(UserError, match=place):
        read_squad(squad_file(tmp_path, qas))


def test_json_lines_without_ids_are_numbered(tmp_path):
    path = tmp_path / "new.jsonl"
    path.write_text('{"id": "a", "question": "Who?", "context": "A fox."}\n{"question": "Why?", "context": ""}\n')
    questions = [(each.id, each.question, each.context) for each in read_questions(path)]
    assert questions == [("a", "Who?", "A fox."), ("1", "Why?", "")]


@pytest.mark.parametrize("name", ["dev.parquet", "nothing.json"])
def test_an_unreadable_file_is_named(tmp_path, name):
    (tmp_path / "dev.parquet").write_text("{}")
    with pytest.raises(UserError, match=name):
        read_squad(tmp_path / name)


def question(question_id, *answers):
    return Question(question_id, "?", "", tuple(Answer(text, 0) for text in answers), not answers)


FOX, DOG, NOTHING = question("fox", "the red fox", "fox"), question("dog", "dog"), question("nothing")


def test_version_1_scores_the_best_answer_and_0_for_a_missing_prediction():
    scores = squad_v1_scores([FOX, DOG], {"fox": "Fox."})
    assert scores == {"exact_match": 50.0, "f1": 50.0}
    assert list(scores) == ["exact_match", "f1"]


def test_version_2_has_the_keys_of_the_official_script_in_its_order():
    scores = squad_v2_scores([FOX, DOG, NOTHING], {"fox": "red fox", "dog": "", "nothing": ""})
    assert list(scores.items()) == [
        ("exact", 200 / 3),
        ("f1", 200 / 3),
        ("total", 3),
        ("HasAns_exact", 50.0),
        ("HasAns_f1", 50.0),
        ("HasAns_total", 2),
        ("NoAns_exact", 100.0),
        ("NoAns_f1", 100.0),
        ("NoAns_total", 1),
    ]


def test_the_official_threshold_begins_at_0_and_the_chosen_one_below_all_odds():
    predictions = {"fox": "cat", "nothing": "cat"}  # all wrong, so no answer is best
    odds = {"fox": -3.0, "nothing": -5.0}
    assert squad_v2_scores([FOX, NOTHING], predictions, odds)["best_f1_thresh"] == 0.0
    assert choose_null_threshold([FOX, NOTHING], predictions, odds) == -6.0


def test_the_chosen_threshold_separates_answers_by_their_odds():
    predictions = {"fox": "fox", "dog": "dog", "nothing": "fox"}
    odds = {"fox": -4.0, "dog": -2.5, "nothing": -2.0}
    assert choose_null_threshold([FOX, DOG, NOTHING], predictions, odds) == -2.25


def test_the_chosen_threshold_is_above_all_odds_if_all_answers_are_right():
    odds = {"fox": -4.0, "dog": -2.5}
    assert choose_null_threshold([FOX, DOG], {"fox": "fox", "dog": "dog"}, odds) == -1.5


def test_equal_odds_are_not_separated():
    predictions = {"fox": "fox", "nothing": "fox"}
    odds = {"fox": -4.0, "nothing": -4.0}
    assert squad_v2_scores([FOX, NOTHING], predictions, odds)["best_f1"] == 100.0  # the official one
    assert choose_null_threshold([FOX, NOTHING], predictions, odds) == -5.0


def test_missing_predictions_and_odds_are_named():
    with pytest.raises(UserError, match="1 of 2 .*prediction.* dog"):
        squad_v2_scores([FOX, DOG], {"fox": "fox"})
    with pytest.raises(UserError, match="2 of 2 .*null odds.* fox"):
        squad_v2_scores([FOX, DOG], {"fox": "fox", "dog": "dog"}, {})


def test_version_1_refuses_a_question_without_an_answer():
    with pytest.raises(UserError, match="nothing.*squad_v2"):
        squad_v1_scores([FOX, NOTHING], {})


@pytest.fixture
def data_file(tmp_path):
    path = tmp_path / "dev.json"
    qas = [{"id": "fox", "question": "?", "answers": [{"text": "fox", "answer_start": 0}]}]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "fox", "qas": qas}]}]}))
    return path


def test_files_of_predictions_and_odds_are_scored(tmp_path, data_file):
    (tmp_path / "predictions.json").write_text('{"fox": "A fox"}')
    (tmp_path / "odds.json").write_text('{"fox": -1.5}')
    scores = score_files("squad_v2", data_file, tmp_path / "predictions.json", tmp_path / "odds.json")
    assert list(scores)[-4:] == ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]
    assert (scores["f1"], scores["best_f1_thresh"]) == (100.0, -1.5)


@pytest.mark.parametrize("num_lines", [1, 2])
def test_the_output_of_predict_is_scored(tmp_path, data_file, num_lines):
    lines = [{"id": key, "text": "A fox", "null_odds": None, "best_text": "A fox"} for key in ("fox", "other")]
    (tmp_path / "answers").write_text("".join(json.dumps(line) + "\n" for line in lines[:num_lines]))
    assert score_files("squad_v1", data_file, tmp_path / "answers") == {"exact_match": 100.0, "f1": 100.0}


def test_a_line_of_predictions_that_was_cut_off_is_named(tmp_path, data_file):
    (tmp_path / "answers").write_text('{"id": "fox", "text": "A fox"}\n{"id": "dog", "te')
    with pytest.raises(UserError, match="answers:2"):
        score_files("squad_v1", data_file, tmp_path / "answers")


def test_a_prediction_that_is_not_a_text_is_refused(tmp_path, data_file):
    (tmp_path / "predictions.json").write_text('{"fox": null}')
    with pytest.raises(UserError, match="predictions.json: fox"):
        score_files("squad_v1", data_file, tmp_path / "predictions.json")
