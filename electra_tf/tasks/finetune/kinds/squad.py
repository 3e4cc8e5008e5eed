"""Questions of SQuAD 1.1 and 2.0 from the official JSON, Hugging Face's parquet files or JSON lines, and their scores.

The scores are those of the official scripts, which tf-models-official has. For other languages than English they get
the units that are compared: words without the punctuation of Unicode, as in MLQA's mlqa_evaluation_v1.py; or as in CMRC
2018's script, which also scores DRCD, characters, of which those in the longest common stretch of two answers count.
"""

import os
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0
from pydantic import BaseModel, Field, ValidationError

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table, read_table, read_text
from electra_tf.tasks.finetune.examples import DataFile, ids_of

AnswerLanguage = Literal["en", "words", "characters"]
# Of scripts without spaces: Thai to Myanmar, Khmer, kana, ideographs.
_CHARACTER = "[\u0e00-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_UNIT = re.compile(rf"{_CHARACTER}|(?:(?!{_CHARACTER})\S)+")
# A fifth of the words of SQuAD, and at least 8 % of each paragraph's with a question. Few are words of other languages.
_ENGLISH = re.compile("the|of|and|to|for|with|from|by|that|what|which|who|when|where|why|how|is|was|are|has|it|this")
_PUNCTUATION = {*string.punctuation, "～"}  # beside that of Unicode; CMRC's has this symbol


class Answer(NamedTuple):
    text: str
    start: int  # the index of its first character (Unicode code point) in the context


class Question(NamedTuple):
    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]  # by several people; empty if the question is impossible or unlabelled
    is_impossible: bool


class _JsonAnswer(BaseModel):
    text: str | None
    answer_start: int | None = None


class _JsonQuestion(BaseModel):
    id: Annotated[str, Field(coerce_numbers_to_str=True)]
    question: str
    answers: list[_JsonAnswer] | None = None
    is_impossible: bool | None = None


class _JsonParagraph(BaseModel):
    context: str
    qas: list[_JsonQuestion]


class _JsonArticle(BaseModel):
    paragraphs: list[_JsonParagraph]


class _JsonFile(BaseModel):
    data: list[_JsonArticle]


def read_squad(path: DataFile) -> list[Question]:
    """Reads the questions of a file, in their order. Answers may be missing.

    Args: path: `.parquet` with the columns of rajpurkar/squad; or JSON in the layout of train-v2.0.json.
    Raises: UserError: the file cannot be read, has another layout or no question, or an id occurs twice.
    """
    is_table = isinstance(path, Table) or os.fspath(path).endswith(".parquet")
    questions = _questions_of_parquet(read_table(path)) if is_table else _questions_of_json(path)
    if not questions:
        raise UserError(f"{path} has no questions; expected at least one")
    names = Counter(question.id for question in questions)
    if repeated := [name for name, count in names.items() if count > 1]:
        raise UserError(f"{path} has the question id {repeated[0]!r} twice; predictions need unique ids")
    return questions


def read_questions(path: DataFile) -> list[Question]:
    """Reads questions to be answered: a file of `read_squad`, or `.jsonl` with `question`, `context` and maybe `id`."""
    if not (isinstance(path, Table) or os.fspath(path).endswith(".jsonl")):
        return read_squad(path)
    table = read_table(path)
    columns = ids_of(table), table.texts("question"), table.texts("context")
    return [Question(name, question, context, (), False) for name, question, context in zip(*columns, strict=True)]


def _questions_of_json(path: DataFile) -> list[Question]:
    try:
        file = _JsonFile.model_validate_json(read_text(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: {place}: {first['msg']}; expected the layout of SQuAD's train-v2.0.json") from None
    questions = []
    for context, qa in ((each.context, qa) for article in file.data for each in article.paragraphs for qa in each.qas):
        pairs = [(answer.text, answer.answer_start) for answer in qa.answers or ()]
        questions.append(_question(qa.id, qa.question, context, pairs, bool(qa.is_impossible)))
    return questions


def _questions_of_parquet(table: Table) -> list[Question]:
    contexts: dict[str, str] = {}
    questions = []
    columns = ids_of(table), *map(table.texts, ("question", "context")), table.column("answers")
    flags = table.columns.get("is_impossible", [None] * len(table.rows))
    for name, question, context, value, flag in zip(*columns, flags, strict=True):
        if isinstance(value, Mapping):  # lists by name, else the official layout: a list of objects
            pairs = list(zip(value["text"], value["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in (() if value is None else value)]
        is_impossible = bool(flag) or not pairs  # in this layout
        questions.append(_question(name, question, contexts.setdefault(context, context), pairs, is_impossible))
    return questions


def _question(
    name: str, question: str, context: str, pairs: list[tuple[str | None, int | None]], is_impossible: bool
) -> Question:
    """An answer without text, as ("", -1), says that there is none; one without a start is scored alone."""
    answers = tuple(Answer(text, -1 if start is None else int(start)) for text, start in pairs if text and text.strip())
    is_impossible = is_impossible or (bool(pairs) and not answers)
    return Question(name, question, context, () if is_impossible else answers, is_impossible)


def answer_language(questions: Sequence[Question]) -> AnswerLanguage:
    """Returns how the answers of a file are compared, whatever single ones are written in.

    `characters` if most units of its questions and contexts are characters of scripts without spaces; `en` if one word
    in twelve is a common one of English, or all characters are ASCII's; else `words`.
    """
    texts = {text for each in questions for text in (each.question, each.context)}
    units = [unit for text in texts for unit in _UNIT.findall(_plain(text))]
    if 2 * sum(bool(re.match(_CHARACTER, unit)) for unit in units) > len(units):
        return "characters"
    num_english = sum(bool(_ENGLISH.fullmatch(unit)) for unit in units)
    return "en" if 12 * num_english >= len(units) or all(map(str.isascii, texts)) else "words"


def squad_v1_scores(
    questions: Sequence[Question], predictions: Mapping[str, str], language: str = "en"
) -> dict[str, float]:
    """Returns `exact_match` and `f1` of SQuAD 1.1, in percent, of questions that all have answers."""
    scores = squad_evaluate_v1_1.evaluate(*_compared(questions, predictions, language))
    return {"exact_match": 100.0 * scores["exact_match"], "f1": 100.0 * scores["final_f1"]}


def squad_v2_scores(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    language: str = "en",
) -> dict[str, float]:
    """Returns the scores of SQuAD 2.0; with null odds also best_exact, best_exact_thresh, best_f1 and best_f1_thresh.

    An answer with null odds above 1.0 counts as empty; the script is meant for probabilities. It also assumes that the
    threshold 0.0 empties all answers. This is wrong for odds below 0, such as logits: use `choose_null_threshold`
    instead of a `best_*_thresh` of 0.0.
    """
    odds = {question.id: 0.0 if null_odds is None else null_odds[question.id] for question in questions}
    scores = squad_evaluate_v2_0.evaluate(*_compared(questions, predictions, language), odds)
    # The official names. The averages of precision are not of the official script without pictures.
    names = {name: name.replace("final_", "best_") for name in scores if not name.startswith("pr_")}
    return {ours: scores[name] for name, ours in names.items() if null_odds is not None or name == ours}


def choose_null_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    language: str = "en",
) -> float:
    """Returns the threshold on null odds with the highest F1 on these questions; the lowest of equal ones.

    The predictions with larger null odds, which are any numbers, are to be replaced by "". The script's own best
    threshold may lie between equal odds.

    Returns: the middle between the odds of the last answered question and of the next one, so that rounding on another
        device changes no answer; the lowest odds minus 1 if no question should be answered, the highest plus 1 if all
        should.
    """
    scores = [squad_v2_scores([each], predictions, None, language)["f1"] for each in questions]
    gains = [score / 100.0 - (not each.answers) for score, each in zip(scores, questions, strict=True)]
    odds, place = np.unique([null_odds[question.id] for question in questions], return_inverse=True)
    thresholds = [odds[0] - 1.0, *(odds[:-1] + odds[1:]) / 2, odds[-1] + 1.0]
    return float(thresholds[np.argmax([0.0, *np.cumsum(np.bincount(place, gains))])])


def _compared(
    questions: Sequence[Question], predictions: Mapping[str, str], language: str
) -> tuple[list[dict[str, Any]], Mapping[str, str]]:
    """The questions in the layout of the official scripts, and the predictions; in English as they are."""
    truths = {each.id: [answer.text for answer in each.answers] for each in questions}
    if language != "en":
        pairs = {name: _in_units(texts, predictions[name], language) for name, texts in truths.items()}
        truths = {name: texts for name, (texts, _) in pairs.items()}
        predictions = {name: text for name, (_, text) in pairs.items()}
    qas = [{"id": name, "answers": [{"text": text} for text in texts]} for name, texts in truths.items()]
    return [{"paragraphs": [{"qas": qas}]}], predictions


def _in_units(truths: list[str], prediction: str, language: str) -> tuple[list[str], str]:
    """True answers and a prediction as words of hexadecimal digits, in which the scripts find no English article."""
    split = str.split if language == "words" else _UNIT.findall
    found, *units = ([unit.encode().hex() for unit in split(_plain(text))] for text in (prediction, *truths))
    if language == "characters" and truths:
        _, found, *units = max(_with_one_common_stretch(found, truth) for truth in units)
    return [" ".join(truth) for truth in units], " ".join(found)


def _with_one_common_stretch(found: list[str], truth: list[str]) -> tuple[float, list[str], list[str]]:
    """The share of the longest common stretch in two answers; and these, of which nothing else is equal any more."""
    first, _, size = SequenceMatcher(None, found, truth, autojunk=False).find_longest_match()
    found = [unit if 0 <= i - first < size else f"{unit}other" for i, unit in enumerate(found)]
    return (found == truth) + size / max(len(found) + len(truth), 1), found, truth  # both may be empty


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if unicodedata.category(c)[0] != "P" and c not in _PUNCTUATION)
