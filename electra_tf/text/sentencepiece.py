"""SentencePiece as TensorFlow ops, with a normalization that `tokenizers` has too.

SentencePiece's own normalization works on other units than `tokenizers`' copy of it, so that ids would differ for
letters with combining marks. So the model has the rule `identity`, and text is brought to NFKC before it.
"""

import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from electra_tf.text.normalization import MAX_MARKS, CharacterProperties, without_excess_marks
from electra_tf.text.offsets import bytes_to_characters
from electra_tf.text.vocabulary import MASK, UNK, WORD_MARKER, SentencePieceVocabulary

# Characters that become a space, besides those that NFKC makes one.
SPACES = f"\t\n\x0b\x0c\r\x85{WORD_MARKER}\u200b\u2028\u2029"
_MANY_MARKS = f"(?s).*\\p{{Mn}}{{{MAX_MARKS + 1}}}.*"


class SentencePieceTokenizer(tf.Module):
    """Maps text to the ids of a SentencePiece model. It implements `electra_tf.text.tokenizer.Tokenizer`.

    Invalid bytes become U+FFFD, an unknown character.
    """

    def __init__(self, vocabulary: SentencePieceVocabulary) -> None:
        super().__init__(name="sentence_piece_tokenizer")
        self.vocabulary = vocabulary
        self.settings = vocabulary.text_settings
        self._properties = CharacterProperties()
        with tf.device("CPU:0"):  # next to the string ops, also on a machine with a GPU
            self._tokens = tf.constant(vocabulary.tokens)
            # FastSentencepieceTokenizer gives other ids for a model with the rule `identity`.
            self._pieces = tf_text.SentencepieceTokenizer(vocabulary.content, out_type=tf.int32)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._pieces.tokenize(tf_text.normalize_utf8(self._cleaned(texts)[0], "NFKC"))

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        cleaned, positions = self._cleaned(texts)
        normalized, offsets_map = tf_text.normalize_utf8_with_offsets_map(cleaned, "NFKC")
        ids, starts, ends = self._pieces.tokenize_with_offsets(normalized)
        starts, ends = (_in_source(cleaned, offsets_map, each) for each in (starts, ends))
        starts = _after_spaces(cleaned, starts, ends)
        # A token ends after its last character: excess marks behind it are in no token.
        last = _of_same_row(positions, ends.with_values(tf.maximum(ends.values - 1, 0)))
        return ids, _of_same_row(positions, starts), last.with_values(last.values + tf.sign(ends.values))

    def tokens_of(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        return tf.ragged.map_flat_values(lambda flat_ids: tf.gather(self._tokens, flat_ids), ids)

    def to_hugging_face(self) -> Tokenizer:
        tokenizer = Tokenizer(_hugging_face_model(self.vocabulary))
        tokenizer.normalizer = normalizers.Sequence(
            [
                normalizers.NFKC(),
                normalizers.Replace(Regex(f"[{SPACES}]"), " "),
                normalizers.Replace(Regex(" {2,}"), " "),
                normalizers.Replace(Regex("^ +| +$"), ""),
            ]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(WORD_MARKER, prepend_scheme="always")
        tokenizer.decoder = decoders.Metaspace(WORD_MARKER, prepend_scheme="always")
        # Without its spaces: a masked word loses the space in its marker.
        tokenizer.add_special_tokens([AddedToken(MASK, lstrip=True, special=True)])
        return tokenizer

    def _cleaned(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor]:
        """Texts with plain spaces and without excess marks.

        Returns: the texts [N], and the positions in `texts` of their characters and of their end,
            [N, (characters + 1)] int64.
        """
        texts = tf.strings.regex_replace(texts, f"[{SPACES}]", " ")  # a character for a character
        return tf.cond(
            tf.reduce_any(tf.strings.regex_full_match(texts, _MANY_MARKS)),
            lambda: self._without_excess_marks(texts),
            lambda: (texts, tf.ragged.range(_num_characters(texts) + 1)),
        )

    def _without_excess_marks(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor]:
        characters = tf.strings.unicode_decode(texts, "UTF-8")
        kept = without_excess_marks(self._properties.of(characters.values), characters.value_rowids())
        rows = tf.gather(characters.value_rowids(), kept)
        lengths = characters.row_lengths()
        code_points, positions = (
            tf.RaggedTensor.from_value_rowids(tf.gather(values, kept), rows, characters.nrows(), validate=False)
            for values in (characters.values, tf.ragged.range(lengths).values)
        )
        return tf.strings.unicode_encode(code_points, "UTF-8"), tf.concat([positions, lengths[:, tf.newaxis]], axis=1)


def _num_characters(texts: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(texts, unit="UTF8_CHAR"), tf.int64)


def _in_source(texts: tf.Tensor, offsets_map: tf.Tensor, byte_offsets: tf.RaggedTensor) -> tf.RaggedTensor:
    """The positions in texts [N], in characters, of offsets in their normalized forms, in bytes [N, (tokens)] int64."""
    # find_source_offsets takes no empty row.
    first = tf.zeros([tf.size(texts), 1], tf.int64)
    sources = tf_text.find_source_offsets(offsets_map, tf.concat([first, byte_offsets], axis=1))[:, 1:]
    return bytes_to_characters(texts, sources)


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


def _of_same_row(values: tf.RaggedTensor, indices: tf.RaggedTensor) -> tf.RaggedTensor:
    """`values[n, indices[n, t]]` of int64 values: [N, (tokens)] int64."""
    row_starts = tf.gather(values.row_starts(), indices.value_rowids())
    return indices.with_values(tf.gather(values.values, row_starts + indices.values))


def _hugging_face_model(vocabulary: SentencePieceVocabulary) -> models.Model:
    processor = SentencePieceProcessor(model_proto=vocabulary.content)
    tokens, indices = vocabulary.tokens, range(vocabulary.size)
    scores = [processor.get_score(index) for index in indices]
    has_bytes = any(map(processor.is_byte, indices))
    # BPE's scores are 0, -1, -2 ..., in the order of the merges; unigram's are log probabilities.
    if not all(score.is_integer() for score in scores):
        return models.Unigram(list(zip(tokens, scores, strict=True)), vocabulary.unk_id, has_bytes)
    score_of = {
        tokens[index]: scores[index]
        for index in indices
        if not (processor.is_control(index) or processor.is_unknown(index) or processor.is_byte(index))
    }
    merges = [
        (token[:end], token[end:])
        for token in sorted(score_of, key=score_of.__getitem__, reverse=True)
        for end in range(1, len(token))
        if token[:end] in score_of and token[end:] in score_of
    ]
    ids = {token: index for index, token in enumerate(tokens)}
    return models.BPE(vocab=ids, merges=merges, unk_token=UNK, fuse_unk=True, byte_fallback=has_bytes)
