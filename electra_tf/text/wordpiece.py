"""BERT's tokenization: normalization and word pieces."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf
import tensorflow_text as tf_text

from electra_tf.text.hugging_face import MAX_CHARACTERS_PER_WORD
from electra_tf.text.normalization import BasicTokenizer, bytes_to_characters
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocabulary import BERT_TEXT, CONTINUATION_PREFIX, UNK, TextSettings, Vocabulary

MAX_BYTES_PER_CHARACTER = 4  # UTF-8

# Plain characters: BERT's normalization and FastBertTokenizer's map each of them to the same single character in any
# context, as a test shows. Excluded are marks (decomposition reorders them), Hangul (decomposes to three characters)
# and sigma (its lower case depends on the word). The list has the ranges of English, European and CJK text only.
PLAIN_UNCASED = (
    r"\t\n\r -~"  # ASCII
    r"\x{E0}-\x{F6}\x{F8}-\x{FF}"  # Latin-1 small letters
    r"\x{A0}-\x{A7}\x{A9}\x{AB}\x{AC}\x{AE}\x{B0}\x{B1}\x{B6}\x{B7}\x{BB}\x{BF}\x{D7}\x{F7}"  # Latin-1 signs
    r"\x{2010}\x{2012}-\x{2015}\x{2018}-\x{2022}\x{2030}\x{2032}\x{2039}\x{203A}\x{20AC}\x{2190}-\x{222B}"  # - ' " ...
    r"\x{5D0}-\x{5EA}\x{621}-\x{64A}"  # Hebrew, Arabic
    r"\x{3001}\x{3002}\x{3008}-\x{3011}\x{3041}-\x{3096}\x{30A1}-\x{30FA}\x{30FC}"  # kana
)
PLAIN_CJK = r"\x{4E00}-\x{9FEF}"  # plain if ideographs are isolated
PLAIN_CASED = (
    r"\x{C0}-\x{D6}\x{D8}-\x{DE}\x{100}-\x{12F}\x{131}\x{134}-\x{13E}\x{141}-\x{148}\x{14A}-\x{17E}\x{1CD}-\x{1DC}"
    r"\x{250}-\x{2AF}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A4}-\x{3C1}\x{3C3}-\x{3CE}"  # IPA, Greek
    r"\x{400}-\x{481}\x{48A}-\x{52F}\x{1E00}-\x{1E99}\x{1EA0}-\x{1EF9}"  # Cyrillic, Latin of Vietnamese
)
# No word is longer than the run of non-space characters that contains it.
PERHAPS_TOO_LONG_A_WORD = f"(?s).*[^ ]{{{MAX_CHARACTERS_PER_WORD + 1}}}.*"

_SPACE = re.compile(r"\s")
_Ragged = TypeVar("_Ragged", tf.RaggedTensor, tuple[tf.RaggedTensor, ...])


class BertTokenizer(Tokenizer):
    """Maps text to the same ids as BERT's and ELECTRA's Python code, in batches and in C++.

    A line of plain characters (see `PLAIN_UNCASED`) takes the fast path: tensorflow_text's FastBertTokenizer. Any other
    line takes the exact path: our normalization, then word pieces. FastBertTokenizer would give it other ids: it folds
    compatibility characters (an ellipsis becomes three full stops), turns control characters into spaces, keeps
    private-use and unassigned characters, and has no final sigma.

    Source: google-research/electra, model/tokenization.py (FullTokenizer).
    """

    def __init__(self, vocabulary: Vocabulary, settings: TextSettings = BERT_TEXT) -> None:
        super().__init__(vocabulary, settings)
        self._lowers_only = settings.lower_case and not settings.strip_accents
        self._basic_tokenizer = BasicTokenizer(settings)
        cased, cjk = "" if self._lowers_only else PLAIN_CASED, PLAIN_CJK if settings.isolate_cjk else ""
        self._plain_line = f"[{PLAIN_UNCASED}{cased}{cjk}]*"
        # No word has a space. TensorFlow would read an entry with one, such as an added "new york", but then no longer
        # "new jersey". No word is one in brackets either.
        vocab = [f"[with-space-{i}]" if _SPACE.search(token) else token for i, token in enumerate(vocabulary.tokens)]
        word_pieces: dict[str, Any] = {
            "vocab": vocab,
            "suffix_indicator": CONTINUATION_PREFIX,
            "max_bytes_per_word": MAX_CHARACTERS_PER_WORD * MAX_BYTES_PER_CHARACTER,
            "token_out_type": tf.int32,
            "unknown_token": UNK,
        }
        with tf.device("CPU:0"):
            self._word_pieces = tf_text.FastWordpieceTokenizer(no_pretokenization=True, **word_pieces)
            self._plain_tokenizer = tf_text.FastBertTokenizer(
                lower_case_nfd_strip_accents=settings.strips_accents, **word_pieces
            )

    @property
    def description(self) -> str:
        words = f", of text cut into words by `{self.settings.segment}`" * bool(self.settings.segment)
        return f"word pieces, {'uncased' if self.settings.lower_case else 'cased'}{words}"

    @property
    def hugging_face_settings(self) -> dict[str, bool | int | str]:
        return {
            "do_lower_case": self.settings.lower_case,
            "strip_accents": self.settings.strips_accents,
            "tokenize_chinese_chars": self.settings.isolate_cjk,
            # Of this program; transformers ignores them.
            "unicode": self.settings.unicode,
            "format_characters": self.settings.format_characters,
            **({"segment": self.settings.segment} if self.settings.segment else {}),
        }

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        def exactly(texts: tf.Tensor) -> tf.RaggedTensor:
            words, num_characters, rows, *_ = self._basic_tokenizer.words(texts)
            pieces = self._word_pieces.tokenize(tf.where(num_characters > MAX_CHARACTERS_PER_WORD, UNK, words))
            return of_lines(pieces, rows, tf.size(texts, tf.int64))

        return self._on_both_paths(texts, self._plain_tokenizer.tokenize, exactly)

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        def plainly(texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
            ids, starts, ends = self._plain_tokenizer.tokenize_with_offsets(texts)
            return ids, bytes_to_characters(texts, starts), bytes_to_characters(texts, ends)

        def exactly(texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
            words, num_characters, rows, starts, ends = self._basic_tokenizer.words(texts)
            too_long = num_characters > MAX_CHARACTERS_PER_WORD
            words = tf.where(too_long, UNK, words)
            ids, first_bytes, end_bytes = self._word_pieces.tokenize_with_offsets(words)  # each [W, (pieces)]
            word = ids.value_rowids()
            first = bytes_to_characters(words, first_bytes).values
            last = bytes_to_characters(words, end_bytes).values - 1
            last = tf.where(tf.gather(too_long, word), tf.gather(num_characters, word) - 1, last)
            first_of_word = tf.gather(tf.cumsum(num_characters, exclusive=True), word)
            pieces = (ids, ids.with_values(tf.gather(starts, first_of_word + first)),
                      ids.with_values(tf.gather(ends, first_of_word + last)))  # fmt: skip
            nrows = tf.size(texts, tf.int64)
            return tuple(of_lines(values, rows, nrows) for values in pieces)

        return self._on_both_paths(texts, plainly, exactly)

    def is_plain(self, texts: tf.Tensor) -> tf.Tensor:
        """Whether each text [N] takes the fast path: [N] bool. Both paths give the same ids."""
        plain = tf.strings.regex_full_match(texts, self._plain_line)
        return plain & ~tf.strings.regex_full_match(texts, PERHAPS_TOO_LONG_A_WORD)

    def _on_both_paths(
        self, texts: tf.Tensor, plain: Callable[[tf.Tensor], _Ragged], exact: Callable[[tf.Tensor], _Ragged]
    ) -> _Ragged:
        """Applies `plain` to plain lines and `exact` to the others; the results keep the order of the lines."""
        texts = tf.convert_to_tensor(texts, tf.string)
        is_plain = self.is_plain(texts)
        # `lower` for ASCII; no other plain character of this mode has a lower case.
        plain_texts = tf.strings.lower(texts) if self._lowers_only else texts

        def mixed() -> _Ragged:
            plain_rows, other_rows = tf.where(is_plain)[:, 0], tf.where(~is_plain)[:, 0]
            row_in_result = tf.argsort(tf.concat([plain_rows, other_rows], axis=0))
            return tf.nest.map_structure(
                lambda *both: tf.gather(tf.concat(both, axis=0), row_in_result),
                plain(tf.gather(plain_texts, plain_rows)),
                exact(tf.gather(texts, other_rows)),
            )

        return tf.cond(tf.reduce_all(is_plain), lambda: plain(plain_texts), mixed)


def of_lines(pieces: tf.RaggedTensor, rows: tf.Tensor, nrows: tf.Tensor) -> tf.RaggedTensor:
    """Joins the pieces of words [W, (pieces)] to lines [N, (pieces)]; `rows` [W] int64 is the line of each word."""
    return tf.RaggedTensor.from_value_rowids(pieces, rows, nrows=nrows, validate=False).merge_dims(1, 2)
