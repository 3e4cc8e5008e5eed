"""SQuAD's scores, equal to those of the official scripts for versions 1.1 and 2.0, and the null threshold.

tf-models-official differs: its scores of version 1.1 are fractions, and its `exact` and `f1` of version 2.0 are those
at the best threshold.
"""

import collections
import json
import logging
import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path

from electra_tf.config.errors import UserError
from electra_tf.data.tables import read_bytes
from electra_tf.tasks.finetune.squad import Question, read_json_as, read_squad

_OFFICIAL_NULL_THRESHOLD = 1.0  # the script's default, meant for probabilities: it keeps all answers

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score_files(
    task: str,
    data_file: str | Path,
    predictions_file: str | Path,
    null_odds_file: str | Path | None = None,
) -> dict[str, float]:
    """Scores a file of predictions. Returns the official script's keys, in its order.

    Args:
        task: "squad_v1" or "squad_v2".
        data_file: see `read_squad`.
        predictions_file: a JSON object with an answer for each question id, "" for no answer; or the JSON lines that
            `--predict` writes.
        null_odds_file: a JSON object with a number for each question id, for squad_v2. A larger number means that the
            question is less likely to have an answer.
    Returns: percentages and counts; with null odds also thresholds.
    Raises: UserError: a file cannot be read, predictions or odds are missing, or a question of squad_v1 has no answer.
    """
    questions = read_squad(data_file)
    predictions = _read_predictions(predictions_file)
    if task == "squad_v1":
        if null_odds_file is not None:
            raise UserError("--null_odds has no effect with --task=squad_v1; remove it")
        return squad_v1_scores(questions, predictions)
    null_odds = None
    if null_odds_file is not None:
        null_odds = read_json_as(dict[str, float], null_odds_file, "a JSON object with a number for each question id")
    return squad_v2_scores(questions, predictions, null_odds)


def squad_v1_scores(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """Returns `exact_match` and `f1` of SQuAD 1.1, in percent. A missing prediction scores 0, with a warning."""
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
    null_threshold: float = _OFFICIAL_NULL_THRESHOLD,
) -> dict[str, float]:
    """Returns the scores of SQuAD 2.0; with null odds also best_exact, best_exact_thresh, best_f1 and best_f1_thresh.

    The official script assumes that the threshold 0.0 empties all answers. This is wrong for odds below 0, such as
    logits: use `choose_null_threshold` instead of a `best_*_thresh` of 0.0.

    Raises: UserError: a question has no prediction or, if any odds are given, no null odds.
    """
    _require_all(questions, predictions, "prediction")
    exact, f1 = _raw_scores(questions, predictions)
    has_answer = {question.id: bool(question.answers) for question in questions}
    emptied: set[str] = set()
    if null_odds is not None:
        _require_all(questions, null_odds, "null odds")
        emptied = {key for key in has_answer if null_odds[key] > null_threshold}
    final_exact, final_f1 = (
        {key: float(not has_answer[key]) if key in emptied else value for key, value in scores.items()}
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


def choose_null_threshold(
    questions: Sequence[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> float:
    """Returns the threshold on null odds with the highest F1 on these questions; the lowest of equal ones.

    Answers with larger null odds are replaced by "".

    Args:
        predictions: the answers before any of them is replaced by "".
        null_odds: any numbers, probabilities or logits.
    Returns: the middle between the odds of the last answered question and of the next one, so that rounding on another
        device changes no answer; the lowest odds minus 1 if no question should be answered, the highest plus 1 if all
        should.
    """
    _, f1 = _raw_scores(questions, predictions)
    has_answer = {question.id: bool(question.answers) for question in questions}
    keys = sorted(has_answer, key=lambda key: null_odds[key])
    total = best = float(sum(not has for has in has_answer.values()))  # with every answer empty
    threshold = null_odds[keys[0]] - 1.0
    for key, following in zip(keys, [*keys[1:], None], strict=True):
        total += f1[key] - (not has_answer[key])
        # No threshold lies between equal odds.
        if total > best and (following is None or null_odds[following] > null_odds[key]):
            best = total
            threshold = null_odds[key] + 1.0 if following is None else (null_odds[key] + null_odds[following]) / 2
    return float(threshold)


def normalize_answer(text: str) -> str:
    """Lower-cases a text, then removes ASCII punctuation, English articles and extra white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_score(gold: str, prediction: str) -> int:
    """Returns 1 if both normalized texts are equal, else 0."""
    return int(normalize_answer(gold) == normalize_answer(prediction))


def f1_score_v1(gold: str, prediction: str) -> float:
    """Returns F1 over normalized words; 0 if both texts have no words, as in the script for version 1.1."""
    return _word_f1(normalize_answer(gold).split(), normalize_answer(prediction).split())


def f1_score_v2(gold: str, prediction: str) -> float:
    """Returns F1 over normalized words; 1 if both texts have no words, as in the script for version 2.0."""
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
    """The best score over all thresholds, and its threshold; 0.0 if no answer is best. Ties as in the script."""
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
        raise UserError(f"{len(missing)} of {len(questions)} questions have no {what}; the first is {missing[0]}")


def _read_predictions(path: str | Path) -> dict[str, str]:
    lines = read_bytes(path).splitlines()
    if not lines or not lines[0].startswith(b'{"id": '):
        return read_json_as(dict[str, str], path, "a JSON object with a text for each question id")
    predictions: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):  # as `QuestionData.prediction_table` writes
        try:
            answer = json.loads(line)
            predictions[answer["id"]] = answer["text"]
        except (ValueError, LookupError, TypeError):
            raise UserError(f"{path}:{number} is not a line with id and text: {line[:80]!r}") from None
    return predictions
