"""BERT's basic tokenization, exactly, as TensorFlow ops on a batch of lines.

The steps are those of BERT's BasicTokenizer, in its order: invalid bytes and control characters are deleted, white
space separates words, letters become lower case (with Python's rule for the final sigma), accents are stripped after
canonical decomposition, punctuation and CJK ideographs become separate words. Each step looks up code points in one
table, `character_table`. Only the canonical decomposition is TensorFlow's, of Unicode 16; Unicode guarantees that it
never changes for assigned characters, and versions 17 and 18 added none.

Source: google-research/electra, model/tokenization.py.
"""

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from electra_tf.text.characters import (
    CASE_IGNORABLE,
    CASED,
    DELETED,
    ISOLATED,
    LOWER_CASE_SHIFT,
    NONSPACING_MARK,
    SPACE,
    character_table,
)
from electra_tf.text.vocabulary import TextSettings

PAGE_SIZE = 256

CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2
DOTTED_CAPITAL_I, DOTTED_SMALL_I = "\u0130", "i\u0307"


class BasicTokenizer(tf.Module):
    """Splits lines into words, which WordPiece then splits into pieces."""

    def __init__(self, settings: TextSettings) -> None:
        super().__init__(name="basic_tokenizer")
        self._lower_case, self._strips_accents = settings.lower_case, settings.strips_accents
        # Of 4,352 pages of 256 entries, a few hundred are distinct: 1.1 M entries take 0.3 MB of the SavedModel.
        # Comparing pages as bytes is ten times as fast as comparing entries.
        table = character_table(settings).reshape(-1, PAGE_SIZE)
        as_bytes = table.view(np.dtype((np.void, table.itemsize * PAGE_SIZE)))[:, 0]
        _, first, page_of = np.unique(as_bytes, return_index=True, return_inverse=True)
        pages = table[first]
        with tf.device("CPU:0"):  # next to the string ops, also on a machine with a GPU
            self._pages = tf.constant(pages.reshape(-1))
            self._page_of = tf.constant(page_of.reshape(-1).astype(np.int32))

    def words(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Splits lines into words, and finds the position of each character in its line, in a graph only if it is used.

        Args:
            texts: [N] string, UTF-8; invalid bytes are dropped.
        Returns: for the W words of the batch in order: the words [W] string, their lengths [W] int64 in characters, and
            the lines [W] int64 in [0, N) that they stand in; then, for each character of the words in order, the start
            and the end (exclusive) of its source in its line, counted in characters: two tensors [sum of lengths]
            int64. Marks that are stripped belong to the character before them.
        """
        lines = texts
        if self._lower_case:
            texts = tf.strings.regex_replace(texts, DOTTED_CAPITAL_I, DOTTED_SMALL_I)
        characters = tf.strings.unicode_decode(texts, "UTF-8")  # [N, (characters)]; invalid bytes become U+FFFD
        code_points, rows = characters.values, characters.value_rowids()
        code_points, rows, known, kept = self._without(DELETED, code_points, rows)
        sources = tf.strings.unicode_decode(lines, "UTF-8")
        positions = tf.ragged.range(sources.row_lengths()).values
        if self._lower_case:  # a dotted capital I has become two characters
            positions = tf.repeat(positions, tf.where(sources.values == ord(DOTTED_CAPITAL_I), 2, 1))
        starts = tf.gather(positions, kept)
        ends = starts + 1
        if self._lower_case:
            code_points = _lower(code_points, rows, known)
            known = self._properties_of(code_points)
        if self._strips_accents:
            starts = tf.repeat(starts, _decomposed_lengths(code_points))
            # Not by a table, because decomposition also brings neighbouring marks into canonical order.
            composed = tf.RaggedTensor.from_value_rowids(code_points, rows, nrows=characters.nrows())
            texts = tf_text.normalize_utf8(tf.strings.unicode_encode(composed, "UTF-8"), "NFD")
            decomposed = tf.strings.unicode_decode(texts, "UTF-8")
            all_rows = decomposed.value_rowids()
            code_points, rows, known, kept = self._without(NONSPACING_MARK, decomposed.values, all_rows)
            starts, ends = tf.gather(starts, kept), _ends_with_marks(starts, all_rows, kept)
        words, lengths, word_rows, kept = _cut(code_points, rows, known)
        return words, lengths, word_rows, tf.gather(starts, kept), tf.gather(ends, kept)

    def _properties_of(self, code_points: tf.Tensor) -> tf.Tensor:
        """The entries of `character_table` for code points [N] int32: [N] int32."""
        page = tf.gather(self._page_of, code_points // PAGE_SIZE)
        return tf.gather(self._pages, page * PAGE_SIZE + code_points % PAGE_SIZE)

    def _without(
        self, bit: int, code_points: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        known = self._properties_of(code_points)
        kept = tf.where((known & bit) == 0)[:, 0]
        return tf.gather(code_points, kept), tf.gather(rows, kept), tf.gather(known, kept), kept


def bytes_to_characters(texts: tf.Tensor, byte_offsets: tf.RaggedTensor) -> tf.RaggedTensor:
    """Turns offsets [N, (offsets)] int64 in texts [N] from bytes, not within a character, into characters."""
    content = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    begins = tf.cast(tf.bitwise.bitwise_and(content, 0xC0) != 0x80, tf.int64)  # 0 for bytes that continue a character
    num_before = tf.concat([[0], tf.cumsum(begins)], axis=0)
    first_byte = tf.cumsum(tf.strings.length(texts, unit="BYTE"), exclusive=True)
    first_byte = tf.gather(tf.cast(first_byte, tf.int64), byte_offsets.value_rowids())
    return byte_offsets.with_values(
        tf.gather(num_before, first_byte + byte_offsets.values) - tf.gather(num_before, first_byte)
    )


def _decomposed_lengths(code_points: tf.Tensor) -> tf.Tensor:
    """The number of characters that each code point is decomposed into."""
    distinct, index = tf.unique(code_points)
    texts = tf_text.normalize_utf8(tf.strings.unicode_encode(distinct[:, tf.newaxis], "UTF-8"), "NFD")
    return tf.gather(tf.strings.length(texts, unit="UTF8_CHAR"), index)


def _ends_with_marks(starts: tf.Tensor, rows: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
    """The end of each kept character in its line, including the stripped marks that follow it.

    `starts` and `rows` are those of all characters; `kept` holds indices into them. All are int64.
    """
    is_kept = tf.scatter_nd(kept[:, tf.newaxis], tf.ones_like(kept), tf.shape(starts, tf.int64))
    owner = tf.cumsum(is_kept)  # counted from 1; 0: marks before any character
    owner_row = tf.gather(tf.concat([[-1], tf.gather(rows, kept)], axis=0), owner)
    ends = tf.math.unsorted_segment_max(starts + 1, tf.where(owner_row == rows, owner, 0), tf.size(kept) + 1)
    return ends[1:]


def _lower(code_points: tf.Tensor, rows: tf.Tensor, known: tf.Tensor) -> tf.Tensor:
    """Converts characters to lower case like Python's str.lower: a capital sigma at a word's end becomes a final sigma.

    A sigma is final if the nearest preceding character that is not case-ignorable is cased and the nearest following
    one is not (Unicode, section 3.13, Final_Sigma). These two are its neighbours in the sequence without case-ignorable
    characters.
    """
    lowered = code_points + tf.bitwise.right_shift(known, LOWER_CASE_SHIFT)
    heeded = tf.where((known & CASE_IGNORABLE) == 0)[:, 0]
    cased = tf.gather((known & CASED) != 0, heeded)
    row = tf.gather(rows, heeded)
    same_row = row[1:] == row[:-1]
    after_cased = tf.concat([[False], cased[:-1] & same_row], axis=0)[: tf.size(heeded)]
    before_cased = tf.concat([cased[1:] & same_row, [False]], axis=0)[: tf.size(heeded)]
    is_final = (tf.gather(code_points, heeded) == CAPITAL_SIGMA) & after_cased & ~before_cased
    finals = tf.boolean_mask(heeded, is_final)
    return tf.tensor_scatter_nd_update(lowered, finals[:, tf.newaxis], tf.fill(tf.shape(finals), FINAL_SIGMA))


def _cut(
    code_points: tf.Tensor, rows: tf.Tensor, known: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Splits characters into words. A word begins at a new row, after white space, and at and after ISOLATED.

    Returns: the words, their lengths and rows, and the indices of the characters in words.
    """
    is_space = (known & SPACE) != 0
    separates = (known & (SPACE | ISOLATED)) != 0
    continues = tf.concat([[False], ~separates[:-1] & (rows[1:] == rows[:-1])], axis=0)[: tf.size(rows)] & ~separates
    begins = ~is_space & ~continues
    kept = tf.where(~is_space)[:, 0]
    word_of = tf.cumsum(tf.cast(tf.gather(begins, kept), tf.int64)) - 1
    row_of_word = tf.boolean_mask(rows, begins)
    characters = tf.RaggedTensor.from_value_rowids(
        tf.gather(code_points, kept), word_of, nrows=tf.size(row_of_word, out_type=tf.int64), validate=False
    )  # [W, (characters)]
    return tf.strings.unicode_encode(characters, "UTF-8"), characters.row_lengths(), row_of_word, kept
