"""SentencePiece as TensorFlow ops, with a normalization that `tokenizers` has too.

SentencePiece's own normalization works on other units than `tokenizers`' copy of it, so that ids would differ for
letters with combining marks. So the model has the rule `identity`, and text is brought to NFKC before it.
"""

import hashlib
import sys

import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.python.ops import sentencepiece_tokenizer

from electra_tf.text.hugging_face import SPACES, SentencePieceModel
from electra_tf.text.normalization import bytes_to_characters
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocabulary import BERT_TEXT, WORD_MARKER, TextSettings, Vocabulary

# SentencePiece joins a run of unknown characters to one [UNK], in a time that is quadratic in its length. Of a run in
# a text of more bytes than this, only the first characters reach it; the ids are the same. A model with pieces for
# bytes has no unknown characters.
_LONG_TEXT = 10_000
_MAX_UNKNOWN = 100
_UTF8_BOUNDS = 0x80, 0x800, 0x10000  # the first code points of two, three and four bytes


def normalize(texts: tf.Tensor) -> tf.Tensor:
    """Texts [N] string as a model of electra-tf build-vocab is trained on and reads them: plain spaces, in NFKC."""
    return tf_text.normalize_utf8(_with_plain_spaces(texts), "NFKC")


def _with_plain_spaces(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(texts, f"[{SPACES}]", " ")  # a character for a character


class _ModelResource(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model in TensorFlow's memory, by the name of its content.

    tensorflow_text gives its own no name. So that belongs to a kernel in TensorFlow's cache, and is lost when the cache
    is cleared, as every `tf.random.set_seed` does.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        super().__init__()
        _ = self.resource_handle  # created now, because the first use may be in a function

    def _create_resource(self) -> tf.Tensor:
        name = hashlib.sha256(self._content).hexdigest()
        ops = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
        return ops.sentencepiece_op(model=self._content, shared_name=name)


def pieces_tokenizer(content: bytes) -> tf_text.SentencepieceTokenizer:
    """The operations of a SentencePiece model, with its ids."""
    # FastSentencepieceTokenizer gives other ids for a model with the rule `identity`.
    pieces = tf_text.SentencepieceTokenizer(content, out_type=tf.int32)
    pieces._model_resource = _ModelResource(content)
    return pieces


class SentencePieceTokenizer(Tokenizer):
    """Maps text to the ids of a SentencePiece model.

    Invalid bytes become U+FFFD, an unknown character.
    """

    def __init__(self, vocabulary: Vocabulary, settings: TextSettings = BERT_TEXT) -> None:
        super().__init__(vocabulary, settings)
        model = SentencePieceModel(vocabulary)
        self._is_bpe, self._has_bytes = model.is_bpe, bool(vocabulary.byte_ids)
        characters = "".join(model.score_of).replace(WORD_MARKER, " ")
        with tf.device("CPU:0"):
            # A character that is in no piece is unknown. The last entry is above all characters.
            self._characters = tf.constant([*sorted(set(map(ord, characters))), sys.maxunicode + 1])
            self._pieces = pieces_tokenizer(vocabulary.content)

    @property
    def description(self) -> str:
        return f"pieces of a SentencePiece model ({'BPE' if self._is_bpe else 'unigram'}), in NFKC"

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._pieces.tokenize(self._shortened(normalize(texts))[0])

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        cleaned = _with_plain_spaces(texts)
        # find_source_offsets ends the process if there is no text.
        with_another = tf.concat([cleaned, [""]], axis=0)
        normalized, offsets_map = tf_text.normalize_utf8_with_offsets_map(with_another, "NFKC")
        shortened, byte_offsets = self._shortened(normalized[:-1])
        ids, starts, ends = self._pieces.tokenize_with_offsets(shortened)
        starts, ends = (tf.gather(byte_offsets, each, batch_dims=1) for each in (starts, ends))
        starts, ends = (_in_source(cleaned, offsets_map, each) for each in (starts, ends))
        return ids, _after_spaces(cleaned, starts, ends), ends

    def _shortened(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor]:
        """Texts with at most `_MAX_UNKNOWN` characters of a run of unknown ones, if one of the texts is long.

        Returns: the texts [N], and the offsets in `texts` of their bytes and of the end, [N, (bytes + 1)] int64.
        """
        num_bytes = tf.cast(tf.strings.length(texts), tf.int64)
        return tf.cond(
            tf.reduce_any(num_bytes > _LONG_TEXT) & (not self._has_bytes),
            lambda: self._with_short_unknown_runs(texts, num_bytes),
            lambda: (texts, tf.ragged.range(num_bytes + 1)),
        )

    def _with_short_unknown_runs(self, texts: tf.Tensor, num_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor]:
        characters, first_bytes = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
        next_known = tf.gather(self._characters, tf.searchsorted(self._characters, characters.values))
        is_unknown = next_known != characters.values
        kept = characters.with_values(_without_long_runs(is_unknown, characters.value_rowids(), _MAX_UNKNOWN))
        characters, first_bytes = (tf.ragged.boolean_mask(each, kept) for each in (characters, first_bytes))
        # Tokens begin and end between characters, so each byte of a character can have the offset of its first.
        lengths = 1 + tf.reduce_sum(tf.cast(characters.values[:, tf.newaxis] >= _UTF8_BOUNDS, tf.int64), axis=1)
        offsets = first_bytes.with_values(
            tf.RaggedTensor.from_row_lengths(tf.repeat(first_bytes.values, lengths), lengths)
        )
        offsets = tf.concat([offsets.merge_dims(1, 2), num_bytes[:, tf.newaxis]], axis=1)
        return tf.strings.unicode_encode(characters, "UTF-8"), offsets


def _without_long_runs(is_member: tf.Tensor, rows: tf.Tensor, longest: int) -> tf.Tensor:
    """All characters except the members of a run after its first `longest`: [N] bool.

    Consecutive members (`is_member` [N] bool) of a line (`rows` [N] int64, ascending) are a run.
    """
    index = tf.range(tf.size(rows))
    follows = tf.concat([[False], is_member[:-1] & (rows[1:] == rows[:-1])], axis=0)[: tf.size(rows)]
    begins = is_member & ~follows
    first = tf.gather(tf.concat([[0], tf.boolean_mask(index, begins)], axis=0), tf.cumsum(tf.cast(begins, tf.int32)))
    return ~is_member | (index - first < longest)


def _in_source(texts: tf.Tensor, offsets_map: tf.Tensor, byte_offsets: tf.RaggedTensor) -> tf.RaggedTensor:
    """The positions in texts [N], in characters, of offsets in their normalized forms, in bytes [N, (tokens)] int64.

    Args:
        offsets_map: [N + 1], of the texts and of another one.
    """
    splits = byte_offsets.row_splits
    splits = tf.concat([splits, splits[-1:]], axis=0)
    of_all = tf.RaggedTensor.from_row_splits(byte_offsets.values, splits, validate=False)
    # find_source_offsets takes no empty row.
    first = tf.zeros([of_all.nrows(), 1], tf.int64)
    sources = tf_text.find_source_offsets(offsets_map, tf.concat([first, of_all], axis=1))
    return bytes_to_characters(texts, sources[:-1, 1:])


def _after_spaces(texts: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor) -> tf.RaggedTensor:
    """Moves starts [N, (tokens)] in texts [N] to the next character that is no space, but not beyond the ends.

    A piece with a marker begins with its spaces.
    """
    characters = tf.strings.unicode_decode(texts, "UTF-8")
    is_visible = characters.values != ord(" ")
    num_characters = tf.size(is_visible, tf.int64)
    visible = tf.concat([tf.where(is_visible)[:, 0], [num_characters]], axis=0)
    num_visible_before = tf.concat([[0], tf.cumsum(tf.cast(is_visible, tf.int32))], axis=0)
    row_starts = tf.gather(characters.row_starts(), starts.value_rowids())
    next_visible = tf.gather(visible, tf.gather(num_visible_before, row_starts + starts.values)) - row_starts
    return starts.with_values(tf.minimum(next_visible, ends.values))
