"""SQuAD's scores, to the digit those that the official scripts for version 1.1 and 2.0 print, and the null threshold.

tf-models-official's scorers print other numbers: fractions for version 1.1, and for 2.0 those of the best threshold
under the names of the plain scores.
"""

import collections
import logging
import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from electra_tf.config.errors import UserError
from electra_tf.data.table_files import json_objects
from electra_tf.tasks.finetune.squad import Question, read_json, read_squad

OFFICIAL_NULL_THRESHOLD = 1.0  # the script's default, meant for probabilities: by it none is emptied

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score_files(
    task: str,
    data_file: str | Path,
    predictions_file: str | Path,
    null_odds_file: str | Path | None = None,
    null_threshold: float = OFFICIAL_NULL_THRESHOLD,
) -> dict[str, float]:
    """The scores of files, under the official script's keys and in its order.

    Args:
        task: "squad_v1" or "squad_v2".
        data_file: see `read_squad`.
        predictions_file: JSON, the answer's text by question id, "" for no answer; or the JSON lines that `--predict`
            writes.
        null_odds_file: JSON, a number by question id, larger for "no answer" being likelier. Only for squad_v2.
        null_threshold: an answer is emptied if its null odds are above. Only with null odds.
    Returns: percentages, counts, and with null odds thresholds.
    Raises: UserError: a file that cannot be read, predictions or odds that are missing, questions without an answer in
        squad_v1.
    """
    questions = read_squad(data_file)
    predictions = _read_predictions(predictions_file)
    if task == "squad_v1":
        if null_odds_file is not None:
            raise UserError("null odds were given for squad_v1, which has no impossible questions; leave them out")
        return squad_v1_scores(questions, predictions)
    null_odds = None if null_odds_file is None else _read_by_id(null_odds_file, (int, float), "null odds", "a number")
    return squad_v2_scores(questions, predictions, null_odds, null_threshold)


def squad_v1_scores(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """The scores of SQuAD 1.1: `exact_match` and `f1` in percent. A missing prediction scores 0, with a warning."""
    exact = f1 = 0
    for question in questions:
        if not question.answers:
            raise UserError(f"question {question.id} has no answer, expected one in squad_v1; give --task=squad_v2")
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

    The best_* are the official script's: its search begins with threshold 0.0, which it takes for "all answers empty".
    Where odds are logits and some lie below 0, such a `best_*_thresh` of 0.0 is wrong: see `choose_null_threshold`.

    Raises: UserError: a question without a prediction or, if any are given, without null odds. The official script
        stops with a KeyError there.
    """
    _check_all_there(questions, predictions, "prediction", "give an empty string where there is no answer")
    exact, f1 = _raw_scores(questions, predictions)
    has_answer = {question.id: bool(question.answers) for question in questions}
    if null_odds is None:
        final_exact, final_f1 = exact, f1
    else:
        _check_all_there(questions, null_odds, "null odds", "give a number for each question")
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
    """A threshold on null odds, above which an answer is emptied, and the F1 in percent to which it leads."""

    threshold: float
    f1: float


def choose_null_threshold(
    questions: Sequence[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> NullThreshold:
    """The threshold with the highest F1 on these questions, of equally good ones the lowest.

    Args:
        predictions: answers before any is emptied.
        null_odds: any numbers, probabilities or logits.
    Returns: midway between the odds of the last question that is answered and the next one, so that roundings on
        another device move none across; 1 below the lowest odds if none is to be answered, 1 above the highest if all.
    Raises: UserError: a question without a prediction or without null odds.
    """
    _check_all_there(questions, predictions, "prediction", "give one for each question")
    _check_all_there(questions, null_odds, "null odds", "give a number for each question")
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
    """Lower case, without ASCII punctuation, English articles and superfluous white space, in that order."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_score(gold: str, prediction: str) -> int:
    """1 if both are equal when normalized."""
    return int(normalize_answer(gold) == normalize_answer(prediction))


def f1_score_v1(gold: str, prediction: str) -> float:
    """F1 over normalized words; 0 where both have none, as in the script for version 1.1."""
    return _word_f1(normalize_answer(gold).split(), normalize_answer(prediction).split())


def f1_score_v2(gold: str, prediction: str) -> float:
    """F1 over normalized words; 1 where both have none, as in the script for version 2.0."""
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
    """Exact match and F1 of version 2.0 by question, before any answer is emptied."""
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
        # A right answer wins its score; one to an impossible question loses the point for saying nothing.
        total += scores[key] if has_answer[key] else -bool(predictions[key])
        if total > best:
            best, threshold = total, null_odds[key]
    return 100.0 * best / len(scores), threshold


def _check_all_there(questions: Sequence[Question], by_id: Mapping[str, object], what: str, advice: str) -> None:
    missing = [question.id for question in questions if question.id not in by_id]
    if missing:
        raise UserError(
            f"{len(missing)} of {len(questions)} questions have no {what}, the first is {missing[0]}; {advice}"
        )


def _read_predictions(path: str | Path) -> dict[str, str]:
    try:
        lines = [value for _, value in json_objects(str(path))]
    except UserError:  # an object of several lines, or nothing: what is wrong with it is said below
        lines = []
    if lines and all({"id", "text", "null_odds"} <= set(value) for value in lines):
        return {value["id"]: value["text"] for value in lines}
    return _read_by_id(path, str, "predictions", "a string")


def _read_by_id(path: str | Path, kind: type | tuple[type, ...], what: str, kind_name: str) -> dict:
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a JSON {type(content).__name__}, expected an object: {what} by question id")
    for key, value in content.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"{path}: {what} of question {key} is {str(value)[:40]!r}, expected {kind_name}")
    return content
