"""Byte-level BPE as TensorFlow ops, for a tokenizer.json of the usual form: GPT-2's words, of text in NFC or as it is.

Words that are tokens are looked up in a table. The others go to SentencePiece, whose BPE merges as `tokenizers` does if
it gets the right pieces. `tokenizers` applies the merge of the lowest rank, the leftmost first; SentencePiece joins the
two neighbours whose concatenation is the piece of the highest score, here minus the rank, the leftmost first. The two
agree if each piece is what the merges make of its own text:

    Neighbours x and y are about to be joined to the piece xy. No merge has crossed the ends of xy. So those within it
    were the ones that the text xy alone gets, in the same order. These end with xy: the next one is (x, y) -> xy.

A token that is not what the merges make of its own text never occurs, for the same reason, and is no piece.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers.pre_tokenizers import ByteLevel

from electra_tf.text.sentencepiece import pieces_tokenizer
from electra_tf.text.wordpiece import of_lines

# A byte that is in no UTF-8: it separates words. No class of characters matches it.
_BARRIER = b"\xff"

# Letters and numbers of Unicode 16, as `tokenizers` has them; RE2's \pL and \pN are those of Unicode 15.
_LETTERS = (
    r"\pL\x{1C89}\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85}"
    r"\x{10EC2}-\x{10EC4}\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3}"
    r"\x{11BC0}-\x{11BE0}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF}\x{1E5D0}-\x{1E5ED}\x{1E5F0}"
    r"\x{2EBF0}-\x{2EE5D}"
)
_NUMBERS = (
    r"\pN\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{16130}-\x{16139}\x{16D70}-\x{16D79}"
    r"\x{1CCF0}-\x{1CCF9}\x{1E5F1}-\x{1E5FA}"
)
_SPACES = r"\t\n\v\f\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
# GPT-2's `\s+(?!\S)` leaves the last of several spaces to the word after them. Here a barrier before it does, because
# RE2 looks at nothing ahead.
_BEFORE_LAST_SPACE = f"([{_SPACES}]+)([{_SPACES}][^{_SPACES}])"
_WORD = f"'(?:[stmd]|re|ve|ll)| ?[{_LETTERS}]+| ?[{_NUMBERS}]+| ?[^{_SPACES}{_LETTERS}{_NUMBERS}]+|[{_SPACES}]+"
# Marks and parts of letters that NFC moves or joins since Unicode 10; `tokenizers` has the tables of Unicode 9.
_YOUNG = (
    r"\x{7FD}\x{897}-\x{89F}\x{8CA}-\x{8D3}\x{9FE}\x{C3C}\x{D3B}\x{D3C}\x{EBA}\x{1715}\x{1ABF}-\x{1ACE}"
    r"\x{1DF6}-\x{1DFA}\x{A82C}\x{105D2}\x{105DA}\x{10D24}-\x{10D27}\x{10D69}-\x{10D6D}\x{10EAB}\x{10EAC}"
    r"\x{10EFD}-\x{10EFF}\x{10F46}-\x{10F50}\x{10F82}-\x{10F85}\x{11070}\x{1133B}\x{113B8}\x{113BB}\x{113C2}\x{113C9}"
    r"\x{113CE}-\x{113D0}\x{1145E}\x{11839}\x{1183A}\x{11930}\x{1193D}\x{1193E}\x{11943}\x{119E0}\x{11A34}\x{11A47}"
    r"\x{11A99}\x{11D42}\x{11D44}\x{11D45}\x{11D97}\x{11F41}\x{11F42}\x{1611E}-\x{16120}\x{16129}\x{1612F}\x{16D67}"
    r"\x{16FF0}\x{16FF1}\x{1E08F}\x{1E130}-\x{1E136}\x{1E2AE}\x{1E2EC}-\x{1E2EF}\x{1E4EC}-\x{1E4EF}\x{1E5EE}\x{1E5EF}"
)

_ANY_TEXT = r"[\x{0}-\x{D7FF}\x{E000}-\x{10FFFF}]*"  # without invalid bytes
_USED_BYTES = set(range(0xF5)) - {0xC0, 0xC1}  # of UTF-8
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # SentencePiece's types of pieces
_GPT2_WORDS = {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}.items()
_PLAIN_TOKEN = {"normalized": True, "single_word": False, "lstrip": False, "rstrip": False}.items()
_OTHER_MODELS = "dropout", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix"
BLANKS = _SPACES + r"\x{1C}-\x{1F}"  # Python's white space
# Which a barrier would cut, or which are not trimmed.
_SPACES_WITHIN = re.compile(r"\s\s\S|\S\s+$")


class BytePairOps(tf.Module):
    """Maps text to the ids of a tokenizer.json, in eager mode and in graphs.

    Args of the constructor:
        library: the file's tokenizer.
        parts: the content of the file as the library writes it; `is_known_form`.
    """

    def __init__(self, library: HuggingFaceTokenizer, parts: Mapping[str, Any]) -> None:
        super().__init__(name="byte_pairs")
        self._is_nfc = parts["normalizer"] is not None
        byte_of = _byte_alphabet()
        # The tokens that the merges make of their own text.
        reached = {
            token: index
            for token, index in library.get_vocab(with_added_tokens=False).items()
            if byte_of.keys() >= set(token) and [each.id for each in library.model.tokenize(token)] == [index]
        }
        added = {
            library.normalizer.normalize_str(token.content) if self._is_nfc else token.content: index
            for index, token in library.get_added_tokens_decoder().items()
            if not token.special
        }
        words = {bytes(map(byte_of.__getitem__, token)): index for token, index in reached.items()}
        words |= {token.encode(): index for token, index in added.items()}
        num_bytes = np.zeros(max(library.get_vocab().values()) + 1, np.int64)
        num_bytes[list(words.values())] = list(map(len, words))
        self._added = "|".join(map(re.escape, sorted(added, key=len, reverse=True)))
        self._word = "|".join([self._added, _WORD] if added else [_WORD])
        with tf.device("CPU:0"):  # next to the string ops, also on a machine with a GPU
            ids = tf.constant([*words.values()], tf.int32)
            self._words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([*words], ids), -1)
            self._num_bytes = tf.constant(num_bytes)
            self._characters = tf.constant([ord(character) for character in sorted(byte_of, key=byte_of.__getitem__)])
            self._merges = pieces_tokenizer(_sentencepiece_model(reached, parts["model"]["merges"], len(num_bytes)))

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """See `electra_tf.text.tokenizer.Tokenizer.tokenize`."""
        return self._ids(self._normalize(_with_replacements(texts)))

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """See `electra_tf.text.tokenizer.Tokenizer.tokenize_with_offsets`."""
        texts = _with_replacements(texts)
        normalized = self._normalize(texts)
        ids = self._ids(normalized)
        each_byte = tf.range(tf.reduce_sum(tf.cast(tf.strings.length(texts), tf.int64)))
        is_same = tf.reduce_all(normalized == texts)
        firsts, lasts = tf.cond(is_same, lambda: (each_byte, each_byte), lambda: _origins(_young_apart(texts)))
        num_bytes = tf.gather(self._num_bytes, ids.values)
        ends = tf.cumsum(num_bytes)  # the tokens of all texts, one after another
        first, last = tf.gather(firsts, ends - num_bytes), tf.gather(lasts, ends - 1)
        return ids, *_characters(texts, ids.with_values(first), ids.with_values(last))

    def _normalize(self, texts: tf.Tensor) -> tf.Tensor:
        if not self._is_nfc:
            return texts
        parts = _young_apart(texts)
        return tf.strings.reduce_join(parts.with_values(tf_text.normalize_utf8(parts.values, "NFC")), axis=1)

    def _ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of normalized texts."""
        num_texts = tf.size(texts, tf.int64)
        if self._added:
            texts = tf.strings.regex_replace(texts, self._added, _BARRIER + rb"\0" + _BARRIER)
        texts = tf.strings.regex_replace(texts, _BEFORE_LAST_SPACE, rb"\1" + _BARRIER + rb"\2")
        texts = tf.strings.regex_replace(texts, self._word, rb"\0" + _BARRIER)
        places, words, _ = tf.raw_ops.StringSplit(input=texts, delimiter=_BARRIER, skip_empty=True)
        ids = self._words.lookup(words)
        is_token = ids >= 0
        others, index_in_others = tf.unique(tf.boolean_mask(words, ~is_token))
        tokens = tf.boolean_mask(ids, is_token)[:, tf.newaxis]
        choices = tf.concat([tf.RaggedTensor.from_tensor(tokens), self._merge(others)], axis=0)
        num_tokens = tf.shape(tokens)[0]
        of_kinds = [tf.cast(tf.where(each)[:, 0], tf.int32) for each in (is_token, ~is_token)]
        index = tf.dynamic_stitch(of_kinds, [tf.range(num_tokens), num_tokens + index_in_others])
        return of_lines(tf.gather(choices, index), places[:, 0], num_texts)

    def _merge(self, words: tf.Tensor) -> tf.RaggedTensor:
        content = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32)
        characters = tf.RaggedTensor.from_row_lengths(tf.gather(self._characters, content), tf.strings.length(words))
        return self._merges.tokenize(tf.strings.unicode_encode(characters, "UTF-8"))


def is_known_form(parts: Mapping[str, Any]) -> bool:
    """Whether `BytePairOps` gives the ids of a tokenizer with these parts."""
    model, added = parts["model"], parts["added_tokens"]
    tokens = [_joined(merge) for merge in model["merges"]]
    found = [token for token in added if not token["special"]]  # in texts
    return (
        not any(model[name] for name in _OTHER_MODELS)
        and len(set(tokens)) == len(tokens)  # one merge makes a token
        and all(character in model["vocab"] for character, byte in _byte_alphabet().items() if byte in _USED_BYTES)
        and parts["normalizer"] in (None, {"type": "NFC"})
        and (parts["pre_tokenizer"] or {}).items() >= _GPT2_WORDS
        and all(token.items() >= _PLAIN_TOKEN and not _SPACES_WITHIN.search(token["content"]) for token in found)
        # "é" is also the name of a token for a byte, which the library then uses for both.
        and not any(token["content"] in model["vocab"] and not token["content"].isascii() for token in found)
        and not (found and any(token["normalized"] for token in added if token["special"]))  # they may overlap
    )


def _byte_alphabet() -> dict[str, int]:
    """The byte behind each of the 256 characters of which GPT-2's tokens are made."""
    codes = sorted(map(ord, ByteLevel.alphabet()))
    own = [code for code in codes if code < 256]  # a printable character stands for its own byte
    return dict(zip(map(chr, codes), own + sorted(set(range(256)) - set(own)), strict=True))


def _joined(merge: str | list[str]) -> str:
    return "".join(merge).replace(" ", "")


def _sentencepiece_model(ids: Mapping[str, int], merges: Sequence[str | list[str]], size: int) -> bytes:
    """A SentencePiece model of BPE with these pieces, in the format of Protocol Buffers."""
    rank_of = {_joined(merge): rank for rank, merge in enumerate(merges)}
    # No text has the others, whose names have a space. The library wants one for unknown characters.
    pieces = [(f" {index}", 0, _CONTROL) for index in range(size)]
    for token, index in ids.items():
        pieces[index] = token, -rank_of.get(token, 0), _NORMAL
    unknown = next(index for index, (*_, kind) in enumerate(pieces) if kind == _CONTROL)
    pieces[unknown] = " ", 0, _UNKNOWN
    fields = [
        _field(1, _field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind]))
        for text, score, kind in pieces
    ]
    trainer, normalizer = b"\x18\x02", b"\x18\x00\x20\x00\x28\x00"  # BPE; no prefix, all spaces, as they are
    return b"".join([*fields, _field(2, trainer), _field(3, normalizer)])


def _field(number: int, content: bytes) -> bytes:
    """A field with less than 2**14 bytes of a message."""
    low, high = len(content) & 0x7F, len(content) >> 7
    return bytes([number << 3 | 2, *([low | 0x80, high] if high else [low])]) + content


def _with_replacements(texts: tf.Tensor) -> tf.Tensor:
    """Texts with U+FFFD for invalid bytes, as Python decodes them with errors="replace"."""
    texts = tf.convert_to_tensor(texts, tf.string)
    is_valid = tf.strings.regex_full_match(texts, _ANY_TEXT)
    replaced = lambda: tf.where(is_valid, texts, tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8"))  # noqa: E731
    return tf.cond(tf.reduce_all(is_valid), lambda: texts, replaced)


def _young_apart(texts: tf.Tensor) -> tf.RaggedTensor:
    """The parts of texts that are normalized one by one: [N, (parts)]."""
    return tf.strings.split(tf.strings.regex_replace(texts, f"[{_YOUNG}]", _BARRIER + rb"\0" + _BARRIER), _BARRIER)


def _origins(parts: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The first and the last byte that each byte of the normalized parts comes from, counted over all texts."""
    normalized, edits = tf_text.normalize_utf8_with_offsets_map(parts.values, "NFC")
    # find_source_offsets takes no empty row.
    places = tf.ragged.range(tf.cast(tf.strings.length(normalized), tf.int64) + 1)
    found = tf_text.find_source_offsets(edits, places)
    begins, ends = found[:, :-1], found[:, 1:].values
    # Within what NFC has changed, all offsets are its end.
    is_within = begins.values == ends
    first = tf.gather(tf.boolean_mask(begins.values, ~is_within), tf.cumsum(tf.cast(~is_within, tf.int64)) - 1)
    lengths = tf.cast(tf.strings.length(parts.values), tf.int64)
    begin_of_part = tf.gather(tf.cumsum(lengths, exclusive=True), begins.value_rowids())
    return begin_of_part + first, begin_of_part + ends - 1


def _characters(
    texts: tf.Tensor, first: tf.RaggedTensor, last: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """The start and the end of tokens in their texts, in characters, without spaces before them.

    Args: first, last: [N, (tokens)] int64, the bytes of each token, counted over all texts.
    """
    character_of = tf.cumsum(tf.cast(_begins_character(texts)[1], tf.int64)) - 1
    content, begins = _begins_character(tf.strings.regex_replace(texts, f"[{BLANKS}]", " "))
    is_visible = tf.boolean_mask(content, begins) != ord(" ")
    visible = tf.concat([tf.where(is_visible)[:, 0], [tf.size(is_visible, tf.int64)]], axis=0)
    starts, ends = tf.gather(character_of, first.values), tf.gather(character_of, last.values) + 1
    starts = tf.minimum(tf.gather(visible, tf.searchsorted(visible, starts)), ends)
    lengths = tf.cast(tf.strings.length(texts, unit="UTF8_CHAR"), tf.int64)
    begin_of_text = tf.gather(tf.cumsum(lengths, exclusive=True), first.value_rowids())
    return first.with_values(starts - begin_of_text), first.with_values(ends - begin_of_text)


def _begins_character(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The bytes of all texts, and whether a character begins with each."""
    content = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    return content, tf.bitwise.bitwise_and(content, 0xC0) != 0x80
