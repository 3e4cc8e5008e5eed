"""What the trainers of all kinds of vocabularies share: counting words, choosing words and characters, and coverage.

A vocabulary is trained on words with their counts, which are the same for any order and division of the text.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np
import tensorflow as tf

from electra_tf.text.tokenizer import Tokenizer

# By default, the most frequent characters are kept until they make up CHARACTER_COVERAGE of the text: at least
# MIN_NUM_CHARACTERS, and beyond these at most MAX_CHARACTER_FRACTION of the vocabulary.
CHARACTER_COVERAGE = 0.9999
MIN_NUM_CHARACTERS = 1000
MAX_CHARACTER_FRACTION = 1 / 3

_RUNS_AT_ONCE = 2**18  # distinct strings without white space that wait to be split into words
_WORDS_PER_CALL = 2**14  # of the tokenizer


class WordCounter:
    """Counts the words of lines.

    The strings between white space are counted first, and each distinct one is normalized and split once: with BERT's
    normalization 20 MB/s on a core, compared with 4 MB/s for normalizing all text.

    Args:
        words_of: normalizes and splits runs [N] string, as the kind's tokenizer does: gives the words [W] string, and
            the run [W] int64 of each.
        parts_of: the words to count in place of a word, which may be very long.
    """

    def __init__(
        self, words_of: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]], parts_of: Callable[[str], Iterable[str]]
    ) -> None:
        traced = tf.function(words_of, autograph=False)
        self._words_of = traced.get_concrete_function(tf.TensorSpec([None], tf.string))
        self._parts_of = parts_of
        self._run_counts: Counter[str] = Counter()
        self._word_counts: Counter[bytes] = Counter()

    def add(self, lines: Iterable[str]) -> None:
        """Counts the words of lines. Call `take` before the distinct words exceed the memory."""
        for line in lines:
            self._run_counts.update(line.split(" "))  # other white space is rare, and `words_of` knows it
            if len(self._run_counts) >= _RUNS_AT_ONCE:
                self._cut_runs()

    def take(self) -> Counter[str]:
        """Returns and resets the counts."""
        self._cut_runs()
        counts: Counter[str] = Counter()
        for word, count in self._word_counts.items():
            for part in self._parts_of(word.decode("utf-8")):
                counts[part] += count
        self._word_counts.clear()
        return counts

    def _cut_runs(self) -> None:
        items = iter(self._run_counts.items())
        while batch := list(islice(items, _WORDS_PER_CALL)):
            runs, run_counts = zip(*batch, strict=True)
            words, rows = self._words_of(tf.constant(runs))
            for word, row in zip(words.numpy().tolist(), rows.numpy().tolist(), strict=True):
                self._word_counts[word] += run_counts[row]
        self._run_counts.clear()


def most_frequent(word_counts: Counter[str], max_total: int, size_of: Callable[[str], int]) -> Counter[str]:
    """The most frequent words whose sizes add up to at most `max_total`.

    Of the equally frequent words for which there is too little room, a hash chooses: in the order of the alphabet, all
    of them would begin with the same letters.
    """
    total_of_count: Counter[int] = Counter()
    for word, count in word_counts.items():
        total_of_count[count] += size_of(word)
    room = max_total
    for border in sorted(total_of_count, reverse=True):
        if total_of_count[border] > room:
            break
        room -= total_of_count[border]
    else:
        return word_counts
    chosen = Counter({word: count for word, count in word_counts.items() if count > border})

    def order(word: str) -> bytes:
        return hashlib.blake2b(word.encode(), digest_size=8, person=b"training word").digest()

    for word in sorted((word for word, count in word_counts.items() if count == border), key=order):
        if size_of(word) > room:
            break
        room -= size_of(word)
        chosen[word] = border
    return chosen


def character_counts(word_counts: Counter[str]) -> Counter[str]:
    """The occurrences of each character, in descending order; equally frequent ones in the order of code points."""
    counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            counts[character] += count
    return Counter(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))))


def num_covering(counts: list[int], vocab_size: int) -> int:
    """The default number of characters to keep, if all characters have these counts, in descending order."""
    needed = 1 + int(np.searchsorted(np.cumsum(counts), CHARACTER_COVERAGE * sum(counts)))
    return max(MIN_NUM_CHARACTERS, min(needed, int(vocab_size * MAX_CHARACTER_FRACTION), len(counts)))


def measure_coverage(word_counts: Iterable[tuple[str, int]], tokenizer: Tokenizer) -> dict[str, float]:
    """Measures how well a vocabulary fits a text: totals, then fractions.

    Of a word that it cannot spell, WordPiece makes one unknown token, and SentencePiece one for each run of unknown
    characters.

    Args:
        word_counts: pairs of a word from a `WordCounter`, with the tokenizer's settings, and its count; at least one.
    """
    tokenize = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    unk_id, byte_ids = tokenizer.vocabulary.unk_id, tokenizer.vocabulary.byte_ids
    totals: Counter[str] = Counter()
    items = iter(word_counts)
    while batch := list(islice(items, _WORDS_PER_CALL)):
        words, counts = zip(*batch, strict=True)
        pieces = tokenize(tf.constant(words))  # a normalized word is tokenized like a line of text
        word_of, ids = pieces.value_rowids().numpy(), pieces.flat_values.numpy()
        num_pieces = pieces.row_lengths().numpy()
        num_unknown = np.bincount(word_of[ids == unk_id], minlength=len(words))
        of_words = {
            "num_words": [1] * len(words),
            "num_characters": list(map(len, words)),  # without white space
            "num_tokens": num_pieces,
            "num_unknown_tokens": num_unknown,
            "num_single_piece_words": (num_pieces == 1) & (num_unknown == 0),
            "num_byte_tokens": np.bincount(word_of[np.isin(ids, byte_ids)], minlength=len(words)),
        }
        totals.update({name: int(np.dot(counts, numbers)) for name, numbers in of_words.items()})
    num_words, num_tokens, num_bytes = totals["num_words"], totals["num_tokens"], totals.pop("num_byte_tokens")
    return {
        **totals,
        "unknown_fraction": totals["num_unknown_tokens"] / num_tokens,
        **({"num_byte_tokens": num_bytes, "byte_fraction": num_bytes / num_tokens} if byte_ids else {}),
        "tokens_per_word": num_tokens / num_words,
        "characters_per_token": totals["num_characters"] / num_tokens,
        "single_piece_fraction": totals["num_single_piece_words"] / num_words,
    }
