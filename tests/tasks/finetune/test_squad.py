"""SQuAD's files in all layouts, and broken ones."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.squad import Answer, Question, read_questions, read_squad

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
