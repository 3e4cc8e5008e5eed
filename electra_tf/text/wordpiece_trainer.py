"""Trains a WordPiece vocabulary.

The trainer is Hugging Face's `tokenizers`: 0.3 s for 1 MB of Wikipedia, compared with 25 s for tensorflow_text's, which
does not reach the requested size. By default, `tokenizers` numbers the "##x" characters in the order of a hash table
and breaks ties between merges by these numbers, so that two runs differ. Here all characters are numbered beforehand:
the same text gives the same vocabulary for any hash seed and number of threads.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from electra_tf.config.errors import UserError
from electra_tf.text.hugging_face import MAX_CHARACTERS_PER_WORD
from electra_tf.text.normalization import BasicTokenizer
from electra_tf.text.vocabulary import (
    BERT_TEXT,
    CLS,
    CONTINUATION_PREFIX,
    MASK,
    MAX_BYTES_PER_TOKEN,
    PAD,
    SEP,
    UNK,
    TextSettings,
    WordPieceVocabulary,
)
from electra_tf.text.vocabulary_trainer import WordCounter, character_counts, most_frequent, num_covering

# Distinct words to train on. The trainer needs 1 KB of memory for each.
MAX_TRAINING_WORDS = 500_000
# Occurrences to train on. The trainer reads each of them, 1.7 M/s. 600 MB of English have this number.
MAX_TRAINING_OCCURRENCES = 100_000_000

NUM_UNUSED_BEFORE_UNK = 99  # as in BERT's vocabularies, where [UNK] is 100

_LONG_MEAN = 12  # characters of a word; in languages with spaces it is 3 to 7
_WORDS_PER_LINE = 1000  # of the lines that carry the counts to the trainer


@dataclass(frozen=True)
class WordPieceVocabularyTrainer:
    """Trains a WordPiece vocabulary. Each step depends on the words and their counts alone, not on their order.

    Attributes:
        vocab_size: number of tokens, special and unused ones included.
        max_num_characters: number of distinct characters in all pieces. The most frequent ones are kept; words with
            other characters are left out. 0: see `num_covering`.
        num_unused_tokens: see `special_tokens`.
    """

    vocab_size: int
    max_num_characters: int
    num_unused_tokens: int
    text_settings: TextSettings = BERT_TEXT

    def word_counter(self) -> WordCounter:
        """Counts the words of BERT's basic tokenization. A word of over 200 characters, always [UNK], is cut to 201."""
        basic_tokenizer = BasicTokenizer(self.text_settings)

        def words_of(runs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            words, _, rows, *_ = basic_tokenizer.words(runs)
            return words, rows

        return WordCounter(words_of, lambda word: [word[: MAX_CHARACTERS_PER_WORD + 1]])

    def training_words(self, word_counts: Counter[str]) -> Counter[str]:
        return most_frequent(word_counts, MAX_TRAINING_WORDS, lambda word: 1)

    def train(self, word_counts: Counter[str]) -> WordPieceVocabulary:
        """The tokens are the special ones, [PAD] with id 0; all characters; the characters within words, with "##";
        then the pieces in the order in which they were learnt.

        Raises: UserError: the text has too few pieces, or too many characters, for the size.
        """
        words = Counter({word: count for word, count in word_counts.items() if len(word) <= MAX_CHARACTERS_PER_WORD})
        counts = character_counts(words)
        num_characters = self.max_num_characters or num_covering(list(counts.values()), self.vocab_size)
        frequent = set(list(counts)[:num_characters])
        words = Counter({word: count for word, count in words.items() if frequent.issuperset(word)})
        characters = sorted(set().union(*words))
        inner_characters = sorted({CONTINUATION_PREFIX + character for word in words for character in word[1:]})
        given = [*special_tokens(self.num_unused_tokens), *characters, *inner_characters]
        if len(given) > self.vocab_size:
            raise UserError(
                f"vocab_size is {self.vocab_size}, but the special tokens and the characters of the text need "
                f"{len(given)}; raise vocab_size or lower max_num_characters"
            )
        tokens = self._learnt(words, given)
        if len(tokens) < self.vocab_size:
            mean_length = sum(len(word) * count for word, count in word_counts.items()) / word_counts.total()
            advice = "model=bpe, as the text has hardly any spaces" if mean_length > _LONG_MEAN else "more text"
            raise UserError(
                f"the text yields only {len(tokens)} tokens, expected {self.vocab_size}; give {advice}, or lower "
                "vocab_size"
            )
        return WordPieceVocabulary.from_tokens(tokens)

    def _learnt(self, words: Counter[str], given: list[str]) -> list[str]:
        """The first `vocab_size` tokens that are not too long; fewer if the words yield no more."""
        num_tokens = self.vocab_size
        while True:
            tokenizer = Tokenizer(WordPiece(unk_token=UNK))
            tokenizer.pre_tokenizer = WhitespaceSplit()
            trainer = WordPieceTrainer(
                vocab_size=num_tokens,
                special_tokens=given,
                continuing_subword_prefix=CONTINUATION_PREFIX,
                show_progress=False,
            )
            tokenizer.train_from_iterator(_as_lines(words), trainer)
            id_of = tokenizer.get_vocab()
            tokens = sorted(id_of, key=id_of.__getitem__)
            pieces = ((token, token.removeprefix(CONTINUATION_PREFIX)) for token in tokens)
            fitting = [token for token, piece in pieces if len(piece.encode()) <= MAX_BYTES_PER_TOKEN]
            if len(fitting) >= self.vocab_size or len(tokens) < num_tokens:
                return fitting[: self.vocab_size]
            num_tokens += self.vocab_size - len(fitting)


def special_tokens(num_unused_tokens: int) -> tuple[str, ...]:
    """The first tokens of the vocabulary, in BERT's order, with slots for a user's own tokens.

    With 99 slots or more, the special tokens have the ids of BERT's vocabularies: [PAD] 0, [UNK] 100 to [MASK] 103.
    """
    unused = [f"[unused{i}]" for i in range(num_unused_tokens)]
    return (PAD, *unused[:NUM_UNUSED_BEFORE_UNK], UNK, CLS, SEP, MASK, *unused[NUM_UNUSED_BEFORE_UNK:])


def _as_lines(words: Counter[str]) -> Iterator[str]:
    """Text for the trainer, which takes no counts: repeats each word by its count, scaled down for a large text."""
    total = words.total()
    for word, count in words.items():
        if total > MAX_TRAINING_OCCURRENCES:
            count = max(1, (count * MAX_TRAINING_OCCURRENCES + total // 2) // total)
        for done in range(0, count, _WORDS_PER_LINE):
            yield " ".join([word] * min(_WORDS_PER_LINE, count - done))
