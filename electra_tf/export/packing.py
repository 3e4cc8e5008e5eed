"""Text as model input, inside the served graph: tokens, cut or in windows, as padded rows.

What `electra_tf.tasks.finetune.text_features` does with NumPy for a whole split, as TensorFlow operations for a call.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from electra_tf.text.vocabulary import Vocabulary


class Tokens(NamedTuple):
    """The tokens of R texts: those of text i are `length[i]` of `ids`, from `start[i]` on.

    Attributes:
        ids: [tokens] int32.        start, length: [R] int64.
    """

    ids: tf.Tensor
    start: tf.Tensor
    length: tf.Tensor


class Rows(NamedTuple):
    """Model input, [R, T] int32 each."""

    input_ids: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor

    @property
    def num_tokens(self) -> tf.Tensor:
        """[R] int32, special tokens included."""
        return tf.reduce_sum(self.input_mask, axis=1)


def tokens_of(ids: tf.RaggedTensor) -> Tokens:
    """The tokens of [R, (tokens)] ids."""
    return Tokens(ids.values, ids.row_starts(), ids.row_lengths())


def joined_pairs(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """[N] and [N] string as one [2 N], to be tokenized by one set of operations; `halves` parts the tokens again."""
    message = "expected as many texts in the second input as in the first"
    with tf.control_dependencies([tf.debugging.assert_equal(tf.size(first), tf.size(second), message)]):
        return tf.concat([first, second], axis=0)


def halves(tokens: Tokens) -> tuple[Tokens, Tokens]:
    """The tokens of the first R / 2 texts, and of the others."""
    middle = tf.size(tokens.start) // 2
    first, second = (
        Tokens(tokens.ids, tokens.start[part], tokens.length[part]) for part in (slice(middle), slice(middle, None))
    )
    return first, second


def cut(tokens: Tokens, room: int) -> Tokens:
    """At most `room` tokens of each text."""
    return tokens._replace(length=tf.minimum(tokens.length, tf.constant(room, tf.int64)))


def cut_pair(first: Tokens, second: Tokens, room: int) -> list[Tokens]:
    """Both texts cut so that the longer one lost its end first; of an odd room the first text has one token more."""
    half = tf.constant((room + 1) // 2, tf.int64)
    first_length = tf.minimum(first.length, tf.maximum(room - second.length, half))
    second_length = tf.minimum(second.length, room - first_length)
    return [first._replace(length=first_length), second._replace(length=second_length)]


def windows(tokens: Tokens, room: int, stride: int) -> tuple[Tokens, tf.Tensor]:
    """Windows of at most `room` tokens, each `stride` tokens after the last; the last one ends with its text.

    Returns: the windows, in the order of the texts, and the text of each [W] int64. Each text has one or more.
    """
    too_many = tf.maximum(tokens.length - room, 0)
    num_windows = 1 - (-too_many // stride)
    text, number = numbered(num_windows)
    offset = tf.minimum(number * stride, tf.gather(too_many, text))
    length = tf.minimum(tf.gather(tokens.length, text) - offset, room)
    return Tokens(tokens.ids, tf.gather(tokens.start, text) + offset, length), text


def numbered(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """For `counts[i]` things of each i: their i, and 0, 1, ... within it; both [sum of counts] int64."""
    each = tf.ragged.range(counts)
    return each.value_rowids(), each.values


def pack(parts: Sequence[Tokens], vocabulary: Vocabulary, width: int | None, least_width: int = 2) -> Rows:
    """Rows of [CLS], and of each part its tokens and [SEP]; segment 0 up to the first [SEP], then 1.

    Args:
        parts: one or two, of the same R texts, that fit.
        width: tokens of a row, filled up with padding; None for those of the longest, at least `least_width`.
    """
    total = tf.add_n([part.length + 1 for part in parts]) + 1
    if width is None:
        # Never of width 0: a call without a single text has a [CLS] column too.
        width = tf.maximum(tf.reduce_max(total), least_width)
    position = tf.range(width, dtype=tf.int64)[tf.newaxis]  # [1, T]
    input_ids = tf.where(position == 0, vocabulary.cls_id, vocabulary.pad_id)
    segment_ids, begin = tf.constant(0), tf.ones_like(total)
    for segment, part in enumerate(parts):
        at, length = position - begin[:, tf.newaxis], part.length[:, tf.newaxis]  # [R, T], [R, 1]
        # One id more, so that there is one to gather where there is no text at all.
        ids = tf.concat([part.ids, [vocabulary.pad_id]], axis=0)
        inside = (at >= 0) & (at < length)
        index = tf.where(inside, part.start[:, tf.newaxis] + at, tf.size(part.ids, tf.int64))
        input_ids = tf.where(inside, tf.gather(ids, index), input_ids)
        input_ids = tf.where(at == length, vocabulary.sep_id, input_ids)
        segment_ids += segment * tf.cast(inside | (at == length), tf.int32)
        begin += part.length + 1
    input_mask = tf.cast(position < total[:, tf.newaxis], tf.int32)
    return Rows(input_ids, input_mask, segment_ids + tf.zeros_like(input_mask))
