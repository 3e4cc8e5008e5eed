"""How well a vocabulary fits a text: the fraction of unknown tokens, and the number of pieces per word."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import tensorflow as tf

from electra_tf.text.tokenizer import BertTokenizer

_WORDS_PER_CALL = 2**14


@dataclass(frozen=True)
class Coverage:
    """Totals over a text. Words are BERT's: each punctuation mark and CJK ideograph is a word.

    Attributes:
        num_unknown_tokens: a word that the vocabulary cannot spell is one unknown token.
        num_single_piece_words: words that are tokens themselves; unknown words are not.
    """

    num_words: int
    num_tokens: int
    num_unknown_tokens: int
    num_single_piece_words: int

    @property
    def unknown_fraction(self) -> float:
        """Fraction of the tokens that are [UNK]; 0 for an empty text."""
        return self.num_unknown_tokens / max(1, self.num_tokens)

    @property
    def tokens_per_word(self) -> float:
        return self.num_tokens / max(1, self.num_words)

    @property
    def single_piece_fraction(self) -> float:
        """Fraction of the words that are one piece."""
        return self.num_single_piece_words / max(1, self.num_words)


def measure_coverage(word_counts: Iterable[tuple[str, int]], tokenizer: BertTokenizer) -> Coverage:
    """Tokenizes each word once and weighs it by its count.

    Args:
        word_counts: words of `WordCounter` with the tokenizer's settings, each with its count.
    """
    tokenize = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    # [words, tokens, unknown tokens, words of one piece]
    totals = np.zeros(4, np.int64)
    items = iter(word_counts)
    while batch := list(islice(items, _WORDS_PER_CALL)):
        words, word_counts_of_batch = zip(*batch, strict=True)
        counts = np.array(word_counts_of_batch, np.int64)
        pieces = tokenize(tf.constant(words))  # a normalized word is tokenized like a line of text
        num_pieces = pieces.row_lengths().numpy()
        is_unknown = pieces.flat_values.numpy()[pieces.row_starts().numpy()] == tokenizer.vocabulary.unk_id
        is_single = (num_pieces == 1) & ~is_unknown
        totals += [counts.sum(), counts @ num_pieces, counts @ is_unknown, counts @ is_single]
    return Coverage(*totals.tolist())
