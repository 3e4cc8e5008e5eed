"""SQuAD files in both layouts, and what is said of broken ones."""

import json

import pytest

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.squad import Answer, Question, read_squad

CONTEXT = "The red fox ran."
RED_FOX = Question("q1", "Foxes", "Who ran?", CONTEXT, (Answer("red fox", 4), Answer("fox", 8)), False)
IMPOSSIBLE = Question("q2", "Foxes", "Who sat?", CONTEXT, (), True)


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
    found = read_squad(squad_file(tmp_path, [qa(answers=answers), second]))
    assert found == [RED_FOX, IMPOSSIBLE]


def test_a_file_for_prediction_needs_no_answers(tmp_path):
    [question] = read_squad(squad_file(tmp_path, [{"id": "q3", "question": "Why?"}]))
    assert (question.answers, question.is_impossible) == ((), False)


def test_the_parquet_layout_gives_the_same_questions(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table(
        {
            "id": ["q1", "q2"],
            "title": ["Foxes", "Foxes"],
            "context": [CONTEXT, CONTEXT],
            "question": ["Who ran?", "Who sat?"],
            "answers": [{"text": ["red fox", "fox"], "answer_start": [4, 8]}, {"text": [], "answer_start": []}],
        }
    )
    parquet.write_table(table, tmp_path / "dev.parquet")
    questions = read_squad(tmp_path / "dev.parquet")
    assert questions == [RED_FOX, IMPOSSIBLE]
    assert questions[0].context is questions[1].context


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [\n  {"title": }]}', r":2 is broken JSON at column 13: Expecting value"),
        ("", "is empty, expected JSON"),
        ("[]", "the file lacks the key 'data'; expected the layout"),
        ('{"data": {}}', "'data' of the file is '{}', expected a list"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "article 1, paragraph 1 lacks the key 'context'"),
        ('{"data": []}', "has no question"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "dev.json"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_squad(path)


@pytest.mark.parametrize(
    ("qas", "message"),
    [
        ([{"question": "Why?"}], "a question of article 1, paragraph 1 lacks the key 'id'"),
        ([qa(answers=[{"text": "fox"}])], "question q1 lacks the key 'answer_start'"),
        ([qa(question=None)], "'question' of question q1 is 'None', expected a string"),
        ([qa(), qa()], "has the question id 'q1' twice"),
    ],
)
def test_a_broken_question_is_named(tmp_path, qas, message):
    with pytest.raises(UserError, match=message):
        read_squad(squad_file(tmp_path, qas))


def test_a_file_that_is_not_parquet_is_refused(tmp_path):
    (tmp_path / "dev.parquet").write_text("{}")
    with pytest.raises(UserError, match=r"dev\.parquet is not a parquet file"):
        read_squad(tmp_path / "dev.parquet")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"answers": None}, "'answers' of row 2 lacks the key 'text'"),
        ({"answers": {"text": None, "answer_start": [4]}}, "'text' of 'answers' of row 2 is 'None', expected a list"),
        ({"question": None}, "'question' of row 2 is 'None', expected a string"),
        ({"context": None}, "'context' of row 2 is 'None', expected a string"),
    ],
)
def test_a_broken_row_of_parquet_is_named(tmp_path, changed, message):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    row = {"id": "q1", "context": CONTEXT, "question": "Who ran?", "answers": {"text": ["fox"], "answer_start": [8]}}
    parquet.write_table(pyarrow.Table.from_pylist([row, {**row, "id": "q2"} | changed]), tmp_path / "dev.parquet")
    with pytest.raises(UserError, match=rf"dev\.parquet: {message}"):
        read_squad(tmp_path / "dev.parquet")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*nothing\.json"):
        read_squad(tmp_path / "nothing.json")
