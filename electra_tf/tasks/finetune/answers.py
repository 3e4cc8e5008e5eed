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


# Gives the text of a span: (windows, row of the window, position of its first token, of its last) -> text.
TextOf = Callable[[SquadWindows, int, int, int], str]


def predicted_answers(
    windows: SquadWindows,
    outputs: Mapping[str, np.ndarray],
    *,
    version_2: bool,
    max_answer_length: int,
    n_best_size: int,
    text_of: TextOf | None = None,
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
        text_of: gives the texts of spans instead of the offsets of their tokens, for comparisons.
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
    text_of: TextOf | None,
) -> dict[int, tuple[AnswerSpan, ...]]:
    """The n-best lists by the question's index; questions without an allowed span are not in it."""
    num_rows = windows.features.num_rows
    blocks = [np.arange(at, min(at + _WINDOWS_AT_ONCE, num_rows)) for at in range(0, num_rows, _WINDOWS_AT_ONCE)]
    parts = [_allowed(windows, rows, outputs, max_answer_length, n_best_size) for rows in blocks]
    if not parts:
        return {}
    candidates = _Candidates(*map(np.concatenate, zip(*parts, strict=True)))
    question = windows.features.example_index[candidates.row]
    indices, counts = np.unique(question, return_counts=True)
    ends = np.cumsum(counts)  # those of a question stand together, as its windows do
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
    windows: SquadWindows, candidates: _Candidates, n_best_size: int, text_of: TextOf | None
) -> tuple[AnswerSpan, ...]:
    """The n-best list of one question, of its candidates, of which there is at least one."""
    context = windows.questions[windows.features.example_index[candidates.row[0]]].context
    order = np.argsort(-(candidates.start_score + candidates.end_score), kind="stable")
    best: dict[str, int] = {}
    # Most spans have a text of their own, so the first few indices are usually enough.
    for begin in range(0, len(order), 2 * n_best_size):
        block = order[begin : begin + 2 * n_best_size]
        chosen = _Candidates(*(values[block] for values in candidates))
        columns = (block, chosen.row, chosen.start, chosen.end, *_characters(windows, chosen))
        for i, row, start, end, first, after in zip(*(values.tolist() for values in columns), strict=True):
            if len(best) < n_best_size:
                best.setdefault(text_of(windows, row, start, end) if text_of else context[first:after], i)
        if len(best) == n_best_size:
            break
    chosen = _Candidates(*(values[list(best.values())] for values in candidates))
    scores = chosen.start_score + chosen.end_score  # float32, as in the authors' code
    weights = np.exp((scores - scores[0]).astype(np.float64))
    columns = (*_characters(windows, chosen), weights / weights.sum(), chosen.start_score, chosen.end_score)
    return tuple(map(AnswerSpan, best, *(values.tolist() for values in columns)))


def _characters(windows: SquadWindows, candidates: _Candidates) -> tuple[np.ndarray, np.ndarray]:
    """Where spans begin and end (exclusive) in their contexts, in characters."""
    shift = windows.first_token[candidates.row] - windows.context_position[candidates.row]
    return windows.token_starts[candidates.start + shift], windows.token_ends[candidates.end + shift]


def _null_scores(windows: SquadWindows, outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """[questions] float32: the smallest score, over the windows of a question, of there being no answer."""
    scores = np.full(len(windows.questions), _ODDS_WITHOUT_WINDOW, np.float32)
    if not windows.features.num_rows:
        return scores
    if "answerable_logits" in outputs:
        of_window = outputs["answerable_logits"]
    elif "start_logits" in outputs:
        of_window = outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0]
    else:
        raise ValueError("null odds of the joint head need answerable_classifier: true")
    np.minimum.at(scores, windows.features.example_index, of_window)
    return scores
