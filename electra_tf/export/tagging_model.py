"""Served tagging: a tag for each word of a text, and its position."""

from typing import NamedTuple

import tensorflow as tf

from electra_tf.export.served_model import Outputs, Served, ServedModel, ServingShapes
from electra_tf.tasks.finetune.tagging import TaggingTask
from electra_tf.text.packing import Rows, cut, cut_texts, join_words, max_bytes
from electra_tf.text.tokenizer import Tokenizer

_SPACES = (0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x20)  # as in files of tagged words; other spaces are parts of words


class Words(NamedTuple):
    """The words of N texts, one text after the other.

    Attributes:
        texts: [words] string.        row: [words] int64, the index of each word's text.
        start, end: [words] int32, the word's first character (code point) in the text and its end (exclusive).
    """

    texts: tf.Tensor
    row: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor


class TaggingModel(ServedModel):
    """Serves a tagging model: `tag` and `embed`."""

    default = "tag"

    def __init__(self, task: TaggingTask, tokenizer: Tokenizer, shapes: ServingShapes):
        self._labels = task.config.task.labels
        super().__init__(task, tokenizer, shapes)

    def served(self) -> dict[str, Served]:
        tag = {"tag": (self._tag, self.texts("text")), "tag_ids": (self._tag_ids, self.ids())}
        return {**tag, **super().served()}

    def _tag(self, text: tf.Tensor) -> Outputs:
        """A tag for each word that fits. Spaces, tabs and line breaks separate words, as in a training file.

        Words are tokenized one by one, as in training. A word without a piece is [UNK].

        Args:
            text: [N] string, UTF-8; each invalid byte counts as a character.
        Returns: with W, the largest number of words that fit:
            tokens: [N, W] string, the words.        tags: [N, W] string; "" in padding.
            probability: [N, W] float32, the tag's probability.
            start, end: [N, W] int32, the word's first character (code point) in the text and its end (exclusive).
            num_tokens: [N] int32, the number of words.        truncated: [N] bool, whether the text was cut.
        """
        text, is_cut = cut_texts(text, max_bytes(self.shapes.max_seq_length))
        words, nrows = words_of(text), tf.size(text, tf.int64)
        pieces, room = self.tokenizer.tokenize(words.texts), self.shapes.max_seq_length - 2
        tokens, first_piece = join_words(pieces, words.row, nrows, self.tokenizer.vocabulary.unk_id)
        fits = first_piece < room
        row = tf.boolean_mask(words.row, fits)

        def of_texts(values: tf.Tensor) -> tf.Tensor:  # [words] -> [N, W]
            kept = tf.boolean_mask(values, fits)
            return tf.RaggedTensor.from_value_rowids(kept, row, nrows=nrows, validate=False).to_tensor()

        tagged = self._tagged(self.pack([cut(tokens, room)]))
        position = of_texts(1 + first_piece)  # after [CLS]; in padding 0
        real = position > 0
        return {
            "tokens": of_texts(words.texts),
            "tags": tf.where(real, tf.gather(tagged["tags"], position, batch_dims=1), ""),
            "probability": tf.where(real, tf.gather(tagged["probability"], position, batch_dims=1), 0.0),
            "start": of_texts(words.start),
            "end": of_texts(words.end),
            "num_tokens": tf.reduce_sum(tf.cast(real, tf.int32), axis=1),
            "truncated": is_cut | (tokens.row_lengths() > room),
        }

    def _tag_ids(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> Outputs:
        """A tag for each token. A word has the tag of its first piece.

        Args:
            input_ids, input_mask, segment_ids: [N, T] int32; the mask is 1 for a token, 0 for padding.
        Returns:
            tags: [N, T] string, the likeliest; "" in padding.
            probability: [N, T] float32, the tag's probability; 0 in padding.
            labels: [N, C] string, all tags.        probabilities: [N, T, C] float32, in the order of `labels`.
        """
        rows = self.checked_rows(input_ids, input_mask, segment_ids)
        labels = tf.tile(tf.constant(self._labels)[tf.newaxis], [tf.shape(input_ids)[0], 1])
        return {**self._tagged(rows), "labels": labels}

    def _tagged(self, rows: Rows) -> Outputs:
        logits = self.get_task()(rows._asdict())  # [N, T, C]
        probabilities, real = tf.nn.softmax(logits), rows.input_mask > 0
        tags = tf.gather(tf.constant(self._labels), tf.argmax(logits, axis=-1))
        return {
            "tags": tf.where(real, tags, ""),
            "probability": tf.where(real, tf.reduce_max(probabilities, axis=-1), 0.0),
            "probabilities": probabilities,
        }


def words_of(text: tf.Tensor) -> Words:
    """The words of [N] texts, separated by spaces, tabs and line breaks. An invalid byte becomes U+FFFD."""
    characters = tf.strings.unicode_decode(text, "UTF-8")  # [N, (characters)]
    rows = characters.value_rowids()
    is_space = tf.reduce_any(characters.values[:, tf.newaxis] == tf.constant(_SPACES), axis=1)
    continues = tf.concat([[False], ~is_space[:-1] & (rows[1:] == rows[:-1])], axis=0)[: tf.size(rows)]
    first = tf.where(~is_space & ~continues)[:, 0]  # of each word, among the characters of all texts
    kept = tf.where(~is_space)[:, 0]
    word_of = tf.searchsorted(first, kept, side="right", out_type=tf.int64) - 1
    words = tf.RaggedTensor.from_value_rowids(
        tf.gather(characters.values, kept), word_of, nrows=tf.size(first, tf.int64), validate=False
    )  # [words, (characters)]
    row = tf.gather(rows, first)
    start = tf.cast(first - tf.gather(characters.row_starts(), row), tf.int32)
    return Words(tf.strings.unicode_encode(words, "UTF-8"), row, start, start + tf.cast(words.row_lengths(), tf.int32))
