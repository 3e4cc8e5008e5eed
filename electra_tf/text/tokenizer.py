"""The one interface of all tokenizers, for the data builder, tf.data and the SavedModel."""

import os
from typing import Protocol

import tensorflow as tf
from tokenizers import Tokenizer as HuggingFaceTokenizer

from electra_tf.text.byte_level import ByteLevelTokenizer
from electra_tf.text.sentencepiece import SentencePieceTokenizer
from electra_tf.text.vocabulary import (
    BERT_TEXT,
    ByteLevelVocabulary,
    StoredTokenizer,
    TextSettings,
    Vocabulary,
    WordPieceVocabulary,
)
from electra_tf.text.wordpiece import BertTokenizer


class Tokenizer(Protocol):
    """Maps text to ids, in batches and in C++; a tf.Module, so that a SavedModel can hold it.

    Attributes:
        vocabulary: defines the ids.
        settings: how text is normalized.
        runs_in_graphs: whether text can be tokenized in a graph, as in a SavedModel. Otherwise only eager tensors can.
        description: what the tokens are, for a model card.
        hugging_face_settings: entries of tokenizer_config.json that describe the normalization.
    """

    vocabulary: Vocabulary
    settings: TextSettings
    runs_in_graphs: bool
    description: str
    hugging_face_settings: dict[str, bool | int]

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes lines, without special tokens.

        Args:
            texts: [N] string, UTF-8.
        Returns: the ids [N, (tokens)] int32.
        """

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokenizes lines, and finds the position of each token in its line, in characters (Unicode code points).

        A token ends after the accents stripped from its last character. White space and deleted characters may lie
        between tokens. Tokens are in order and do not overlap, except if one character becomes several tokens.

        Args:
            texts: [N] string, UTF-8; each invalid byte counts as a character.
        Returns: the ids of `tokenize` [N, (tokens)] int32, the starts [N, (tokens)] int64, and the ends (exclusive)
            [N, (tokens)] int64.
        """

    def tokens_of(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        """The tokens of ids (int32 in [0, V), dense or ragged), as strings in the same shape."""

    def to_hugging_face(self) -> HuggingFaceTokenizer:
        """The same tokenizer for the library `tokenizers`, without special tokens around a text."""


def create_tokenizer(vocabulary: Vocabulary, settings: TextSettings = BERT_TEXT) -> Tokenizer:
    """The tokenizer of a vocabulary. A SentencePiece model and a tokenizer.json have settings of their own."""
    if isinstance(vocabulary, WordPieceVocabulary):
        return BertTokenizer(vocabulary, settings)
    if isinstance(vocabulary, ByteLevelVocabulary):
        return ByteLevelTokenizer(vocabulary)
    return SentencePieceTokenizer(vocabulary)


def load_tokenizer(stored: StoredTokenizer, path: str | os.PathLike) -> Tokenizer:
    """A tokenizer as it was stored; `path` names the vocabulary in messages.

    Raises: UserError: see `Vocabulary.from_bytes`.
    """
    return create_tokenizer(Vocabulary.from_bytes(stored.content, path), stored.settings)
