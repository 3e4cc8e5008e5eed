"""SQuAD 1.1 and 2.0: the questions of a file in the official JSON layout, or in Hugging Face's parquet layout."""

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf.config.errors import UserError, first_line
from electra_tf.data.table_files import json_objects, read_bytes

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


def read_squad(path: str | Path) -> list[Question]:
    """Reads the questions of a file, in its order.

    Args:
        path: a `.parquet` file with the columns id, question, context, answers {text, answer_start} of rajpurkar/squad,
            or a JSON file in the layout of train-v2.0.json; a path or a URL such as gs://. Answers may be left out.
    Raises: UserError: the file cannot be read, has another layout, lacks a key, repeats an id or has no question.
    """
    questions = _read_parquet(path) if str(path).endswith(".parquet") else _questions_of_json(read_json(path), path)
    if not questions:
        raise UserError(f"{path} has no question; give a SQuAD file with at least one")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(f"{path} has the question id {question.id!r} twice; predictions need unique ids")
        seen.add(question.id)
    return questions


def read_questions(path: str | Path) -> list[Question]:
    """Reads questions to be answered: a file of `read_squad`, or `.jsonl` with `question`, `context` and maybe `id`.

    Raises: UserError: as `read_squad`; a line that is no object or lacks a text.
    """
    if not str(path).endswith(".jsonl"):
        return read_squad(path)
    questions = []
    for line, value in json_objects(str(path)):
        for key in ("question", "context"):
            if not isinstance(value.get(key), str):
                raise UserError(f"{path}:{line} lacks {key!r}, expected a text; give question and context on each line")
        question_id = str(value.get("id", len(questions)))
        questions.append(Question(question_id, "", value["question"], value["context"], (), is_impossible=False))
    if not questions:
        raise UserError(f"{path} has no question; give at least one line")
    return questions


def read_json(path: str | Path) -> Any:
    """The content of a JSON file.

    Raises: UserError: the file cannot be read, is empty, or is not JSON; the message has line and column.
    """
    content = read_bytes(str(path))
    if not content.strip():
        raise UserError(f"{path} is empty, expected JSON")
    try:
        return json.loads(content)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 at byte {error.start}; convert it") from None
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}:{error.lineno} is broken JSON at column {error.colno}: {error.msg}; get the file again or mend it"
        ) from None


def _questions_of_json(content: Any, path: str | Path) -> list[Question]:
    questions = []
    for article_index, article in enumerate(_get(content, "data", list, path, "the file")):
        title = article.get("title", "") if isinstance(article, dict) else ""
        where = f"article {article_index + 1}"
        for index, paragraph in enumerate(_get(article, "paragraphs", list, path, where)):
            inside = f"{where}, paragraph {index + 1}"
            context = _get(paragraph, "context", str, path, inside)
            for qa in _get(paragraph, "qas", list, path, inside):
                questions.append(_question_of_json(qa, title, context, path, inside))
    return questions


def _question_of_json(qa: Any, title: str, context: str, path: str | Path, inside: str) -> Question:
    question_id = _get(qa, "id", str, path, f"a question of {inside}")
    where = f"question {question_id}"
    answers = _get(qa, "answers", list, path, where) if "answers" in qa else []
    return Question(
        id=question_id,
        title=title,
        question=_get(qa, "question", str, path, where),
        context=context,
        answers=tuple(
            Answer(_get(answer, "text", str, path, where), _get(answer, "answer_start", int, path, where))
            for answer in answers
        ),
        is_impossible=bool(qa.get("is_impossible", False)),
    )


_JSON_NAMES = {list: "a list", str: "a string", int: "an integer"}


def _get(parent: Any, key: str, kind: type, path: str | Path, where: str) -> Any:
    if not isinstance(parent, dict) or key not in parent:
        raise UserError(f"{path}: {where} lacks the key {key!r}; expected the layout of SQuAD's train-v2.0.json")
    if not isinstance(parent[key], kind):
        raise UserError(f"{path}: {key!r} of {where} is {str(parent[key])[:40]!r}, expected {_JSON_NAMES[kind]}")
    return parent[key]


def _read_parquet(path: str | Path) -> list[Question]:
    import pyarrow
    from pyarrow import parquet

    content = read_bytes(str(path))
    try:
        table = parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a parquet file: {first_line(error)}; get it again") from None
    if missing := {"id", "question", "context"} - set(table.column_names):
        raise UserError(
            f"{path} lacks the columns {', '.join(sorted(missing))}; it has {', '.join(table.column_names)};"
            " expected those of rajpurkar/squad"
        )
    contexts: dict[str, str] = {}
    has_answers = "answers" in table.column_names
    questions = []
    for number, row in enumerate(table.to_pylist(), start=1):
        where = f"row {number}"
        for key in ("id", "question", "context"):
            _get(row, key, str, path, where)
        answers = ()
        if has_answers:
            texts, starts = (
                _get(row["answers"], key, list, path, f"'answers' of {where}") for key in ("text", "answer_start")
            )
            answers = tuple(map(Answer, texts, starts))
        context = contexts.setdefault(row["context"], row["context"])
        # The layout has no flag of its own: an impossible question is one without an answer.
        impossible = has_answers and not answers
        questions.append(Question(row["id"], row.get("title") or "", row["question"], context, answers, impossible))
    return questions
