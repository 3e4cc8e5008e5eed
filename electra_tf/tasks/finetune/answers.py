"""From the outputs of a question-answering model to answers: the best spans of each question, and its null odds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf.tasks.finetune.squad_features import SquadWindows

_WINDOWS_AT_ONCE = 1024
_ODDS_WITHOUT_WINDOW = 1e6  # of a question whose context has no token: there is no answer


class AnswerSpan(NamedTuple):
    """A possible answer.

    Attributes:
        text: `context[start:end]`; start and end are in characters (Unicode code points) of the context.
        probability: among the spans of the n-best list of the question.
        start_score, end_score: log-probabilities of the joint head, logits of the independent one.
    """

    text: str
    start: int
    end: int
    probability: float
    start_score: float
    end_score: float


class PredictedAnswer(NamedTuple):
    """What a model answers to a question.

    Attributes:
        spans: the n-best list, the best first, with distinct texts. Empty if no span is allowed.
        null_odds: the larger, the likelier is it that there is no answer: a logit, positive for "none", of the head
            that says so, else the score of [CLS] less that of the best span. None in version 1.1.
    """

    id: str
    spans: tuple[AnswerSpan, ...]
    null_odds: float | None

    @property
    def text(self) -> str:
        """The best answer, whatever the null odds are; "" if there is no span."""
        return self.spans[0].text if self.spans else ""


TextOf = Callable[[SquadWindows, int, int, int], str]


def text_by_offsets(windows: SquadWindows, row: int, start: int, end: int) -> str:
    """The context's text from the token at position `start` of a window to the one at `end` (inclusive)."""
    first, after = _characters(windows, row, start, end)
    return windows.questions[windows.features.example_index[row]].context[first:after]


def predicted_answers(
    windows: SquadWindows,
    outputs: Mapping[str, np.ndarray],
    *,
    version_2: bool,
    max_answer_length: int,
    n_best_size: int,
    text_of: TextOf = text_by_offsets,
) -> list[PredictedAnswer]:
    """The answers to all questions of the windows, in their order.

    A span must lie in the context, begin in the window where its first token has most context, and have at most
    `max_answer_length` tokens. Its score is that of its start plus that of its end; equal ones stay in the order of
    windows, starts and ends. Of spans with the same text the best counts.

    Args:
        outputs: of the model, a row for each window. Of the joint head `start_top_log_probs` and `start_top_index`
            [N, K], `end_top_log_probs` and `end_top_index` [N, K, K]; of the independent one `start_logits` and
            `end_logits` [N, S]; of the classifier `answerable_logits` [N], positive for "no answer". Positions beyond
            a window and infinite entries do not count.
        version_2: whether there are null odds.
        n_best_size: spans of a question; with the independent head also starts and ends of a window that are combined.
        text_of: gives the text of a span.
    Raises: ValueError: null odds are wanted of a joint head without that classifier.
    Source: finetune/qa/qa_metrics.py of the authors' code, which answers "empty" if no span is allowed.
    """
    null_scores = _null_scores(windows, outputs) if version_2 else None
    spans_of = _best_spans(windows, outputs, max_answer_length, n_best_size, text_of)
    answers = []
    for index, question in enumerate(windows.questions):
        spans = spans_of.get(index, ())
        odds = None
        if null_scores is not None:
            odds = null_scores[index]
            if "answerable_logits" not in outputs and spans:
                odds = odds - np.float32(spans[0].start_score) - np.float32(spans[0].end_score)
        answers.append(PredictedAnswer(question.id, spans, None if odds is None else float(odds)))
    return answers


def predictions_of(answers: Sequence[PredictedAnswer], null_threshold: float | None) -> dict[str, str]:
    """The official predictions file: text by id, "" where the null odds are above the threshold (None: nowhere)."""
    return {
        answer.id: "" if null_threshold is not None and answer.null_odds > null_threshold else answer.text
        for answer in answers
    }


def nbest_of(answers: Sequence[PredictedAnswer]) -> dict[str, list[dict[str, Any]]]:
    """The n-best file: by id a list of objects with the fields of `AnswerSpan`."""
    return {answer.id: [span._asdict() for span in answer.spans] for answer in answers}


class _Candidates(NamedTuple):
    """Allowed spans, flat: the window's row, first and last position in it, and their scores in float32."""

    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    start_score: np.ndarray
    end_score: np.ndarray


def _best_spans(
    windows: SquadWindows,
    outputs: Mapping[str, np.ndarray],
    max_answer_length: int,
    n_best_size: int,
    text_of: TextOf,
) -> dict[int, tuple[AnswerSpan, ...]]:
    """The n-best lists by the question's index; questions without an allowed span are not in it."""
    num_rows = windows.features.num_rows
    blocks = [np.arange(at, min(at + _WINDOWS_AT_ONCE, num_rows)) for at in range(0, num_rows, _WINDOWS_AT_ONCE)]
    parts = [_allowed(windows, rows, outputs, max_answer_length, n_best_size) for rows in blocks]
    if not parts:
        return {}
    candidates = _Candidates(*map(np.concatenate, zip(*parts, strict=True)))
    question = windows.features.example_index[candidates.row]
    order = np.lexsort((-(candidates.start_score + candidates.end_score), question))  # stable
    candidates = _Candidates(*(values[order] for values in candidates))
    indices, counts = np.unique(question, return_counts=True)
    ends = np.cumsum(counts)
    return {
        int(index): _distinct(windows, _Candidates(*(values[begin:end] for values in candidates)), n_best_size, text_of)
        for index, begin, end in zip(indices, ends - counts, ends, strict=True)
    }


def _allowed(
    windows: SquadWindows,
    rows: np.ndarray,
    outputs: Mapping[str, np.ndarray],
    max_answer_length: int,
    n_best_size: int,
) -> _Candidates:
    """The allowed spans of some windows, in the order of windows, starts and ends."""
    lengths = windows.features.lengths[rows]
    start, start_score, end, end_score = _combinations(outputs, rows, lengths, n_best_size)
    begin, after = windows.context_position[rows][:, None, None], lengths[:, None, None] - 1
    start, start_score = start[:, :, None], start_score[:, :, None]
    at_start = windows.features.row_splits[rows][:, None, None] + np.minimum(start, after)
    allowed = (start >= begin) & (end < after) & (end >= start) & (end - start < max_answer_length)
    allowed &= windows.is_max_context[at_start] & np.isfinite(start_score + end_score)
    found = np.nonzero(allowed)
    spread = (np.broadcast_to(values, allowed.shape)[found] for values in (start, end, start_score, end_score))
    return _Candidates(rows[found[0]], *spread)


def _combinations(
    outputs: Mapping[str, np.ndarray], rows: np.ndarray, lengths: np.ndarray, n_best_size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Starts and their scores [R, K], ends and theirs [R, K or 1, K], of windows with these rows [R] and lengths."""
    if "start_top_index" in outputs:
        names = ("start_top_index", "start_top_log_probs", "end_top_index", "end_top_log_probs")
        return tuple(outputs[name][rows] for name in names)
    found = []
    for name in ("start_logits", "end_logits"):
        logits = outputs[name][rows]
        logits = np.where(np.arange(logits.shape[1]) < lengths[:, None], logits, -np.inf)
        best = np.argsort(-logits, axis=1, kind="stable")[:, :n_best_size]
        found += [best, np.take_along_axis(logits, best, axis=1)]
    return found[0], found[1], found[2][:, None], found[3][:, None]


def _distinct(
    windows: SquadWindows, candidates: _Candidates, n_best_size: int, text_of: TextOf
) -> tuple[AnswerSpan, ...]:
    """The n-best list of one question, from its candidates in order."""
    best: dict[str, int] = {}
    for i, place in enumerate(zip(*(values.tolist() for values in candidates[:3]), strict=True)):
        best.setdefault(text_of(windows, *place), i)
        if len(best) == n_best_size:
            break
    chosen = _Candidates(*(values[list(best.values())] for values in candidates))
    scores = chosen.start_score + chosen.end_score
    weights = np.exp((scores - scores[0]).astype(np.float64))
    probabilities = (weights / weights.sum()).tolist()
    return tuple(
        AnswerSpan(text, *_characters(windows, row, start, end), probability, start_score, end_score)
        for text, probability, row, start, end, start_score, end_score in zip(
            best, probabilities, *(values.tolist() for values in chosen), strict=True
        )
    )


def _characters(windows: SquadWindows, row: int, start: int, end: int) -> tuple[int, int]:
    """The first character and the end (exclusive), in the context, of the tokens at two positions of a window."""
    shift = windows.first_token[row] - windows.context_position[row]
    return int(windows.token_starts[start + shift]), int(windows.token_ends[end + shift])


def _null_scores(windows: SquadWindows, outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """[questions] float32: the smallest score, over the windows of a question, of there being no answer."""
    if "answerable_logits" in outputs:
        of_window = outputs["answerable_logits"]
    elif "start_logits" in outputs:
        of_window = outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0]
    else:
        raise ValueError("null odds of the joint head need answerable_classifier: true")
    scores = np.full(len(windows.questions), _ODDS_WITHOUT_WINDOW, np.float32)
    np.minimum.at(scores, windows.features.example_index, of_window)
    return scores
