"""The tokenizer of each kind of vocabulary."""

import importlib
import os

from electra_tf.config.errors import wrong_contents
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

# Module and class; tensorflow_text, which they import, takes as long as the rest of this project.
_TOKENIZERS: dict[type[Vocabulary], tuple[str, str]] = {
    WordPieceVocabulary: ("electra_tf.text.wordpiece", "BertTokenizer"),
    SentencePieceVocabulary: ("electra_tf.text.sentencepiece", "SentencePieceTokenizer"),
    ByteLevelVocabulary: ("electra_tf.text.byte_level", "ByteLevelTokenizer"),
}


def create_tokenizer(vocabulary: Vocabulary, settings: TextSettings = BERT_TEXT) -> Tokenizer:
    """The tokenizer of a vocabulary, with these settings unless the vocabulary's kind has settings of its own."""
    module, name = _TOKENIZERS[type(vocabulary)]
    tokenizer: Tokenizer = getattr(importlib.import_module(module), name)(vocabulary, settings)
    return tokenizer


def load_tokenizer(stored: StoredTokenizer, path: str | os.PathLike[str], segment: str | None = None) -> Tokenizer:
    """A tokenizer as it was stored; `path` names the vocabulary in messages, `segment` is `Tokenizer.given_segment`.

    Raises: UserError: see `Vocabulary.from_bytes`; or a library cannot read it, as with a zero byte in a token.
    """
    with wrong_contents(f"vocabulary {path}"):
        tokenizer = create_tokenizer(Vocabulary.from_bytes(stored.content, path), stored.settings)
    tokenizer.given_segment = segment
    return tokenizer
