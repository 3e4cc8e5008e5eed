"""Turns tokens into model input: cuts texts, splits them into windows, joins them to [CLS] a [SEP] b [SEP].

Training, `--predict` and the graph of a SavedModel use these functions. The tokens of N texts are a ragged tensor
[N, (tokens)] int32.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import Vocabulary

# A text is read up to this number of bytes for each token of a row, so that no text takes long. The longest pieces of
# SentencePiece have 16 characters, which are 64 bytes at most; of English, a token has 5 bytes.
BYTES_PER_TOKEN = 64
WINDOWED_ROWS = 16  # a text that is cut into windows is read up to the bytes of so many rows
_FIRST_BYTES = 0xF0, 0xE0, 0xC0  # the lowest first bytes of UTF-8 characters of 4, 3 and 2 bytes


class Rows(NamedTuple):
    """Model input of R rows with T tokens, [R, T] int32 each."""

    input_ids: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor

    @property
    def num_tokens(self) -> tf.Tensor:
        """[R] int32, special tokens included."""
        return tf.reduce_sum(self.input_mask, axis=1)


def slices(values: tf.Tensor, start: tf.Tensor, length: tf.Tensor) -> tf.RaggedTensor:
    """Parts of a flat tensor, [R, (values)]: `length[i]` values from `start[i]` on; both [R] int64."""
    index = tf.ragged.range(start, start + length)
    return index.with_values(tf.gather(values, index.values))


def numbered(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The group of each item and its number 0, 1, ... in the group, int64, if each group i has `counts[i]` items."""
    each = tf.ragged.range(counts)
    return each.value_rowids(), each.values


def max_bytes(max_seq_length: int, is_windowed: bool = False) -> int:
    """The number of bytes up to which a text is read, and the number of tokens that are kept of it.

    A character of three bytes may be normalized to 18, so that a text has more tokens than bytes.

    Args:
        max_seq_length: tokens of the longest row, special ones included.
        is_windowed: whether a longer text is cut into windows; otherwise it is truncated.
    """
    return BYTES_PER_TOKEN * max_seq_length * (WINDOWED_ROWS if is_windowed else 1)


def cut_texts(texts: tf.Tensor, longest: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts texts at the end of a character; an invalid byte is one.

    Args:
        texts: [N] string, UTF-8.        longest: the number of bytes, or [N] int32.
    Returns: the texts [N], and whether each was cut: [N] bool.
    """
    num_bytes = tf.strings.length(texts)
    kept, zero = tf.minimum(num_bytes, longest), tf.zeros_like(num_bytes)
    # A character that is divided begins in one of the last three bytes.
    last = tf.strings.substr(tf.strings.join(["...", tf.strings.substr(texts, zero, kept)]), kept, zero + 3)
    begins = tf.io.decode_raw(last, tf.uint8, fixed_length=3) >= tf.constant(_FIRST_BYTES, tf.uint8)
    divided = tf.reduce_max(tf.where(begins, [3, 2, 1], 0), axis=1)
    kept, is_cut = tf.where(kept < num_bytes, kept - divided, kept), kept < num_bytes
    return tf.strings.substr(texts, zero, kept), is_cut


def cut(tokens: tf.RaggedTensor, length: int | tf.Tensor) -> tf.RaggedTensor:
    """Keeps the first `length` tokens of each text, or `length[i]` [N] int64 of text i."""
    return slices(tokens.values, tokens.row_starts(), tf.minimum(tokens.row_lengths(), length))


def cut_pair(first: tf.RaggedTensor, second: tf.RaggedTensor, room: int) -> list[tf.RaggedTensor]:
    """Cuts pairs to `room` tokens: the longer text, of equal ones the second, loses its last token until they fit."""
    lengths = first.row_lengths(), second.row_lengths()
    first_length = tf.minimum(lengths[0], tf.maximum(room - lengths[1], (room + 1) // 2))
    return [cut(first, first_length), cut(second, room - first_length)]


def cut_contexts(
    contexts: tf.RaggedTensor, choices: tf.RaggedTensor, context_of: tf.Tensor, room: int
) -> list[tf.RaggedTensor]:
    """The context of each of R choices, and the choice: the context loses its end until both fit into `room` tokens.

    A choice loses its end only if it does not fit alone. `context_of` [R] int64 is the index of its context.
    """
    choices = cut(choices, room)
    lengths = tf.minimum(tf.gather(contexts.row_lengths(), context_of), room - choices.row_lengths())
    return [slices(contexts.values, tf.gather(contexts.row_starts(), context_of), lengths), choices]


def windows(tokens: tf.RaggedTensor, room: int, stride: int) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Cuts texts into overlapping windows of at most `room` tokens; the last window of a text ends where the text ends.

    Args:
        stride: the distance between the starts of two windows in tokens, at most `room`.
    Returns: the windows [W, (tokens)] in the order of the texts, at least one for each; and their texts, [W] int64.
    Raises: UserError: the stride is longer than a window.
    """
    if not 1 <= stride <= room:
        raise UserError(f"stride is {stride}, expected 1 to {room}, the number of tokens between [CLS] and [SEP]")
    lengths = tokens.row_lengths()
    too_many = tf.maximum(lengths - room, 0)
    text, number = numbered(1 - (-too_many // stride))
    offset = tf.minimum(number * stride, tf.gather(too_many, text))
    length = tf.minimum(tf.gather(lengths, text) - offset, room)
    return slices(tokens.values, tf.gather(tokens.row_starts(), text) + offset, length), text


def is_max_context(token: tf.RaggedTensor) -> tf.RaggedTensor:
    """Marks each token in the window that has most context on both sides of it.

    A token's score in a window is the smaller of the numbers of tokens to its left and to its right, plus 1 % of the
    window's length, as in BERT's code. Of windows with equal scores the first is marked.

    Args: token: [W, (tokens)] int64, the number of each window's tokens; a token has one number in all windows.
    Returns: [W, (tokens)] bool.
    """
    number, length = token.values, token.row_lengths()
    left, right = tf.ragged.range(length).values, tf.ragged.range(length - 1, -1, -1).values
    score = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * tf.cast(left + 1 + right, tf.float64)
    num_tokens = tf.maximum(tf.reduce_max(number) + 1, 0)
    best = tf.math.unsorted_segment_max(score, number, num_tokens)
    place = tf.range(tf.size(number))
    first = tf.where(score == tf.gather(best, number), place, tf.size(number))
    is_first = place == tf.gather(tf.math.unsorted_segment_min(first, number, num_tokens), number)
    return token.with_values(is_first)


def join_words(
    pieces: tf.RaggedTensor, text: tf.Tensor, num_texts: int | tf.Tensor, unknown_id: int
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Joins words that were tokenized one by one. A word without pieces, such as a control character, gets [UNK].

    Args:
        pieces: [words, (pieces)] int32.        text: [words] int64, the index of the text of each word, ascending.
    Returns: the tokens of the texts, and the index of the word that begins at each token, -1 at further pieces; both
        [N, (tokens)], int32 and int64.
    """
    is_empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
    unknown = tf.fill([tf.reduce_sum(is_empty)], unknown_id)
    pieces = tf.concat([pieces, tf.RaggedTensor.from_row_lengths(unknown, is_empty, validate=False)], axis=1)
    words = tf.RaggedTensor.from_value_rowids(pieces, text, nrows=tf.cast(num_texts, tf.int64), validate=False)
    tokens, (word, piece) = words.merge_dims(1, 2), numbered(pieces.row_lengths())
    return tokens, tokens.with_values(tf.where(piece == 0, word, -1))


def word_windows(
    tokens: tf.RaggedTensor, word: tf.RaggedTensor, max_seq_length: int, stride: int | None
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.RaggedTensor, tf.Tensor]:
    """Cuts texts of words into `windows`, or without a stride truncates them.

    A word belongs to one window, in which its first piece stands furthest from an edge, see `is_max_context`.

    Args: tokens, word: see `join_words`.
    Returns: the windows [W, (tokens)] and their texts [W] int64; for their rows, with [CLS] and [SEP], the index of the
        word that belongs to the window and begins at each token, else -1: [W, (tokens)] int64, ascending; and whether a
        text has more tokens than its windows: [N] bool.
    """
    room = max_seq_length - 2
    most = room if stride is None else max_bytes(max_seq_length, is_windowed=True)
    is_cut = tokens.row_lengths() > most
    tokens, word, text = cut(tokens, most), cut(word, most), tf.range(tokens.nrows())
    if stride is not None:
        number, text = windows(tokens.with_values(tf.range(tf.size(tokens.values, tf.int64))), room, stride)
        tokens, word = (number.with_values(tf.gather(each.values, number.values)) for each in (tokens, word))
        word = word.with_values(tf.where(is_max_context(number).values, word.values, -1))
    edge = tf.fill([tokens.nrows(), 1], tf.constant(-1, tf.int64))
    return tokens, text, tf.concat([edge, word, edge], axis=1), is_cut


def join(parts: Sequence[tf.RaggedTensor], vocabulary: Vocabulary) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Joins R texts of one or two parts to rows: [CLS], then the tokens of each part and [SEP].

    Returns: the ids, and the segments (0 up to the first [SEP], then 1); [R, (tokens)] int32 each.
    """
    # Each row consists of slices of one flat array: [CLS], then for each part [SEP] and the tokens of all its rows.
    values, ones = [[vocabulary.cls_id]], tf.ones([parts[0].nrows()], tf.int64)
    starts, lengths, sep = [ones * 0], [ones], tf.constant(1, tf.int64)
    for part in parts:
        values += [[vocabulary.sep_id], part.values]
        starts += [sep + 1 + part.row_starts(), ones * sep]
        lengths += [part.row_lengths(), ones]
        sep += 1 + tf.size(part.values, tf.int64)
    start, length = tf.stack(starts, axis=1), tf.stack(lengths, axis=1)  # [R, slices]
    index = tf.ragged.range(tf.reshape(start, [-1]), tf.reshape(start + length, [-1])).values
    ids = tf.gather(tf.concat(values, axis=0), index)
    rows = tf.RaggedTensor.from_row_lengths(ids, tf.reduce_sum(length, axis=1), validate=False)
    is_second = index >= 2 + tf.size(parts[0].values, tf.int64)
    return rows, rows.with_values(tf.cast(is_second, tf.int32))


def pack(
    parts: Sequence[tf.RaggedTensor], vocabulary: Vocabulary, width: int | None = None, least_width: int = 2
) -> Rows:
    """Joins texts as `join` does, and pads the rows.

    Args:
        width: tokens of a row, padding included; None: the longest row's, but at least `least_width`.
    """
    input_ids, segment_ids = join(parts, vocabulary)
    lengths = input_ids.row_lengths()
    if width is None:
        width = tf.maximum(tf.reduce_max(lengths), least_width)  # without any text, the rows have columns too
    shape = tf.stack([-1, width]) if tf.is_tensor(width) else [None, width]
    padded = input_ids.to_tensor(vocabulary.pad_id, shape=shape), segment_ids.to_tensor(0, shape=shape)
    return Rows(padded[0], tf.sequence_mask(lengths, width, tf.int32), padded[1])
