"""Byte-level BPE (ModernBERT, Ettin, mmBERT, RoBERTa): as TensorFlow ops, or by the library `tokenizers`."""

import json
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import tensorflow as tf
from tokenizers import Encoding

from electra_tf.text.byte_pair_ops import BLANKS, BytePairOps, is_known_form
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.tokenizer_json import has_byte_alphabet
from electra_tf.text.vocabulary import BERT_TEXT, UNSPACED, TextSettings, Vocabulary


class ByteLevelTokenizer(Tokenizer):
    """Maps text to the ids of a tokenizer.json.

    Names of special tokens in a text are text, as with the other tokenizers: no text has the id of [SEP]. Invalid bytes
    of UTF-8 become U+FFFD, as in Python. Files of GPT-2's form, such as ModernBERT's and RoBERTa's, run in graphs. No
    operation of TensorFlow normalizes and splits text as the others say, so only eager tensors have their ids.
    """

    def __init__(self, vocabulary: Vocabulary, settings: TextSettings = BERT_TEXT) -> None:
        super().__init__(vocabulary, settings)
        self._library = self.to_hugging_face()
        self._library.no_truncation()
        self._library.no_padding()
        self._library.encode_special_tokens = True
        parts = json.loads(self._library.to_str())
        self._ops = BytePairOps(self._library, parts) if is_known_form(parts) else None
        self.runs_in_graphs = self._ops is not None

    @property
    def description(self) -> str:
        return f"tokens of a {'byte-level BPE' if has_byte_alphabet(self.vocabulary.content) else 'BPE with bytes'}"

    def tokenize(self, texts: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        if self._ops:
            return self._ops.tokenize(texts)
        return _ids(self._library.encode_batch_fast(_strings(texts), add_special_tokens=False))

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        if self._ops:
            return self._ops.tokenize_with_offsets(texts)
        strings = _strings(texts)
        encoded = self._library.encode_batch(strings, add_special_tokens=False)
        ids = _ids(encoded)
        pairs = [_characters(text, each.offsets) for text, each in zip(strings, encoded, strict=True)]
        starts, ends = np.array(list(chain.from_iterable(pairs)), np.int64).reshape(-1, 2).T
        return ids, ids.with_values(tf.constant(starts)), ids.with_values(tf.constant(ends))

    def in_context(self, words: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        is_first = tf.concat([[True], rows[1:] != rows[:-1]], axis=0)[: tf.size(rows)]
        is_unspaced = tf.strings.regex_full_match(words, f"(?s)[{BLANKS}{UNSPACED}].*")
        return tf.where(is_first | is_unspaced, words, " " + words)


def _strings(texts: tf.Tensor | Sequence[str]) -> list[str]:
    contents = texts.numpy().tolist() if isinstance(texts, tf.Tensor) else texts
    return [each.decode(errors="replace") if isinstance(each, bytes) else each for each in contents]


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
