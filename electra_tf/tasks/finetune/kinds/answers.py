"""Answers from the outputs of a question-answering model: the best spans of each question, and its null odds.

`--predict` and the graph of a served model share these TensorFlow operations. A long context is cut into windows, whose
spans are compared. In shapes, W is the number of windows, Q the number of questions, and K the beam size: the number of
starts in a window, and of ends for each start.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.tasks.finetune.kinds.squad_features import ContextWindows, SquadWindows, context_windows, cut_query
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.tasks.served import Served, ServedModel, ServedOutputs, ServingShapes, in_blocks
from electra_tf.text.packing import Rows, cut, cut_texts, max_bytes, slices
from electra_tf.text.tokenizer import Tokenizer

_QUESTIONS_AT_ONCE = 512
_ODDS_WITHOUT_WINDOW = 1e6  # a context without tokens has no answer
_NO_ANSWER = {"text": "", "start": 0, "end": 0}


class AnswerSpan(NamedTuple):
    """A possible answer. Scores are log-probabilities from the joint head, logits from the independent one."""

    text: str  # `context[start:end]`
    start: int  # the first character (Unicode code point) in the context
    end: int  # exclusive
    probability: float  # the softmax of the scores in the question's n-best list
    start_score: float
    end_score: float


class PredictedAnswer(NamedTuple):
    """A model's answer to a question."""

    id: str  # of the question
    spans: tuple[AnswerSpan, ...]  # the n-best list, with distinct texts; empty if no span is allowed
    # Grows with the probability that there is no answer: the logit of the answerable classifier or, without one, the
    # score of [CLS] minus that of the best span. None in version 1.1.
    null_odds: float | None

    @property
    def text(self) -> str:
        """The text of the best span, regardless of the null odds; "" without spans."""
        return self.spans[0].text if self.spans else ""


class Answers(NamedTuple):
    """The answers to the questions of a split, in their order, and the null odds above which a question has none."""

    answers: list[PredictedAnswer]
    # That of the settings or, if it is null, the one with the highest F1 on a split with answers; None in version 1.1
    # and for a split without answers: each question has one.
    threshold: float | None

    @property
    def texts(self) -> dict[str, str]:
        """By id, "" for no answer."""
        highest = math.inf if self.threshold is None else self.threshold
        return {answer.id: "" if (answer.null_odds or 0.0) > highest else answer.text for answer in self.answers}

    @property
    def null_odds(self) -> dict[str, float]:
        """By id; empty in version 1.1."""
        return {answer.id: answer.null_odds for answer in self.answers if answer.null_odds is not None}


class Spans(NamedTuple):
    """C spans: [C] int64 each, the scores [C] float32; the score of a span is the sum of both."""

    question: tf.Tensor  # the index of the span's question
    start: tf.Tensor  # the first character in the context
    end: tf.Tensor  # exclusive
    start_score: tf.Tensor
    end_score: tf.Tensor


def span_texts(contexts: tf.Tensor, context: tf.Tensor, start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """Cuts the texts of C spans out of N contexts: [C] string. An invalid byte of UTF-8 counts as a character.

    Args: context, start, end: [C] int64, the index of each span's context, its first character and its end (exclusive).
    """
    characters = tf.strings.unicode_decode(contexts, "UTF-8")
    first = tf.gather(characters.row_starts(), context) + start
    return tf.strings.unicode_encode(slices(characters.values, first, end - start), "UTF-8")


def predicted_answers(
    windows: SquadWindows,
    outputs: Mapping[str, npt.NDArray[Any]],
    *,
    version_2: bool,
    max_answer_length: int,
    n_best_size: int,
    texts_of: Callable[..., tf.Tensor] = span_texts,
) -> list[PredictedAnswer]:
    """Returns the answers to all questions of the windows, in their order.

    Args:
        outputs: the model's, a row for each window.
        version_2, max_answer_length: True for null odds; tokens of the longest answer.
        n_best_size: the most spans of a question; also K of the independent head.
        texts_of: replaces `span_texts`, for comparisons.
    Source: finetune/qa/qa_metrics.py of the authors' code, which answers "empty" if no span is allowed.
    """
    if not windows.features.num_rows:
        no_answer = _ODDS_WITHOUT_WINDOW if version_2 else None
        return [PredictedAnswer(question.id, (), no_answer) for question in windows.questions]
    answers = []
    for begin in range(0, len(windows.questions), _QUESTIONS_AT_ONCE):
        questions = windows.questions[begin : begin + _QUESTIONS_AT_ONCE]
        first, end = np.searchsorted(windows.features.example_index, [begin, begin + len(questions)])
        rows = {name: each[first:end] for name, each in outputs.items()}
        places = ContextWindows(*(each[first:end] for each in windows.windows))
        places = places._replace(question=places.question - begin)
        best = best_positions(rows, windows.features.lengths[first:end], n_best_size)
        spans = allowed_spans(best, places, windows.token_starts, windows.token_ends, max_answer_length)
        index_of: dict[str, int] = {}  # each context is decoded once for all of its questions
        context_of = tf.constant([index_of.setdefault(each.context, len(index_of)) for each in questions], tf.int64)
        texts = texts_of(tf.constant(list(index_of)), tf.gather(context_of, spans.question), spans.start, spans.end)
        listed = n_best(spans, texts, len(questions), n_best_size)
        odds: list[float | None] = [None] * len(questions)
        if version_2:
            has_classifier = "answerable_logits" in rows
            odds = null_odds(window_null_scores(rows), places.question, listed, has_classifier).numpy().tolist()
        found = [[text.decode() for text in row] for row in listed["text"].numpy()]
        columns = found, *(listed[name].numpy().tolist() for name in AnswerSpan._fields[1:])
        rows_of_questions = zip(questions, odds, listed["num_answers"].numpy(), *columns, strict=True)
        for question, odd, count, *values in rows_of_questions:
            best_spans = tuple(map(AnswerSpan, *(each[:count] for each in values)))
            answers.append(PredictedAnswer(question.id, best_spans, odd))
    return answers


def best_positions(outputs: Mapping[str, tf.Tensor], lengths: tf.Tensor, size: int) -> dict[str, tf.Tensor]:
    """Returns the best starts and ends of windows.

    Args:
        outputs: the model's, a row for each window; `ServedAnswers` lists those of the joint and the independent head.
        lengths: [W], the tokens of each row; positions beyond them are ignored.
        size: K for the independent head, at most S.
    Returns: `start` [W, K] int32 and `start_score` [W, K] float32; `end` and `end_score` [W, K, K], the ends of each
        start, for the joint head, or [W, 1, K] for the independent one.
    """
    if "start_top_index" in outputs:
        names = {"start": "start_top_index", "start_score": "start_top_log_probs"}
        names |= {"end": "end_top_index", "end_score": "end_top_log_probs"}
        return {name: outputs[output] for name, output in names.items()}
    width = tf.shape(outputs["start_logits"])[1]
    is_token = tf.sequence_mask(lengths, width)
    best = {}
    for name in ("start", "end"):
        logits = tf.where(is_token, outputs[f"{name}_logits"], -float("inf"))
        best[f"{name}_score"], best[name] = tf.math.top_k(logits, tf.minimum(size, width))
    return best | {name: best[name][:, tf.newaxis] for name in ("end", "end_score")}


def window_null_scores(outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the score of "no answer" of each window, [W] float32: the classifier's logit, or that of [CLS]."""
    if "answerable_logits" in outputs:
        return outputs["answerable_logits"]
    return outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0]


def allowed_spans(
    best: Mapping[str, tf.Tensor],
    windows: ContextWindows,
    token_starts: tf.Tensor,
    token_ends: tf.Tensor,
    max_answer_length: int,
) -> Spans:
    """Returns the spans that may be answers, in the order of windows, starts and ends.

    Such a span lies in the context, begins in the window in which its first token has the most context, has at most
    `max_answer_length` tokens, and a finite score. `best` is the result of `best_positions`.
    """
    first, start_score = tf.cast(best["start"], tf.int64)[:, :, tf.newaxis], best["start_score"][:, :, tf.newaxis]
    last, end_score = tf.cast(best["end"], tf.int64), best["end_score"]
    position = windows.position[:, tf.newaxis, tf.newaxis]
    allowed = (first >= position) & (last < position + windows.length[:, tf.newaxis, tf.newaxis])
    allowed &= (last >= first) & (last - first < max_answer_length) & tf.math.is_finite(start_score + end_score)
    place = tf.where(allowed)  # [places, 3]
    window, flags = place[:, 0], windows.is_max_context
    flag = tf.gather(flags.row_starts() - windows.position, window) + tf.gather_nd(first[:, :, 0], place[:, :2])
    place = tf.boolean_mask(place, tf.gather(flags.values, flag))  # [C, 3]
    window, shape = place[:, 0], tf.shape(allowed)
    first, last, start_score, end_score = (
        tf.gather_nd(tf.broadcast_to(values, shape), place) for values in (first, last, start_score, end_score)
    )
    shift = tf.gather(windows.first_token - windows.position, window)
    start, end = tf.gather(token_starts, first + shift), tf.gather(token_ends, last + shift)
    return Spans(tf.gather(windows.question, window), start, end, start_score, end_score)


def n_best(spans: Spans, texts: tf.Tensor, num_questions: int | tf.Tensor, n_best_size: int) -> dict[str, tf.Tensor]:
    """Returns the n-best list of each question. Of spans with equal texts only the best is listed.

    Args:
        texts: [C] string, the result of `span_texts`.
    Returns: with N, `n_best_size`, the best first and equal scores in the order of `spans`: `text` [Q, N] string,
        `start` and `end` [Q, N] int64, `start_score`, `end_score` and their sum `score` [Q, N] float32, `probability`
        [Q, N] float64, the softmax of the scores, and `num_answers` [Q] int64, the length of the list. Beyond that
        length a score is the lowest float32, and the rest "" or 0.
    """
    order = tf.argsort(spans.start_score + spans.end_score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(spans.question, order), stable=True))
    spans, texts = Spans(*(tf.gather(values, order) for values in spans)), tf.gather(texts, order)
    num_spans = tf.size(texts, tf.int64)
    place = tf.range(num_spans)
    text = tf.unique(spans.question * num_spans + tf.unique(texts, tf.int64).idx, tf.int64).idx  # of one question
    is_best = place == tf.gather(tf.math.unsorted_segment_min(place, text, num_spans), text)
    values = tf.boolean_mask(place, is_best), tf.boolean_mask(spans.question, is_best)
    chosen = tf.RaggedTensor.from_value_rowids(*values, tf.cast(num_questions, tf.int64), validate=False)
    listed = chosen.to_tensor(num_spans, shape=[None, n_best_size])  # [Q, N] indices, beyond the spans in padding
    is_span = listed < num_spans
    index = tf.boolean_mask(listed, is_span)
    best = Spans(*(tf.gather(values, index) for values in spans))
    place = tf.where(is_span)

    def dense(values: tf.Tensor, nothing: str | int | float) -> tf.Tensor:
        return tf.tensor_scatter_nd_update(tf.fill(tf.shape(listed), tf.constant(nothing, values.dtype)), place, values)

    score = dense(best.start_score + best.end_score, tf.float32.min)  # JSON has no infinity
    weights = tf.where(is_span, tf.exp(tf.cast(score - score[:, :1], tf.float64)), 0.0)
    return {
        "text": dense(tf.gather(texts, index), ""),
        "start": dense(best.start, 0),
        "end": dense(best.end, 0),
        "start_score": dense(best.start_score, tf.float32.min),
        "end_score": dense(best.end_score, tf.float32.min),
        "score": score,
        "probability": tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=1, keepdims=True)),
        "num_answers": tf.reduce_sum(tf.cast(is_span, tf.int64), axis=1),
    }


def null_odds(
    null_scores: tf.Tensor, question: tf.Tensor, listed: Mapping[str, tf.Tensor], has_classifier: bool
) -> tf.Tensor:
    """Returns null odds, [Q] float32: the smallest null score of a question's windows.

    Args:
        null_scores, question, listed: [W], of `window_null_scores`; [W], of each window; the result of `n_best`.
        has_classifier: True if the null scores are logits; else the score of the best span is subtracted.
    """
    odds = tf.math.unsorted_segment_min(null_scores, question, tf.size(listed["num_answers"]))
    odds = tf.minimum(odds, _ODDS_WITHOUT_WINDOW)
    if has_classifier:
        return odds
    less_best = odds - listed["start_score"][:, 0] - listed["end_score"][:, 0]
    return tf.where(listed["num_answers"] > 0, less_best, odds)


class ServedAnswers(ServedModel):
    """Serves `answer` and `embed`. Null odds above the setting `null_threshold` mean no answer; null: none do."""

    default, least_length = "answer", 5  # [CLS] question [SEP] token [SEP]
    has_windows = True

    def __init__(self, task: FinetuningTask, tokenizer: Tokenizer, shapes: ServingShapes):
        self._config = task.config.task
        super().__init__(task, tokenizer, shapes)

    def served(self) -> dict[str, Served]:
        answer: Served = (self._answer, self.texts("question", "context"))
        return {"answer": answer, "answer_ids": self.for_ids(self._head), **super().served()}

    def _answer(self, question: tf.Tensor, context: tf.Tensor) -> ServedOutputs:
        """The answers to questions. A long context is cut into overlapping windows, and all of them are searched.

        Args:
            question, context: [N] string, UTF-8; each invalid byte counts as a character.
        Returns:
            text: [N] string, the answer; "" if there is none.
            start, end: [N] int32, its first character (code point) in the context and its end (exclusive); 0 and 0
                without an answer.
            score: [N] float32, the sum of the log-probabilities of the start and the end of the best span (with the
                independent head, of their logits); the lowest float32 without a span.
            null_score: [N] float32, only for version 2; above the threshold there is no answer.
            nbest_text [N, K] string, nbest_start, nbest_end [N, K] int32, nbest_score [N, K] float32: the K best spans
                (`n_best_size`), whatever the null score is. Beyond `num_answers` a score is the lowest float32.
            nbest_probability: [N, K] float32, the softmax of these scores.
            num_answers: [N] int32, the number of spans in the list.
            truncated: [N] bool, whether the question or the end of the context was cut.
        """
        num_questions = tf.size(question)
        # One call for both inputs, so that the graph has the tokenizer's operations once.
        question, is_cut = cut_texts(question, max_bytes(self.shapes.max_seq_length))
        longest = max_bytes(self.shapes.max_seq_length, is_windowed=True)
        context, is_context_cut = cut_texts(context, longest)
        tokenized = self.tokenizer.tokenize_with_offsets(self.pairs(question, context))
        is_context_cut |= tokenized[0].row_lengths()[num_questions:] > longest
        tokens, token_starts, token_ends = (cut(each, longest) for each in tokenized)
        context_of = tf.range(num_questions, 2 * num_questions, dtype=tf.int64)
        query = cut_query(tokens[:num_questions], self.shapes.max_seq_length, self._config.max_query_length)
        truncated = is_cut | is_context_cut | (query.row_lengths() < tokens.row_lengths()[:num_questions])
        windows = context_windows(query, tokens, context_of, self.shapes.max_seq_length, self._config.doc_stride)
        rows = self.pack(windows.parts(query, tokens), least_width=self._beam)
        best = self._best_of_windows(rows)
        spans = allowed_spans(best, windows, token_starts.values, token_ends.values, self._config.max_answer_length)
        texts = span_texts(context, spans.question, spans.start, spans.end)
        listed = n_best(spans, texts, num_questions, self._config.n_best_size)
        types = {"start": tf.int32, "end": tf.int32, "probability": tf.float32}
        listed |= {name: tf.cast(listed[name], dtype) for name, dtype in types.items()}
        outputs = {name: listed[name][:, 0] for name in ("text", "start", "end", "score")}
        if self._config.version_2:
            null_score = null_odds(best["null_score"], windows.question, listed, self._config.answerable_classifier)
            outputs["null_score"] = null_score
            if self._config.null_threshold is not None:
                answered = tf.cast(null_score, tf.float64) <= self._config.null_threshold
                outputs |= {name: tf.where(answered, outputs[name], nothing) for name, nothing in _NO_ANSWER.items()}
        outputs |= {f"nbest_{name}": listed[name] for name in ("text", "start", "end", "score", "probability")}
        return {**outputs, "num_answers": tf.cast(listed["num_answers"], tf.int32), "truncated": truncated}

    def _head(self, rows: Rows) -> ServedOutputs:
        """The outputs of the head, for callers who choose spans themselves.

        Args:
            rows: [N, T] each: [CLS] question [SEP] context [SEP], segment 1 from the context on.
        Returns: with the joint head and K, its beam:
            start_top_index [N, K] int32, start_top_log_probs [N, K] float32: the best starts.
            end_top_index [N, K, K] int32, end_top_log_probs [N, K, K] float32: the best ends for each of them.
        With the independent head:
            start_logits, end_logits: [N, T] float32.
        With the classifier:
            answerable_logits: [N] float32, positive for "no answer".
        """
        task, batch = self.get_task(), rows._asdict()
        return task.outputs(batch, task(batch))

    @property
    def _beam(self) -> int:
        """K: the number of starts of a window that are considered, and of ends for each of them."""
        size = self._config.beam_size if self._config.joint_prediction else self._config.n_best_size
        return min(size, self.shapes.max_seq_length)

    def _best_of_windows(self, rows: Rows) -> ServedOutputs:
        """The best starts of windows [W, K], the best ends of each or of all starts [W, K or 1, K], and null scores."""
        starts, ends = [self._beam], [self._beam if self._config.joint_prediction else 1, self._beam]
        shapes: dict[str, tuple[list[int], tf.DType]] = {
            "start": (starts, tf.int32),
            "start_score": (starts, tf.float32),
            "end": (ends, tf.int32),
            "end_score": (ends, tf.float32),
        }
        if self._config.version_2:
            shapes["null_score"] = ([], tf.float32)

        def best_of(some_rows: Rows) -> ServedOutputs:
            outputs = self._head(some_rows)
            best = best_positions(outputs, some_rows.num_tokens, self._beam)
            return {**best, **({"null_score": window_null_scores(outputs)} if self._config.version_2 else {})}

        return in_blocks(best_of, rows, shapes)
