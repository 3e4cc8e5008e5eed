"""Questions of SQuAD 1.1 and 2.0 from the official JSON, Hugging Face's parquet files or JSON lines, and their scores.

The scores are those of the official scripts, which tf-models-official has.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0
from pydantic import BaseModel, Field, ValidationError

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table, read_table, read_text
from electra_tf.tasks.finetune.examples import ids_of


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


def _questions_of_json(path: str | os.PathLike) -> list[Question]:
    try:
        file = _JsonFile.model_validate_json(read_text(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: {place}: {first['msg']}; expected the layout of SQuAD's train-v2.0.json") from None
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


def squad_v1_scores(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """Returns `exact_match` and `f1` of SQuAD 1.1, in percent. Raises: UserError: a question has no answer."""
    for question in questions:
        if not question.answers:
            raise UserError(f"question {question.id} has no answer; give --task=squad_v2")
    scores = squad_evaluate_v1_1.evaluate(_dataset(questions), predictions)
    return {"exact_match": 100.0 * scores["exact_match"], "f1": 100.0 * scores["final_f1"]}


def squad_v2_scores(
    questions: Sequence[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Returns the scores of SQuAD 2.0; with null odds also best_exact, best_exact_thresh, best_f1 and best_f1_thresh.

    An answer with null odds above 1.0 counts as empty; the script is meant for probabilities. It also assumes that the
    threshold 0.0 empties all answers. This is wrong for odds below 0, such as logits: use `choose_null_threshold`
    instead of a `best_*_thresh` of 0.0.
    """
    odds = {question.id: 0.0 if null_odds is None else null_odds[question.id] for question in questions}
    scores = squad_evaluate_v2_0.evaluate(_dataset(questions), predictions, odds)
    # The official names. The averages of precision are not of the official script without pictures.
    names = {name: name.replace("final_", "best_") for name in scores if not name.startswith("pr_")}
    return {ours: scores[name] for name, ours in names.items() if null_odds is not None or name == ours}


def choose_null_threshold(
    questions: Sequence[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> float:
    """Returns the threshold on null odds with the highest F1 on these questions; the lowest of equal ones.

    Answers with larger null odds are replaced by "". The script's own best threshold may lie between equal odds.

    Args:
        predictions: the answers before any of them is replaced by "".
        null_odds: any numbers, probabilities or logits.
    Returns: the middle between the odds of the last answered question and of the next one, so that rounding on another
        device changes no answer; the lowest odds minus 1 if no question should be answered, the highest plus 1 if all
        should.
    """
    gains = [squad_v2_scores([each], predictions)["f1"] / 100.0 - (not each.answers) for each in questions]
    odds, place = np.unique([null_odds[question.id] for question in questions], return_inverse=True)
    thresholds = [odds[0] - 1.0, *(odds[:-1] + odds[1:]) / 2, odds[-1] + 1.0]
    return float(thresholds[np.argmax([0.0, *np.cumsum(np.bincount(place, gains))])])


def _dataset(questions: Sequence[Question]) -> list[dict]:
    questions = [{"id": each.id, "answers": [answer._asdict() for answer in each.answers]} for each in questions]
    return [{"paragraphs": [{"qas": questions}]}]
