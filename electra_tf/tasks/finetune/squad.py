"""SQuAD 1.1 and 2.0: questions from the official JSON layout, Hugging Face's parquet layout, or JSON lines."""

import os
from typing import NamedTuple

from pydantic import BaseModel, ValidationError

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table, read_bytes, read_table
from electra_tf.tasks.finetune.text_examples import ids_of

SQUAD_TASKS = ("squad_v1", "squad_v2")


class Answer(NamedTuple):
    text: str
    start: int  # its first character in the context, in Unicode code points


class Question(NamedTuple):
    """One question with its paragraph. The questions of a paragraph share one `context` object."""

    id: str
    title: str
    question: str
    context: str
    answers: tuple[Answer, ...]  # several people's; none if the question is impossible or the file is for prediction
    is_impossible: bool


class _JsonAnswer(BaseModel):
    text: str
    answer_start: int


class _JsonQuestion(BaseModel):
    id: str
    question: str
    answers: list[_JsonAnswer] = []
    is_impossible: bool = False


class _JsonParagraph(BaseModel):
    context: str
    qas: list[_JsonQuestion]


class _JsonArticle(BaseModel):
    title: str = ""
    paragraphs: list[_JsonParagraph]


class _JsonFile(BaseModel):
    """The official layout, that of train-v2.0.json."""

    data: list[_JsonArticle]


def read_squad(path: str | os.PathLike) -> list[Question]:
    """Reads the questions of a file, in its order. Answers may be missing.

    Args:
        path: a `.parquet` file with the columns id, question, context and answers {text, answer_start} of
            rajpurkar/squad; or a JSON file in the layout of train-v2.0.json.
    Raises: UserError: the file cannot be read, has another layout, repeats an id or has no question.
    """
    is_parquet = os.fspath(path).endswith(".parquet")
    questions = _questions_of_parquet(read_table(path)) if is_parquet else _questions_of_json(path)
    if not questions:
        raise UserError(f"{path} has no question")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(f"{path} has the question id {question.id!r} twice; predictions need unique ids")
        seen.add(question.id)
    return questions


def read_questions(path: str | os.PathLike) -> list[Question]:
    """Reads questions to be answered: a file of `read_squad`, or `.jsonl` with `question`, `context` and maybe `id`.

    Raises: UserError: see `read_squad`.
    """
    if not os.fspath(path).endswith(".jsonl"):
        return read_squad(path)
    table = read_table(path)
    columns = ids_of(table), table.texts("question"), table.texts("context")
    return [Question(name, "", question, context, (), False) for name, question, context in zip(*columns, strict=True)]


def _questions_of_json(path: str | os.PathLike) -> list[Question]:
    try:
        file = _JsonFile.model_validate_json(read_bytes(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: {place}: {first['msg']}; expected the layout of SQuAD's train-v2.0.json") from None
    return [
        Question(
            qa.id,
            article.title,
            qa.question,
            paragraph.context,
            tuple(Answer(answer.text, answer.answer_start) for answer in qa.answers),
            qa.is_impossible,
        )
        for article in file.data
        for paragraph in article.paragraphs
        for qa in paragraph.qas
    ]


def _questions_of_parquet(table: Table) -> list[Question]:
    names = ("id", "question", "context")
    contexts: dict[str, str] = {}
    questions = []
    for row, (name, question, context) in enumerate(zip(*map(table.texts, names), strict=True)):
        answers = ()
        if "answers" in table.columns:
            found = table.columns["answers"][row]
            answers = tuple(map(Answer, found["text"], found["answer_start"]))
        title = table.columns["title"][row] if "title" in table.columns else ""
        # The layout has no flag of its own: an impossible question is one without an answer.
        is_impossible = "answers" in table.columns and not answers
        questions.append(
            Question(name, title or "", question, contexts.setdefault(context, context), answers, is_impossible)
        )
    return questions
