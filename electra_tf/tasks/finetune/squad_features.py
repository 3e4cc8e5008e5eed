"""Questions and their contexts as model input: long contexts are cut into overlapping windows.

`context_windows` cuts them here and in the graph of a served model. The ids, windows and positions are those of the
authors' code (finetune/qa/qa_tasks.py).
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.bucketing import Features
from electra_tf.tasks.finetune.squad import Question
from electra_tf.tasks.finetune.text_features import batches, encoded, joined_features
from electra_tf.text.packing import cut, join, numbered, slices
from electra_tf.text.tokenizer import BertTokenizer

# What ends a word for the authors. U+00A0 and other spaces do not.
_WORD = re.compile("[^ \t\r\n\u202f]+")


class ContextWindows(NamedTuple):
    """The windows of questions, one question after the other; a context without a token has none. [W] int64 each.

    A window's row is [CLS] question [SEP] part of the context [SEP].

    Attributes:
        question: the question of each window.
        position: where in the row the context begins.
        first_token: the token that stands there, as an index into the tokens of all contexts.
        length: tokens of the context in the window.
        is_max_context: [W, (tokens of the context)] bool, whether no other window has more context on both sides.
    """

    question: tf.Tensor
    position: tf.Tensor
    first_token: tf.Tensor
    length: tf.Tensor
    is_max_context: tf.RaggedTensor

    def parts(self, query: tf.RaggedTensor, contexts: tf.RaggedTensor) -> list[tf.RaggedTensor]:
        """The tokens of each window's question and of its part of the context, [W, (tokens)] each."""
        return [tf.gather(query, self.question), slices(contexts.values, self.first_token, self.length)]


def context_windows(
    query: tf.RaggedTensor, contexts: tf.RaggedTensor, context_of: tf.Tensor, max_seq_length: int, doc_stride: int
) -> ContextWindows:
    """Cuts the contexts of questions into windows. Each question must leave room for a token of its context.

    Args:
        query: [Q, (tokens)], the questions.        contexts: [C, (tokens)].
        context_of: [Q] int64, the context of each question.
        max_seq_length: tokens of the longest row.        doc_stride: tokens between the starts of two windows.
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
        is_max_context=_is_max_context(first_number, length),
    )


def _is_max_context(first_number: tf.Tensor, length: tf.Tensor) -> tf.RaggedTensor:
    """Marks each token of a context in the one window that has most context on both sides of it.

    A token's score in a window is the smaller of the numbers of tokens to its left and right, plus 1 % of the window's
    length, as in BERT's code; of equally good windows the first counts.

    Args:
        first_number: [W] int64, the number of each window's first token; a token has one number in all windows.
        length: [W] int64, tokens of each window.
    Returns: [W, (tokens)] bool.
    """
    left, right = tf.ragged.range(length).values, tf.ragged.range(length - 1, -1, -1).values
    score = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * tf.cast(left + 1 + right, tf.float64)
    token = tf.ragged.range(first_number, first_number + length).values
    num_tokens = tf.maximum(tf.reduce_max(token) + 1, 0)
    best = tf.math.unsorted_segment_max(score, token, num_tokens)
    place = tf.range(tf.size(token))
    first = tf.where(score == tf.gather(best, token), place, tf.size(token))
    is_first = place == tf.gather(tf.math.unsorted_segment_min(first, token, num_tokens), token)
    return tf.RaggedTensor.from_row_lengths(is_first, length, validate=False)


@dataclass(frozen=True)
class SquadWindows:
    """The windows of questions, and where each of their tokens stands in the context.

    Attributes:
        questions: all questions, including those without a window.
        features: [CLS] question [SEP] context [SEP], the last two parts with segment 1. `example_index` is the index
            in `questions`. Row targets for training: `start_positions`, `end_positions`, `is_impossible`.
        windows: a window for each row.
        token_starts, token_ends: int64, the first character and the end (exclusive) of each token of the distinct
            contexts, one context after another.
    """

    questions: Sequence[Question]
    features: Features
    windows: ContextWindows
    token_starts: tf.Tensor
    token_ends: tf.Tensor


def squad_windows(
    questions: Sequence[Question],
    tokenizer: BertTokenizer,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> SquadWindows:
    """The windows of all questions, for prediction.

    Args:
        max_seq_length: tokens of the longest window.        doc_stride: tokens between the starts of two windows.
        max_query_length: tokens after which a question is cut off.
    Raises: UserError: the lengths leave no room for the context.
    """
    contexts = _Contexts(questions, tokenizer)
    return _windows(questions, contexts, tokenizer, range(len(questions)), max_seq_length, doc_stride, max_query_length)


def training_windows(
    questions: Sequence[Question],
    tokenizer: BertTokenizer,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> tuple[SquadWindows, list[str]]:
    """The windows of questions with their first answers, for training.

    A window without the whole answer has both positions 0 ([CLS]) but is not impossible, as in the authors' code.
    A question is dropped if its answer is not found where it should stand. White space within an answer may differ, but
    an answer with a space that does not end a word (U+00A0) counts as not found, as in the authors' code.

    Args: as of `squad_windows`.
    Returns: the windows, and the ids of the questions that were dropped.
    Raises: UserError: a question has no answer and is not impossible, or the lengths leave no room for the context.
    """
    contexts = _Contexts(questions, tokenizer)
    spans = _answer_spans(questions, contexts, tokenizer)
    kept = [i for i, span in enumerate(spans) if span is not None]
    windows = _windows(questions, contexts, tokenizer, kept, max_seq_length, doc_stride, max_query_length)
    of_row = windows.features.example_index
    first, last = np.array([span or (0, 0) for span in spans], np.int64).reshape(-1, 2)[of_row].T
    is_impossible = np.array([question.is_impossible for question in questions], bool)[of_row]
    places = windows.windows
    from_window = places.first_token.numpy() - contexts.row_splits[contexts.of_question[of_row]]
    inside = ~is_impossible & (first >= from_window) & (last < from_window + places.length.numpy())
    shift = places.position.numpy() - from_window
    targets = {
        "start_positions": np.where(inside, first + shift, 0).astype(np.int32),
        "end_positions": np.where(inside, last + shift, 0).astype(np.int32),
        "is_impossible": is_impossible.astype(np.int32),
    }
    dropped = [question.id for question, span in zip(questions, spans, strict=True) if span is None]
    return replace(windows, features=replace(windows.features, row_targets=targets)), dropped


class _Contexts:
    """The distinct contexts of questions, each tokenized once.

    Attributes:
        texts: the contexts.        of_question: [Q] int64, the context of each question.
        tokens: [C, (tokens)] int32.        row_splits: [C + 1] int64, of these.
        starts, ends: of all tokens, one context after another: the first character and the end (exclusive).
    """

    def __init__(self, questions: Sequence[Question], tokenizer: BertTokenizer):
        index_of: dict[str, int] = {}
        self.of_question = np.array(
            [index_of.setdefault(question.context, len(index_of)) for question in questions], np.int64
        )
        self.texts = list(index_of)
        parts = [
            tokenizer.tokenize_with_offsets(encoded(self.texts[begin:end])) for begin, end in batches(len(self.texts))
        ]
        self.tokens, starts, ends = (tf.concat(each, axis=0) for each in zip(*parts, strict=True))
        self.row_splits = self.tokens.row_splits.numpy()
        self.starts, self.ends = starts.values, ends.values


def _windows(
    questions: Sequence[Question],
    contexts: _Contexts,
    tokenizer: BertTokenizer,
    chosen: Sequence[int],
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> SquadWindows:
    """The windows of the questions with the indices `chosen`, ascending."""
    rows, of_batches = [], []
    for begin, end in batches(len(chosen)):
        index = np.array(chosen[begin:end], np.int64)
        query = cut(tokenizer.tokenize(encoded([questions[i].question for i in chosen[begin:end]])), max_query_length)
        longest = max(query.row_lengths().numpy(), default=0)
        if longest + 4 > max_seq_length:
            raise UserError(
                f"max_seq_length {max_seq_length} leaves no room beside a question of {longest} tokens; raise it, or"
                f" lower max_query_length, now {max_query_length}"
            )
        windows = context_windows(query, contexts.tokens, contexts.of_question[index], max_seq_length, doc_stride)
        ids, segments = join(windows.parts(query, contexts.tokens), tokenizer.vocabulary)
        windows = windows._replace(question=tf.gather(index, windows.question))
        rows.append((ids, segments, windows.question))
        of_batches.append(windows)
    windows = ContextWindows(*(tf.concat(each, axis=0) for each in zip(*of_batches, strict=True)))
    return SquadWindows(questions, joined_features(rows), windows, contexts.starts, contexts.ends)


def _answer_spans(
    questions: Sequence[Question], contexts: _Contexts, tokenizer: BertTokenizer
) -> list[tuple[int, int] | None]:
    """The first and last token, in its context, of each question's first answer; (0, 0) if impossible, None if lost."""
    answered = [i for i, question in enumerate(questions) if not question.is_impossible]
    for i in answered:
        if not questions[i].answers:
            raise UserError(f"question {questions[i].id} has no answer, expected one; add it or is_impossible")
    spans: list[tuple[int, int] | None] = [(0, 0)] * len(questions)
    ids, starts = contexts.tokens.values.numpy(), contexts.starts.numpy()
    words_of = {i: list(_WORD.finditer(contexts.texts[i])) for i in np.unique(contexts.of_question[answered])}
    for begin, end in batches(len(answered)):
        batch = answered[begin:end]
        answers = tokenizer.tokenize(encoded([questions[i].answers[0].text for i in batch]))
        answer_ids, splits = answers.values.numpy(), answers.row_splits.numpy()
        for row, i in enumerate(batch):
            context = contexts.of_question[i]
            characters = _whole_words(questions[i], words_of[context])
            part = slice(contexts.row_splits[context], contexts.row_splits[context + 1])
            answer = answer_ids[splits[row] : splits[row + 1]].tolist()
            spans[i] = characters and _token_span(characters, starts[part], ids[part], answer)
    return spans


def _token_span(
    characters: tuple[int, int], starts: np.ndarray, ids: np.ndarray, answer: Sequence[int]
) -> tuple[int, int] | None:
    """The first and last of a context's tokens between two characters, narrowed to those of the answer if possible.

    The words of "1895" may be "(1895-1943)". None if there is no token.
    """
    first, end = np.searchsorted(starts, characters).tolist()
    candidates = ids[first:end].tolist()
    for i in range(len(candidates) - len(answer) + 1 if answer else 0):
        if candidates[i : i + len(answer)] == answer:
            return first + i, first + i + len(answer) - 1
    return (first, end - 1) if end > first else None


def _whole_words(question: Question, words: Sequence[re.Match]) -> tuple[int, int] | None:
    """The characters from the first word of the first answer to the word after the last; None if it is not there."""
    answer = question.answers[0]
    last = answer.start + len(answer.text) - 1
    cleaned = " ".join(answer.text.split()).lower()
    if not cleaned or answer.start < 0 or last >= len(question.context):
        return None
    # The last words that begin at or before these characters.
    from_word, to_word = (bisect_right(words, at, key=re.Match.start) - 1 for at in (answer.start, last))
    if from_word < 0 or cleaned not in " ".join(word.group() for word in words[from_word : to_word + 1]).lower():
        return None
    end = words[to_word + 1].start() if to_word + 1 < len(words) else len(question.context)
    return words[from_word].start(), end
