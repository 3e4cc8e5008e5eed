"""Trains a WordPiece vocabulary on text, normalized as in the tokenizer, and measures its coverage of a text.

The trainer is Hugging Face's `tokenizers`: 0.3 s for 1 MB of Wikipedia, compared with 25 s for tensorflow_text's, which
does not reach the requested size. By default, `tokenizers` numbers the "##x" characters in the order of a hash table
and breaks ties between merges by these numbers, so that two runs differ. Here all characters are numbered beforehand:
the same text gives the same vocabulary for any hash seed and number of threads.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
import tensorflow as tf
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from electra_tf.config.errors import UserError
from electra_tf.text.normalization import BasicTokenizer
from electra_tf.text.tokenizer import Tokenizer as TextTokenizer
from electra_tf.text.vocabulary import CLS, CONTINUATION_PREFIX, MASK, PAD, SEP, UNK, TextSettings
from electra_tf.text.wordpiece import MAX_CHARACTERS_PER_WORD

# Distinct words to train on. The trainer needs 1 KB of memory for each.
MAX_TRAINING_WORDS = 500_000
# Occurrences to train on. The trainer reads each of them, 1.7 M/s. 600 MB of English have this number.
MAX_TRAINING_OCCURRENCES = 100_000_000

# By default, the most frequent characters are kept until they make up CHARACTER_COVERAGE of the text: at least
# MIN_NUM_CHARACTERS, and beyond these at most MAX_CHARACTER_FRACTION of the vocabulary.
CHARACTER_COVERAGE = 0.9999
MIN_NUM_CHARACTERS = 1000
MAX_CHARACTER_FRACTION = 1 / 3

NUM_UNUSED_BEFORE_UNK = 99  # as in BERT's vocabularies, where [UNK] is 100

_RUNS_AT_ONCE = 2**18  # distinct strings without white space that wait to be split into words
_WORDS_PER_CALL = 2**14  # of the tokenizer
_WORDS_PER_LINE = 1000  # of the lines that carry the counts to the trainer
# White space in Python, but deleted by BERT.
_NO_SPACE_FOR_BERT = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class WordCounter:
    """Counts the words of BERT's basic tokenization.

    The strings between white space are counted first, and each distinct one is normalized and split once: 20 MB/s on a
    core, compared with 4 MB/s for normalizing all text.
    """

    def __init__(self, settings: TextSettings) -> None:
        words_of = tf.function(BasicTokenizer(settings).words, autograph=False)
        self._words_of = words_of.get_concrete_function(tf.TensorSpec([None], tf.string))
        self._run_counts: Counter[str] = Counter()
        self._word_counts: Counter[bytes] = Counter()

    def add(self, lines: Iterable[str]) -> None:
        """Counts the words of lines. Call `take` before the distinct words exceed the memory."""
        for line in lines:
            if not line.isprintable():
                line = _NO_SPACE_FOR_BERT.sub("", line)
            self._run_counts.update(line.split())
            if len(self._run_counts) >= _RUNS_AT_ONCE:
                self._cut_runs()

    def take(self) -> Counter[str]:
        """Returns and resets the counts. A word of over 200 characters, which is always [UNK], is cut to 201."""
        self._cut_runs()
        counts: Counter[str] = Counter()
        for word, count in self._word_counts.items():
            counts[word.decode("utf-8")[: MAX_CHARACTERS_PER_WORD + 1]] += count
        self._word_counts.clear()
        return counts

    def _cut_runs(self) -> None:
        items = iter(self._run_counts.items())
        while batch := list(islice(items, _WORDS_PER_CALL)):
            runs, run_counts = zip(*batch, strict=True)
            words, _, rows = self._words_of(tf.constant(runs))
            for word, row in zip(words.numpy().tolist(), rows.numpy().tolist(), strict=True):
                self._word_counts[word] += run_counts[row]
        self._run_counts.clear()


def special_tokens(num_unused_tokens: int) -> tuple[str, ...]:
    """The first tokens of the vocabulary, in BERT's order, with slots for a user's own tokens.

    Args:
        num_unused_tokens: with 99 or more, the special tokens have the ids of BERT's vocabularies: [PAD] 0, [UNK] 100,
            [CLS] 101, [SEP] 102, [MASK] 103.
    """
    unused = [f"[unused{i}]" for i in range(num_unused_tokens)]
    return (PAD, *unused[:NUM_UNUSED_BEFORE_UNK], UNK, CLS, SEP, MASK, *unused[NUM_UNUSED_BEFORE_UNK:])


def train_vocabulary(
    word_counts: Counter[str], *, vocab_size: int, max_num_characters: int, num_unused_tokens: int
) -> tuple[str, ...]:
    """Trains the word pieces.

    Args:
        word_counts: the occurrences of each word; at most `MAX_TRAINING_WORDS` words.
        vocab_size: number of tokens, special and unused ones included.
        max_num_characters: number of distinct characters in all pieces. The most frequent ones are kept; words with
            other characters are left out. 0: see `CHARACTER_COVERAGE`.
        num_unused_tokens: see `special_tokens`.
    Returns: `vocab_size` tokens: the special ones, [PAD] with id 0; all characters; the characters within words, with
        "##"; then the pieces in the order in which they were learnt.
    Raises: UserError: the text has too few pieces, or too many characters, for the size.
    """
    words = Counter({word: count for word, count in word_counts.items() if len(word) <= MAX_CHARACTERS_PER_WORD})
    words = _spelled_with_frequent_characters(words, max_num_characters, vocab_size)
    characters = sorted(set().union(*words))
    inner_characters = sorted({CONTINUATION_PREFIX + character for word in words for character in word[1:]})
    given = [*special_tokens(num_unused_tokens), *characters, *inner_characters]
    if len(given) > vocab_size:
        raise UserError(
            f"--vocab_size is {vocab_size}, but the special tokens and the characters of the text need {len(given)}; "
            "raise --vocab_size or lower --max_num_characters"
        )
    tokenizer = Tokenizer(WordPiece(unk_token=UNK))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=given,
        continuing_subword_prefix=CONTINUATION_PREFIX,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_as_lines(words), trainer)
    id_of = tokenizer.get_vocab()
    if len(id_of) < vocab_size:
        raise UserError(
            f"the text yields only {len(id_of)} tokens, expected {vocab_size}; give more text or lower --vocab_size"
        )
    return tuple(sorted(id_of, key=id_of.__getitem__))


def _spelled_with_frequent_characters(
    word_counts: Counter[str], max_num_characters: int, vocab_size: int
) -> Counter[str]:
    character_counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            character_counts[character] += count
    # Ties are broken by code point, so that the choice does not depend on the order of the input.
    by_frequency = sorted(character_counts, key=lambda character: (-character_counts[character], character))
    num_characters = max_num_characters or _num_covering([character_counts[c] for c in by_frequency], vocab_size)
    frequent = set(by_frequency[:num_characters])
    return Counter({word: count for word, count in word_counts.items() if frequent.issuperset(word)})


def _num_covering(counts: list[int], vocab_size: int) -> int:
    """The default number of characters to keep, if all characters have these counts, in descending order."""
    most = max(MIN_NUM_CHARACTERS, int(vocab_size * MAX_CHARACTER_FRACTION))
    num_missing = CHARACTER_COVERAGE * sum(counts) - sum(counts[:MIN_NUM_CHARACTERS])
    num_characters = MIN_NUM_CHARACTERS
    while num_missing > 0 and num_characters < min(most, len(counts)):
        num_missing -= counts[num_characters]
        num_characters += 1
    return num_characters


def _as_lines(words: Counter[str]) -> Iterator[str]:
    """Text for the trainer, which takes no counts: repeats each word by its count, scaled down for a large text."""
    total = words.total()
    for word, count in words.items():
        if total > MAX_TRAINING_OCCURRENCES:
            count = max(1, (count * MAX_TRAINING_OCCURRENCES + total // 2) // total)
        for done in range(0, count, _WORDS_PER_LINE):
            yield " ".join([word] * min(_WORDS_PER_LINE, count - done))


def measure_coverage(word_counts: Iterable[tuple[str, int]], tokenizer: TextTokenizer) -> dict[str, float]:
    """Measures how well a vocabulary fits a text: totals, then fractions.

    Each punctuation mark and CJK ideograph is a word. A word that the vocabulary cannot spell is one unknown token.

    Args:
        word_counts: pairs of a word from `WordCounter`, with the tokenizer's settings, and its count; at least one.
    """
    tokenize = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
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
    num_words, num_tokens, num_unknown_tokens, num_single_piece_words = totals.tolist()
    return {
        "num_words": num_words,
        "num_tokens": num_tokens,
        "num_unknown_tokens": num_unknown_tokens,
        "num_single_piece_words": num_single_piece_words,
        "unknown_fraction": num_unknown_tokens / num_tokens,
        "tokens_per_word": num_tokens / num_words,
        "single_piece_fraction": num_single_piece_words / num_words,
    }
