"""Trains a SentencePiece model, BPE or unigram, on words with their counts.

BPE gives the model that the lines themselves would give. Its training does not depend on the number of threads; that of
unigram does, so there is one thread.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import sentencepiece
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.text.sentencepiece import normalize
from electra_tf.text.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary
from electra_tf.text.vocabulary_trainer import WordCounter, character_counts, most_frequent, num_covering

# Characters of the distinct words to train on.
MAX_TRAINING_CHARACTERS = 20_000_000
# Longer words are cut: SentencePiece silently skips those over 4,192 bytes. Where no spaces are written, a word is all
# that stands between two spaces, perhaps a paragraph.
MAX_WORD_CHARACTERS = 1000

_MIN_CHARACTER_COVERAGE = 0.98  # the library takes no less
_WRONG_SIZE = re.compile(r"Vocabulary size .*\d")  # in the library's messages


@dataclass(frozen=True)
class SentencePieceVocabularyTrainer:
    """Trains a SentencePiece model; like `electra_tf.text.wordpiece_trainer.WordPieceVocabularyTrainer`.

    Attributes:
        vocab_size: number of pieces, the five special tokens and the bytes included.
        byte_fallback: spell unknown characters with 256 pieces for bytes.
    """

    model_type: Literal["bpe", "unigram"]
    vocab_size: int
    byte_fallback: bool

    def word_counter(self) -> WordCounter:
        """Counts the strings between the spaces of normalized text, in parts of up to `MAX_WORD_CHARACTERS`."""
        return WordCounter(_words_of, _parts_of)

    def training_words(self, word_counts: Counter[str]) -> Counter[str]:
        return most_frequent(word_counts, MAX_TRAINING_CHARACTERS, len)

    def train(self, word_counts: Counter[str]) -> Vocabulary:
        """The pieces are [PAD], [UNK], [CLS], [SEP] and [MASK], the bytes if there are any, and those learnt."""
        # The share of the text in the characters that get a piece. The library counts the markers too.
        counts = sorted([*character_counts(word_counts).values(), word_counts.total()], reverse=True)
        covered = sum(counts[: num_covering(counts, self.vocab_size)]) / sum(counts)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(f"{word}\t{count}" for word, count in sorted(word_counts.items())),
                input_format="tsv",
                model_writer=model,
                model_type=self.model_type,
                vocab_size=self.vocab_size,
                byte_fallback=self.byte_fallback,
                character_coverage=max(covered, _MIN_CHARACTER_COVERAGE),
                normalization_rule_name="identity",
                num_threads=1,
                pad_id=0,
                pad_piece=PAD,
                unk_id=1,
                unk_piece=UNK,
                bos_id=-1,
                eos_id=-1,
                control_symbols=[CLS, SEP, MASK],  # not `user_defined_symbols`, which are found in text
                minloglevel=2,
            )
        except RuntimeError as error:
            if not (found := _WRONG_SIZE.search(str(error))):
                raise
            raise UserError(f"vocab_size={self.vocab_size}: {found[0]}; change it, or give other text") from None
        return Vocabulary.from_bytes(model.getvalue(), "the trained model")


def _words_of(runs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    words = tf.strings.split(normalize(runs), " ")
    is_word = words.values != ""
    return tf.boolean_mask(words.values, is_word), tf.boolean_mask(words.value_rowids(), is_word)


def _parts_of(word: str) -> Iterable[str]:
    return (word[begin : begin + MAX_WORD_CHARACTERS] for begin in range(0, len(word), MAX_WORD_CHARACTERS))
