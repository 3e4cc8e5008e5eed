"""Questions with their contexts as model input; a long context is cut into overlapping windows.

Served models use the same `context_windows`. Ids, windows and positions are equal to those of the authors' code
(finetune/qa/qa_tasks.py), except for answers in training that it drops or misplaces, see `training_windows`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.features import batches, joined_features
from electra_tf.tasks.finetune.kind import EncodedExamples
from electra_tf.tasks.finetune.kinds.squad import Question
from electra_tf.text.packing import cut, cut_texts, is_max_context, join, max_bytes, numbered, slices
from electra_tf.text.tokenizer import Tokenizer

_NEAR = 16  # characters between where an answer should be and where it is


class ContextWindows(NamedTuple):
    """The windows of several questions, one question after the other: [W] int64 each.

    A window becomes a row [CLS] question [SEP] part of the context [SEP]. A context without tokens has no window.
    """

    question: tf.Tensor  # the index of the window's question
    position: tf.Tensor  # the position in the row at which the context begins
    first_token: tf.Tensor  # the context's first token in the window, as an index into the tokens of all contexts
    length: tf.Tensor  # the number of the context's tokens in the window
    is_max_context: tf.RaggedTensor  # [W, (tokens)] bool, True in the window in which the token has the most context

    def parts(self, query: tf.RaggedTensor, contexts: tf.RaggedTensor) -> list[tf.RaggedTensor]:
        """Returns the tokens of each window's question and of its part of the context, [W, (tokens)] each."""
        return [tf.gather(query, self.question), slices(contexts.values, self.first_token, self.length)]


def context_windows(
    query: tf.RaggedTensor, contexts: tf.RaggedTensor, context_of: tf.Tensor, max_seq_length: int, doc_stride: int
) -> ContextWindows:
    """Cuts the contexts of questions into windows.

    Args:
        query, contexts: [Q, (tokens)] int32, the result of `cut_query`; and [C, (tokens)] int32.
        context_of: [Q] int64, the index of each question's context.
        max_seq_length, doc_stride: see `squad_windows`.
    """
    room = max_seq_length - 3 - query.row_lengths()  # beside [CLS] and two [SEP]
    stride = tf.minimum(room, doc_stride)
    num_tokens = tf.gather(contexts.row_lengths(), context_of)
    num_windows = 1 - (-tf.maximum(num_tokens - room, 0) // stride)
    question, number = numbered(tf.where(num_tokens > 0, num_windows, 0))
    offset = number * tf.gather(stride, question)
    length = tf.minimum(tf.gather(room, question), tf.gather(num_tokens, question) - offset)
    # Tokens are numbered as if each question had a copy of its context.
    first_number = tf.gather(tf.cumsum(num_tokens, exclusive=True), question) + offset
    return ContextWindows(
        question=question,
        position=tf.gather(query.row_lengths(), question) + 2,
        first_token=tf.gather(contexts.row_starts(), tf.gather(context_of, question)) + offset,
        length=length,
        is_max_context=is_max_context(tf.ragged.range(first_number, first_number + length)),
    )


def cut_query(query: tf.RaggedTensor, max_seq_length: int, max_query_length: int) -> tf.RaggedTensor:
    """The first tokens of questions: as many as are allowed, and as leave room for a token of the context."""
    return cut(query, min(max_query_length, max_seq_length - 4))  # [CLS] question [SEP] token [SEP]


@dataclass(frozen=True, kw_only=True)
class SquadWindows(EncodedExamples):
    """The windows of questions as features, and the characters of each token.

    A row of the features is [CLS] question [SEP] context [SEP], of which the last two parts have segment 1; the
    targets for training are `start_positions`, `end_positions` and `is_impossible`. A question is truncated, too, if
    its context is longer than the windows reach.
    """

    questions: Sequence[Question]  # all, including those without a window
    windows: ContextWindows  # of the rows
    token_starts: tf.Tensor  # [tokens] int64, the first character of each token of all distinct contexts
    token_ends: tf.Tensor  # exclusive


class Contexts:
    """The C distinct contexts of Q questions, each tokenized once, up to `max_bytes` bytes and tokens.

    Attributes:
        of_question, is_cut: [Q] int64, the context of each question; [C] bool, whether a context has more bytes.
        tokens: [C, (tokens)] int32.
        starts, ends: [tokens] int64, the first character and the end (exclusive) of each token of all contexts.
    """

    def __init__(self, questions: Sequence[Question], tokenizer: Tokenizer, max_seq_length: int):
        if tokenizer.segmenter:
            raise UserError(
                "answers are found in the text as it is given, so that no program cuts it into words here; give "
                "segment=none, and questions, contexts and answers that it has cut"
            )
        index_of: dict[str, int] = {}
        of_question = [index_of.setdefault(question.context, len(index_of)) for question in questions]
        self.of_question = np.array(of_question, np.int64)
        contexts, longest, parts = list(index_of), max_bytes(max_seq_length, is_windowed=True), []
        for begin, end in batches(len(contexts)):
            texts, is_cut = cut_texts(tf.constant(contexts[begin:end], tf.string), longest)
            parts.append([is_cut, *(cut(each, longest) for each in tokenizer.tokenize_with_offsets(texts))])
        is_cut, self.tokens, starts, ends = (tf.concat(each, axis=0) for each in zip(*parts, strict=True))
        self.is_cut, self.starts, self.ends = is_cut.numpy(), starts.values, ends.values


def squad_windows(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    contexts: Contexts | None = None,
    chosen: Sequence[int] | None = None,
) -> SquadWindows:
    """Returns the windows of questions.

    Args:
        max_seq_length: tokens of the longest row.
        doc_stride: tokens between the starts of two windows.
        max_query_length: tokens after which a question is truncated, see `cut_query`.
        contexts: those of the questions, if they have been tokenized before.
        chosen: the indices of the questions that get windows, ascending; None: all.
    """
    contexts = contexts or Contexts(questions, tokenizer, max_seq_length)
    chosen = range(len(questions)) if chosen is None else chosen
    rows, of_batches, num_truncated = [], [], 0
    for begin, end in batches(len(chosen)):
        index = np.array(chosen[begin:end], np.int64)
        texts = tf.constant([questions[i].question for i in index], tf.string)
        whole = tokenizer.tokenize(cut_texts(texts, max_bytes(max_seq_length))[0])
        of_context = contexts.of_question[index]
        query = cut_query(whole, max_seq_length, max_query_length)
        num_truncated += np.count_nonzero((whole.row_lengths() > query.row_lengths()) | contexts.is_cut[of_context])
        windows = context_windows(query, contexts.tokens, of_context, max_seq_length, doc_stride)
        ids, segments = join(windows.parts(query, contexts.tokens), tokenizer.vocabulary)
        windows = windows._replace(question=tf.gather(index, windows.question))
        rows.append((ids, segments, windows.question))
        of_batches.append(windows)
    return SquadWindows(
        joined_features(rows),
        num_truncated,
        questions=questions,
        windows=ContextWindows(*(tf.concat(each, axis=0) for each in zip(*of_batches, strict=True))),
        token_starts=contexts.starts,
        token_ends=contexts.ends,
    )


def training_windows(
    questions: Sequence[Question], tokenizer: Tokenizer, **lengths: int
) -> tuple[SquadWindows, list[str]]:
    """Returns the windows of questions with their first answers, for training.

    A window without the whole answer has both positions 0 ([CLS]) but is not impossible, as in the authors' code.
    A question is dropped if its answer is not in the context, near its start; case and white space may differ. The
    tokens that hold characters of the nearest such place are its span. The authors' code searches the answer's tokens
    in its words, takes the first ones found ("50" in "50-50"), all of the words if there are none, and drops U+00A0.

    Args: questions, lengths: each has an answer or is impossible; see `squad_windows`.
    Returns: the windows, and the ids of the dropped questions.
    """
    contexts = Contexts(questions, tokenizer, lengths["max_seq_length"])
    starts, ends, splits = (each.numpy() for each in (contexts.starts, contexts.ends, contexts.tokens.row_splits))
    parts = [slice(*splits[context : context + 2]) for context in contexts.of_question]
    spans = [_answer_span(each, starts[part], ends[part]) for each, part in zip(questions, parts, strict=True)]
    kept = [i for i, span in enumerate(spans) if span is not None]
    windows = squad_windows(questions, tokenizer, **lengths, contexts=contexts, chosen=kept)
    of_row = windows.features.example_index
    is_impossible = np.array([question.is_impossible for question in questions], bool)[of_row]
    position, first_token, length = (each.numpy() for each in windows.windows[1:4])
    in_context = np.array([span or (0, 0) for span in spans], np.int64).reshape(-1, 2)[of_row].T
    first, last = in_context + splits[contexts.of_question[of_row]]  # numbered as `first_token`
    inside = ~is_impossible & (first >= first_token) & (last < first_token + length)
    shift = position - first_token
    targets = {
        "start_positions": np.where(inside, first + shift, 0).astype(np.int32),
        "end_positions": np.where(inside, last + shift, 0).astype(np.int32),
        "is_impossible": is_impossible.astype(np.int32),
    }
    dropped = [question.id for question, span in zip(questions, spans, strict=True) if span is None]
    return replace(windows, features=replace(windows.features, row_targets=targets)), dropped


def _answer_span(
    question: Question, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[int, int] | None:
    """The first and last token that hold characters of an answer; (0, 0) if it is impossible, None to drop it."""
    if question.is_impossible:
        return 0, 0
    text, start = question.answers[0].text, question.answers[0].start
    if start < 0:
        return None
    around = question.context[(offset := max(start - _NEAR, 0)) : start + len(text) + _NEAR]
    found = re.finditer(r"\s+".join(map(re.escape, text.split())), around, re.IGNORECASE)
    nearest = min(found, key=lambda match: abs(offset + match.start() - start), default=None)
    if nearest is None:
        return None
    first = np.searchsorted(ends, offset + nearest.start(), side="right")
    last = np.searchsorted(starts, offset + nearest.end()) - 1
    return (int(first), int(last)) if first <= last else None
