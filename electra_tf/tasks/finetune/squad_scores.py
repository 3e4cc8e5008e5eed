"""SQuAD's scores, to the digit those of the official scripts for versions 1.1 and 2.0, and the null threshold.

tf-models-official's scorers give other numbers: fractions for version 1.1, and for 2.0 the scores at the best threshold
under the names of the plain scores.
"""

import collections
import json
import logging
import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from electra_tf.config.errors import UserError
from electra_tf.data.tables import read_bytes
from electra_tf.tasks.finetune.squad import Question, read_squad

OFFICIAL_NULL_THRESHOLD = 1.0  # the script's default, meant for probabilities: it empties no answer

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score_files(
    task: str,
    data_file: str | Path,
    predictions_file: str | Path,
    null_odds_file: str | Path | None = None,
    null_threshold: float = OFFICIAL_NULL_THRESHOLD,
) -> dict[str, float]:
    """The scores of a file of predictions, with the official script's keys in its order.

    Args:
        task: "squad_v1" or "squad_v2".
        data_file: see `read_squad`.
        predictions_file: JSON, the text of the answer for each question id, "" for no answer; or the JSON lines that
            `--predict` writes.
        null_odds_file: JSON, a number for each question id; the larger, the likelier there is no answer. Only for
            squad_v2.
        null_threshold: an answer with larger null odds is replaced by "". Only with null odds.
    Returns: percentages and counts; with null odds also thresholds.
    Raises: UserError: a file cannot be read, predictions or odds are missing, or a question of squad_v1 has no answer.
    """
    questions = read_squad(data_file)
    predictions = _read_predictions(predictions_file)
    if task == "squad_v1":
        if null_odds_file is not None:
            raise UserError("--null_odds is not for squad_v1, which has no impossible questions; remove it")
        return squad_v1_scores(questions, predictions)
    null_odds = None if null_odds_file is None else _read_by_id(null_odds_file, dict[str, float])
    return squad_v2_scores(questions, predictions, null_odds, null_threshold)


def squad_v1_scores(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """The scores of SQuAD 1.1: `exact_match` and `f1` in percent. A missing prediction scores 0, with a warning."""
    exact = f1 = 0
    for question in questions:
        if not question.answers:
            raise UserError(f"question {question.id} has no answer; give --task=squad_v2")
        if question.id in predictions:
            exact += max(exact_score(answer.text, predictions[question.id]) for answer in question.answers)
            f1 += max(f1_score_v1(answer.text, predictions[question.id]) for answer in question.answers)
    if missing := [question.id for question in questions if question.id not in predictions]:
        logging.warning("%d of %d questions have no prediction and score 0", len(missing), len(questions))
    return {"exact_match": 100.0 * exact / len(questions), "f1": 100.0 * f1 / len(questions)}


def squad_v2_scores(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    null_threshold: float = OFFICIAL_NULL_THRESHOLD,
) -> dict[str, float]:
    """The scores of SQuAD 2.0; with null odds also best_exact, best_exact_thresh, best_f1 and best_f1_thresh.

    The best_* are the official script's. Its search begins with threshold 0.0, which it assumes to empty all answers.
    If odds are logits, some of them below 0, a `best_*_thresh` of 0.0 is wrong: see `choose_null_threshold`.

    Raises: UserError: a question has no prediction or, if any odds are given, no null odds.
    """
    _require_all(questions, predictions, "prediction")
    exact, f1 = _raw_scores(questions, predictions)
    has_answer = {question.id: bool(question.answers) for question in questions}
    if null_odds is None:
        final_exact, final_f1 = exact, f1
    else:
        _require_all(questions, null_odds, "null odds")
        final_exact, final_f1 = (
            {
                key: float(not has_answer[key]) if null_odds[key] > null_threshold else value
                for key, value in scores.items()
            }
            for scores in (exact, f1)
        )
    result = _means(final_exact, final_f1, list(has_answer), prefix="")
    for prefix, wanted in (("HasAns_", True), ("NoAns_", False)):
        if keys := [key for key, has in has_answer.items() if has == wanted]:
            result |= _means(final_exact, final_f1, keys, prefix)
    if null_odds is not None:
        for name, scores in (("exact", exact), ("f1", f1)):
            best, threshold = _official_best(scores, predictions, null_odds, has_answer)
            result |= {f"best_{name}": best, f"best_{name}_thresh": threshold}
    return result


class NullThreshold(NamedTuple):
    """A threshold on null odds, above which an answer is replaced by "", and the resulting F1 in percent."""

    threshold: float
    f1: float


def choose_null_threshold(
    questions: Sequence[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> NullThreshold:
    """The threshold with the highest F1 on these questions, of equally good ones the lowest.

    Args:
        predictions: answers before any is replaced by "".
        null_odds: any numbers, probabilities or logits.
    Returns: the middle between the odds of the last answered question and the next one, so that rounding on another
        device changes no answer; 1 below the lowest odds if no question is to be answered, 1 above the highest if all
        are.
    Raises: UserError: a question has no prediction or no null odds.
    """
    _require_all(questions, predictions, "prediction")
    _require_all(questions, null_odds, "null odds")
    _, f1 = _raw_scores(questions, predictions)
    has_answer = {question.id: bool(question.answers) for question in questions}
    keys = sorted(has_answer, key=lambda key: null_odds[key])
    total = best = float(sum(not has for has in has_answer.values()))  # with every answer empty
    threshold = null_odds[keys[0]] - 1.0
    for key, following in zip(keys, [*keys[1:], None], strict=True):
        total += f1[key] - (not has_answer[key])
        # Equal odds cannot be told apart: no threshold lies between them.
        if total > best and (following is None or null_odds[following] > null_odds[key]):
            best = total
            threshold = null_odds[key] + 1.0 if following is None else (null_odds[key] + null_odds[following]) / 2
    return NullThreshold(float(threshold), 100.0 * best / len(keys))


def normalize_answer(text: str) -> str:
    """Lower-cases a text, then removes ASCII punctuation, English articles and superfluous white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_score(gold: str, prediction: str) -> int:
    """1 if both texts are equal once normalized, else 0."""
    return int(normalize_answer(gold) == normalize_answer(prediction))


def f1_score_v1(gold: str, prediction: str) -> float:
    """F1 over normalized words; 0 if both texts have none, as in the script for version 1.1."""
    return _word_f1(normalize_answer(gold).split(), normalize_answer(prediction).split())


def f1_score_v2(gold: str, prediction: str) -> float:
    """F1 over normalized words; 1 if both texts have none, as in the script for version 2.0."""
    gold_words, words = normalize_answer(gold).split(), normalize_answer(prediction).split()
    return _word_f1(gold_words, words) if gold_words and words else int(gold_words == words)


def _word_f1(gold_words: list[str], words: list[str]) -> float:
    num_common = sum((collections.Counter(gold_words) & collections.Counter(words)).values())
    if not num_common:
        return 0
    precision, recall = num_common / len(words), num_common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def _raw_scores(
    questions: Sequence[Question], predictions: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, float]]:
    """Exact match and F1 of version 2.0 by question id, before any answer is emptied."""
    exact, f1 = {}, {}
    for question in questions:
        golds = [answer.text for answer in question.answers if normalize_answer(answer.text)] or [""]
        exact[question.id] = max(exact_score(gold, predictions[question.id]) for gold in golds)
        f1[question.id] = max(f1_score_v2(gold, predictions[question.id]) for gold in golds)
    return exact, f1


def _means(exact: Mapping[str, float], f1: Mapping[str, float], keys: list[str], prefix: str) -> dict[str, float]:
    return {
        f"{prefix}exact": 100.0 * sum(exact[key] for key in keys) / len(keys),
        f"{prefix}f1": 100.0 * sum(f1[key] for key in keys) / len(keys),
        f"{prefix}total": len(keys),
    }


def _official_best(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    has_answer: Mapping[str, bool],
) -> tuple[float, float]:
    """The best score over thresholds and its threshold, with the official script's first threshold and ties."""
    total = best = sum(not has for has in has_answer.values())
    threshold = 0.0
    for key in sorted(null_odds, key=lambda key: null_odds[key]):
        if key not in scores:
            continue
        # A right answer gains its score; an answer to an impossible question loses the point of an empty one.
        total += scores[key] if has_answer[key] else -bool(predictions[key])
        if total > best:
            best, threshold = total, null_odds[key]
    return 100.0 * best / len(scores), threshold


def _require_all(questions: Sequence[Question], by_id: Mapping[str, object], what: str) -> None:
    missing = [question.id for question in questions if question.id not in by_id]
    if missing:
        raise UserError(f"{len(missing)} of {len(questions)} questions have no {what}, the first is {missing[0]}")


def _read_predictions(path: str | Path) -> dict[str, str]:
    lines = read_bytes(path).splitlines()
    if lines and lines[0].startswith(b'{"id": '):  # as `QuestionData.prediction_table` writes
        return {each["id"]: each["text"] for each in map(json.loads, lines)}
    return _read_by_id(path, dict[str, str])


def _read_by_id(path: str | Path, kind: type[dict]) -> dict:
    """A JSON object with a value for each question id."""
    try:
        return TypeAdapter(kind).validate_json(read_bytes(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: {place}: {first['msg']}; expected a JSON object, a value by question id") from None
