"""Questions of SQuAD 1.1 and 2.0, from the official JSON, Hugging Face's parquet files, or JSON lines."""

import os
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table, read_table, read_text
from electra_tf.tasks.finetune.text_examples import ids_of

SQUAD_TASKS = ("squad_v1", "squad_v2")


class Answer(NamedTuple):
    text: str
    start: int  # the index of its first character (Unicode code point) in the context


class Question(NamedTuple):
    """A question about a paragraph, its context."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]  # by several people; empty if the question is impossible or unlabelled
    is_impossible: bool


class _JsonAnswer(BaseModel):
    text: str
    answer_start: int


class _JsonQuestion(BaseModel):
    id: Annotated[str, Field(coerce_numbers_to_str=True)]
    question: str
    answers: list[_JsonAnswer] = []
    is_impossible: bool = False


class _JsonParagraph(BaseModel):
    context: str
    qas: list[_JsonQuestion]


class _JsonArticle(BaseModel):
    paragraphs: list[_JsonParagraph]


class _JsonFile(BaseModel):
    """The layout of train-v2.0.json."""

    data: list[_JsonArticle]


def read_squad(path: str | os.PathLike) -> list[Question]:
    """Reads the questions of a file, in their order. Answers may be missing.

    Args:
        path: a `.parquet` file with the columns id, question, context and answers {text, answer_start} of
            rajpurkar/squad; or a JSON file in the layout of train-v2.0.json.
    Raises: UserError: the file cannot be read, has another layout or no question, or an id occurs twice.
    """
    is_table = isinstance(path, Table) or os.fspath(path).endswith(".parquet")
    questions = _questions_of_parquet(read_table(path)) if is_table else _questions_of_json(path)
    if not questions:
        raise UserError(f"{path} has no question")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(f"{path} has the question id {question.id!r} twice; predictions need unique ids")
        seen.add(question.id)
    return questions


def read_questions(path: str | os.PathLike) -> list[Question]:
    """Reads questions to be answered: a file of `read_squad`, or `.jsonl` with `question`, `context` and possibly `id`.

    Raises: UserError: see `read_squad`.
    """
    if not (isinstance(path, Table) or os.fspath(path).endswith(".jsonl")):
        return read_squad(path)
    table = read_table(path)
    columns = ids_of(table), table.texts("question"), table.texts("context")
    return [Question(name, question, context, (), False) for name, question, context in zip(*columns, strict=True)]


def read_json_as(kind: type, path: str | os.PathLike, expected: str) -> Any:
    """Reads a JSON file and checks its type by pydantic. Raises: UserError: its content is not as `expected`."""
    try:
        return TypeAdapter(kind).validate_json(read_text(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: {place}: {first['msg']}; expected {expected}") from None


def _questions_of_json(path: str | os.PathLike) -> list[Question]:
    file = read_json_as(_JsonFile, path, "the layout of SQuAD's train-v2.0.json")
    return [
        Question(
            qa.id,
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
    contexts: dict[str, str] = {}
    questions = []
    columns = ids_of(table), *map(table.texts, ("question", "context")), table.column("answers")
    for row, (name, question, context, value) in enumerate(zip(*columns, strict=True)):
        try:
            if isinstance(value, Mapping):  # lists by name, else the official layout: a list of objects
                pairs = zip(value["text"], value["answer_start"], strict=True)
            else:
                pairs = [(answer["text"], answer["answer_start"]) for answer in value]
            answers = tuple(Answer(text, start) for text, start in pairs)
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{table.where(row)} has {value!r} as 'answers', expected lists of 'text' and 'answer_start'"
            ) from None
        # In this layout, a question without answers is impossible.
        questions.append(Question(name, question, contexts.setdefault(context, context), answers, not answers))
    return questions
