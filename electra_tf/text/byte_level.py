"""Byte-level BPE (ModernBERT, Ettin, mmBERT, RoBERTa) by the library `tokenizers`, outside graphs."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import tensorflow as tf
from tokenizers import Encoding, Tokenizer

from electra_tf.config.errors import UserError
from electra_tf.text.tokenizer_json import has_byte_alphabet
from electra_tf.text.vocabulary import ByteLevelVocabulary

_SURROGATES = {0xDC00 + byte: "\ufffd" for byte in range(0x80, 0x100)}  # what Python makes of invalid bytes


class ByteLevelTokenizer(tf.Module):
    """Maps text to the ids of a tokenizer.json. It implements `electra_tf.text.tokenizer.Tokenizer` for eager tensors.

    Names of special tokens in a text are text, as with the other tokenizers: no text has the id of [SEP]. Each invalid
    byte of UTF-8 becomes U+FFFD. No operation of TensorFlow splits text as these files say, with regular expressions of
    their own, so in a graph there are no ids.
    """

    def __init__(self, vocabulary: ByteLevelVocabulary) -> None:
        super().__init__(name="byte_level_tokenizer")
        self.vocabulary = vocabulary
        self.settings = vocabulary.text_settings
        self.runs_in_graphs = False
        self.description = (
            f"tokens of a {'byte-level BPE' if has_byte_alphabet(vocabulary.content) else 'BPE with bytes'}"
        )
        self.hugging_face_settings: dict[str, bool | int] = {}
        self._library = self.to_hugging_face()
        self._library.no_truncation()
        self._library.no_padding()
        self._library.encode_special_tokens = True
        with tf.device("CPU:0"):  # next to the string ops, also on a machine with a GPU
            self._tokens = tf.constant(vocabulary.tokens)

    def tokenize(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        encoded = self._library.encode_batch_fast(_strings(texts), add_special_tokens=False)
        return _ids(encoded)

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        strings = _strings(texts)
        encoded = self._library.encode_batch(strings, add_special_tokens=False)
        ids = _ids(encoded)
        pairs = [_characters(text, each.offsets) for text, each in zip(strings, encoded, strict=True)]
        starts, ends = np.array(list(chain.from_iterable(pairs)), np.int64).reshape(-1, 2).T
        return ids, ids.with_values(tf.constant(starts)), ids.with_values(tf.constant(ends))

    def tokens_of(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        return tf.ragged.map_flat_values(lambda flat_ids: tf.gather(self._tokens, flat_ids), ids)

    def to_hugging_face(self) -> Tokenizer:
        return Tokenizer.from_buffer(self.vocabulary.content)


def _strings(texts: tf.Tensor | Sequence[str]) -> list[str]:
    """The texts [N]. Raises: UserError: they are in a graph."""
    if tf.is_symbolic_tensor(texts):
        raise UserError(
            "a tokenizer.json makes ids outside graphs only; in tf.data or a SavedModel give ids, made with "
            "model.tokenizer or the library tokenizers"
        )
    contents = texts.numpy().tolist() if tf.is_tensor(texts) else texts
    return [
        each.decode(errors="surrogateescape").translate(_SURROGATES) if isinstance(each, bytes) else each
        for each in contents
    ]


def _ids(encoded: Sequence[Encoding]) -> tf.RaggedTensor:
    """[N, (tokens)] int32."""
    ids = [each.ids for each in encoded]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    values = np.fromiter(chain.from_iterable(ids), np.int32, lengths.sum())
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def _characters(text: str, offsets: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The first character of each token, and its end, without white space around it.

    A token of nothing else is empty, at its end. If NFC joins characters, such as a letter and its accents, a token of
    the library ends after the first.
    """
    next_starts = chain((start for start, _ in offsets[1:]), [len(text)])
    for (start, end), next_start in zip(offsets, next_starts, strict=False):
        token = text[start:end]
        if token[:1].isspace() or token[-1:].isspace():
            start = end - len(token.lstrip())
            end = start + len(token.strip())
        while end < next_start and not text[end].isspace():
            end += 1
        yield start, end
