"""The tokenizer of each kind of vocabulary."""

import os

from electra_tf.text.byte_level import ByteLevelTokenizer
from electra_tf.text.sentencepiece import SentencePieceTokenizer
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocabulary import (
    BERT_TEXT,
    ByteLevelVocabulary,
    SentencePieceVocabulary,
    StoredTokenizer,
    TextSettings,
    Vocabulary,
    WordPieceVocabulary,
)
from electra_tf.text.wordpiece import BertTokenizer

_TOKENIZERS: dict[type[Vocabulary], type[Tokenizer]] = {
    WordPieceVocabulary: BertTokenizer,
    SentencePieceVocabulary: SentencePieceTokenizer,
    ByteLevelVocabulary: ByteLevelTokenizer,
}


def create_tokenizer(vocabulary: Vocabulary, settings: TextSettings = BERT_TEXT) -> Tokenizer:
    """The tokenizer of a vocabulary, with these settings unless the vocabulary's kind has settings of its own."""
    return _TOKENIZERS[type(vocabulary)](vocabulary, settings)


def load_tokenizer(stored: StoredTokenizer, path: str | os.PathLike[str]) -> Tokenizer:
    """A tokenizer as it was stored; `path` names the vocabulary in messages.

    Raises: UserError: see `Vocabulary.from_bytes`.
    """
    return create_tokenizer(Vocabulary.from_bytes(stored.content, path), stored.settings)
