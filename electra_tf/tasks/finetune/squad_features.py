"""Questions and their contexts as model input: long contexts are cut into overlapping windows.

Each distinct text is tokenized once, many in one call; all else is arithmetic on flat arrays. The ids, windows and
positions are those of the authors' code (finetune/qa/qa_tasks.py), which does this question by question.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.features import Features, ranges
from electra_tf.tasks.finetune.squad import Question
from electra_tf.text.tokenizer import BertTokenizer

_LINES_PER_CALL = 2048  # of the tokenizer
# What ends a word for the authors. U+00A0 and other spaces do not.
_WORD = re.compile("[^ \t\r\n\u202f]+")


@dataclass(frozen=True)
class SquadWindows:
    """The windows of questions, and where each of their tokens stands in the context.

    With N windows, T tokens in all of them, and the tokens of all distinct contexts one after another:

    Attributes:
        questions: those that were given, also such as have no window.
        features: [CLS] question [SEP] context [SEP], the last three parts with segments 0, 1, 1. `example_index` is
            the index in `questions`. Row targets for training: `start_positions`, `end_positions`, `is_impossible`.
        context_position: [N] int64, the position in the row at which the context begins.
        first_token: [N] int64, the token that stands there, as an index into the next two.
        token_starts, token_ends: int64, the first character and the end (exclusive) of each token of the contexts.
        is_max_context: [T] bool, whether no other window has more context on both sides of the token. Only for
            tokens of the context; others have False.
    """

    questions: Sequence[Question]
    features: Features
    context_position: np.ndarray
    first_token: np.ndarray
    token_starts: np.ndarray
    token_ends: np.ndarray
    is_max_context: np.ndarray


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
    tokens = _Tokens(questions, tokenizer)
    return _windows(tokens, np.arange(len(questions)), max_seq_length, doc_stride, max_query_length)


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
    A question is dropped whose answer is not found where it should stand. White space within an answer may differ, but
    an answer with a space that does not end a word (U+00A0) counts as not found, as in the authors' code.

    Args: as of `squad_windows`.
    Returns: the windows, and the ids of the questions that were dropped.
    Raises: UserError: a question has no answer and is not impossible, or the lengths leave no room for the context.
    """
    tokens = _Tokens(questions, tokenizer)
    spans = _answer_spans(tokens, tokenizer)
    kept = [i for i, span in enumerate(spans) if span is not None]
    windows = _windows(tokens, np.array(kept, np.int64), max_seq_length, doc_stride, max_query_length)
    of_row = windows.features.example_index
    first, last = np.array([span or (0, 0) for span in spans], np.int64).reshape(-1, 2)[of_row].T
    is_impossible = np.array([question.is_impossible for question in questions], bool)[of_row]
    num_tokens = windows.features.lengths - windows.context_position - 1
    from_window = windows.first_token - tokens.splits[tokens.context_of[of_row]]
    inside = ~is_impossible & (first >= from_window) & (last < from_window + num_tokens)
    shift = windows.context_position - from_window
    targets = {
        "start_positions": np.where(inside, first + shift, 0).astype(np.int32),
        "end_positions": np.where(inside, last + shift, 0).astype(np.int32),
        "is_impossible": is_impossible.astype(np.int32),
    }
    dropped = [question.id for question, span in zip(questions, spans, strict=True) if span is None]
    return replace(windows, features=replace(windows.features, row_targets=targets)), dropped


class _Tokens:
    """The tokens of questions and of their distinct contexts.

    Attributes:
        context_of: [Q] int64, the context of each question; `contexts` are their texts.
        ids, starts, ends: of all tokens of all contexts; those of context i stand from `splits[i]` to `splits[i + 1]`.
        query_ids, query_splits: of the questions, alike.
    """

    def __init__(self, questions: Sequence[Question], tokenizer: BertTokenizer):
        index_of: dict[str, int] = {}
        self.questions = questions
        self.context_of = np.array(
            [index_of.setdefault(question.context, len(index_of)) for question in questions], np.int64
        )
        self.contexts = list(index_of)
        self.ids, self.starts, self.ends, self.splits = _tokenized(
            self.contexts, tokenizer.tokenize_with_offsets, width=3
        )
        self.query_ids, self.query_splits = _tokenized(
            [question.question for question in questions], lambda texts: (tokenizer.tokenize(texts),), width=1
        )
        vocabulary = tokenizer.vocabulary
        self.cls_id, self.sep_id = vocabulary.cls_id, vocabulary.sep_id


def _tokenized(
    texts: Sequence[str], tokenize: Callable[[tf.Tensor], tuple[tf.RaggedTensor, ...]], width: int
) -> tuple[np.ndarray, ...]:
    """The `width` results of a tokenizer's function for all texts, flat, and then their splits [texts + 1] int64."""
    flat: list[list[np.ndarray]] = [[np.zeros(0, np.int64)] for _ in range(width)]
    lengths = [np.zeros(1, np.int64)]
    for begin in range(0, len(texts), _LINES_PER_CALL):
        # A lone surrogate, which JSON may hold, is no character of UTF-8.
        lines = [text.encode("utf-8", "replace") for text in texts[begin : begin + _LINES_PER_CALL]]
        parts = tokenize(tf.constant(lines, tf.string))
        for values, part in zip(flat, parts, strict=True):
            values.append(part.values.numpy())
        lengths.append(parts[0].row_lengths().numpy())
    return *map(np.concatenate, flat), np.cumsum(np.concatenate(lengths))


def _windows(
    tokens: _Tokens, chosen: np.ndarray, max_seq_length: int, doc_stride: int, max_query_length: int
) -> SquadWindows:
    """The windows of the questions with the indices `chosen`, ascending."""
    num_context = np.diff(tokens.splits)[tokens.context_of[chosen]]
    num_query = np.minimum(np.diff(tokens.query_splits)[chosen], max_query_length)
    room = max_seq_length - num_query - 3  # [CLS] and two [SEP]
    if room.size and room.min() < 1:
        raise UserError(
            f"max_seq_length {max_seq_length} leaves no room beside a question of {num_query.max()} tokens; raise it,"
            f" or lower max_query_length, now {max_query_length}"
        )
    stride = np.minimum(room, doc_stride)
    num_windows = np.where(num_context > 0, 1 + -(-np.maximum(num_context - room, 0) // stride), 0)
    which = np.repeat(np.arange(len(chosen)), num_windows)  # [N], into `chosen`
    begin = _counted(num_windows) * stride[which]  # [N], the first token of the window in its context
    length = np.minimum(room[which], num_context[which] - begin)
    num_query, question = num_query[which], chosen[which]
    splits = np.concatenate([[0], np.cumsum(num_query + length + 3)])
    context_position = num_query + 2
    first_token = tokens.splits[tokens.context_of[question]] + begin

    input_ids = np.full(splits[-1], tokens.sep_id, np.int32)
    input_ids[splits[:-1]] = tokens.cls_id
    query_from = tokens.query_splits[question]
    input_ids[ranges(splits[:-1] + 1, num_query)] = tokens.query_ids[ranges(query_from, num_query)]
    in_context = ranges(splits[:-1] + context_position, length)
    input_ids[in_context] = tokens.ids[ranges(first_token, length)]
    segment_ids = np.zeros(splits[-1], np.int32)
    segment_ids[ranges(splits[:-1] + context_position, length + 1)] = 1  # the last [SEP] too
    is_max_context = np.zeros(splits[-1], bool)
    is_max_context[in_context] = _is_max_context(
        begin, length, num_windows[which], _counted(num_windows), stride[which], room[which], num_context[which]
    )
    return SquadWindows(
        questions=tokens.questions,
        features=Features(input_ids, segment_ids, splits, question.astype(np.int32)),
        context_position=context_position,
        first_token=first_token,
        token_starts=tokens.starts,
        token_ends=tokens.ends,
        is_max_context=is_max_context,
    )


def _is_max_context(begin, length, num_windows, index, stride, room, num_context) -> np.ndarray:
    """Whether each context token of each window has its best window there; of equally good ones the first.

    A token's score in a window is the smaller of the numbers of tokens to its left and right, plus 1 % of the window's
    length, as in BERT's code. Only windows at most `room / stride` away can hold the token too.

    Args: of each window [N] int64: its first token and length, how many windows the question has, which of them it is,
        tokens between two of them, tokens of a full one, and tokens of the context.
    Returns: [sum of lengths] bool.
    """
    window = np.repeat(np.arange(len(begin)), length)
    token = begin[window] + _counted(length)

    def score(first: np.ndarray, size: np.ndarray, token: np.ndarray) -> np.ndarray:
        return np.minimum(token - first, first + size - 1 - token) + 0.01 * size

    best = np.ones(len(token), bool)
    shared = np.flatnonzero(num_windows[window] > 1)
    window, token = window[shared], token[shared]
    own = score(begin[window], length[window], token)
    farthest = int(np.max(-(-room // stride), initial=0)) if len(shared) else 0
    for away in (*range(-farthest, 0), *range(1, farthest + 1)):
        first = begin[window] + away * stride[window]
        size = np.minimum(room[window], num_context[window] - first)
        exists = (index[window] + away >= 0) & (index[window] + away < num_windows[window])
        holds = exists & (token >= first) & (token < first + size)
        other = score(first, size, token)
        best[shared] &= ~(holds & ((other > own) | ((other == own) & (away < 0))))
    return best


def _answer_spans(tokens: _Tokens, tokenizer: BertTokenizer) -> list[tuple[int, int] | None]:
    """The first and last token, in its context, of each question's first answer; (0, 0) if impossible, None if lost."""
    answered = [i for i, question in enumerate(tokens.questions) if not question.is_impossible]
    for i in answered:
        if not tokens.questions[i].answers:
            raise UserError(f"question {tokens.questions[i].id} has no answer, expected one; add it or is_impossible")
    answer_texts = [tokens.questions[i].answers[0].text for i in answered]
    answer_ids, answer_splits = _tokenized(answer_texts, lambda texts: (tokenizer.tokenize(texts),), width=1)
    # Each context has a range of its own, so that one search serves all.
    offsets = np.cumsum([0, *(len(context) + 1 for context in tokens.contexts)])
    keys = tokens.starts + np.repeat(offsets[:-1], np.diff(tokens.splits))
    words_of = {i: list(_WORD.finditer(tokens.contexts[i])) for i in np.unique(tokens.context_of[answered])}
    spans: list[tuple[int, int] | None] = [(0, 0)] * len(tokens.questions)
    bounds = np.zeros([len(answered), 2], np.int64)
    for row, i in enumerate(answered):
        context = tokens.context_of[i]
        characters = _whole_words(tokens.questions[i], words_of[context])
        spans[i] = characters
        bounds[row] = offsets[context] + np.array(characters or (0, 0))
    first, last = np.searchsorted(keys, bounds).T - [[0], [1]]
    for row, i in enumerate(answered):
        if spans[i] is not None:
            wanted = answer_ids[answer_splits[row] : answer_splits[row + 1]].tolist()
            start = _narrowed(tokens.ids[first[row] : last[row] + 1].tolist(), wanted)
            span = (
                (first[row], last[row]) if start is None else (first[row] + start, first[row] + start + len(wanted) - 1)
            )
            base = tokens.splits[tokens.context_of[i]]
            spans[i] = (int(span[0] - base), int(span[1] - base)) if span[0] <= span[1] else None
    return spans


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


def _narrowed(ids: Sequence[int], wanted: Sequence[int]) -> int | None:
    """Where the tokens of an answer, tokenized alone, first stand among those of its words; None if nowhere.

    The words of "1895" may be "(1895-1943)": so the span of tokens is narrowed to the answer if it can be.
    """
    if not wanted:
        return None
    return next((i for i in range(len(ids) - len(wanted) + 1) if ids[i : i + len(wanted)] == wanted), None)


def _counted(lengths: np.ndarray) -> np.ndarray:
    """0, 1, ..., length - 1 for each length, one after another."""
    return ranges(np.zeros_like(lengths), lengths)
