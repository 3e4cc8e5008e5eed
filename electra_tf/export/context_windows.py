"""The overlapping windows of contexts that are too long, inside the served graph.

As `electra_tf.tasks.finetune.squad_features` cuts them for training and prediction.
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf.export.packing import Tokens, numbered


class ContextWindows(NamedTuple):
    """The windows of N questions, one question after the other; each has one or more. All [W] int64.

    Attributes:
        question: of each window.        number, num_windows: which of the question's windows it is, and of how many.
        query_length: tokens of the question.
        begin, length: the window's first token in its context, and how many it has.
        context_length: tokens of the whole context.
        room, stride: tokens of a full window, and from one window to the next.
    """

    question: tf.Tensor
    number: tf.Tensor
    num_windows: tf.Tensor
    query_length: tf.Tensor
    begin: tf.Tensor
    length: tf.Tensor
    context_length: tf.Tensor
    room: tf.Tensor
    stride: tf.Tensor

    @property
    def position(self) -> tf.Tensor:
        """Where in the window's row the context begins: after [CLS] question [SEP]."""
        return self.query_length + 2

    def parts(self, query: Tokens, context: Tokens) -> list[Tokens]:
        """The tokens of each window's question and context."""
        in_context = tf.gather(context.start, self.question) + self.begin
        in_query = tf.gather(query.start, self.question)
        return [Tokens(query.ids, in_query, self.query_length), Tokens(context.ids, in_context, self.length)]


def context_windows(query: Tokens, context: Tokens, max_seq_length: int, doc_stride: int) -> ContextWindows:
    """The windows of questions that leave room for a token of the context; one window where it has no token.

    Args:
        max_seq_length: tokens of the longest row.        doc_stride: tokens between the starts of two windows.
    """
    room = max_seq_length - 3 - query.length  # [CLS] and two [SEP]
    stride = tf.minimum(room, doc_stride)
    num_windows = 1 - (-tf.maximum(context.length - room, 0) // stride)
    question, number = numbered(num_windows)
    of_questions = (num_windows, query.length, context.length, room, stride)
    num_windows, query_length, context_length, room, stride = (tf.gather(each, question) for each in of_questions)
    begin = number * stride
    length = tf.minimum(room, context_length - begin)
    return ContextWindows(
        question, number, num_windows, query_length, begin, length, context_length, room, stride
    )  # fmt: skip


def is_max_context(windows: ContextWindows, token: tf.Tensor, farthest: int) -> tf.Tensor:
    """Whether no other window of the question has more context on both sides of a token.

    A token's score in a window is the smaller of the numbers of tokens to its left and right, plus 1 % of the window's
    length, as in BERT's code; of equally good windows the first counts.

    Args:
        token: [W, K] int64, tokens of each window, numbered as in its context.
        farthest: how many windows away another one can hold the same token.
    Returns: [W, K] bool.
    """
    away = tf.constant([step for step in range(-farthest, farthest + 1) if step], tf.int64)
    token = token[:, :, tf.newaxis]  # [W, K, 1]; the others get [W, 1, 1]
    number, num_windows, begin, length, context_length, room, stride = (
        values[:, tf.newaxis, tf.newaxis]
        for values in (windows.number, windows.num_windows, windows.begin, windows.length, windows.context_length,
                       windows.room, windows.stride)
    )  # fmt: skip

    def score(first: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        least = tf.minimum(token - first, first + size - 1 - token)
        return tf.cast(least, tf.float64) + 0.01 * tf.cast(size, tf.float64)

    first = begin + away * stride
    size = tf.minimum(room, context_length - first)
    exists = (number + away >= 0) & (number + away < num_windows)
    holds = exists & (token >= first) & (token < first + size)  # [W, K, windows away]
    own, other = score(begin, length), score(first, size)
    return ~tf.reduce_any(holds & ((other > own) | ((other == own) & (away < 0))), axis=2)
