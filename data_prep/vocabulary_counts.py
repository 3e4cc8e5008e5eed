"""How often each word of the input occurs: exact totals in bounded memory, in any order of the input.

Worker processes count the words of work units. Their sums are held in memory up to `MAX_WORDS_IN_MEMORY`, then added to
a temporary SQLite database, whose cache is bounded and whose file disappears with it. No word is dropped early, which
would make its total depend on the order.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from data_prep.cleaning import clean_document
from data_prep.readers.documents import Counts
from data_prep.settings import VocabularySettings
from data_prep.work_units import WorkUnit, read_unit, unit_num_bytes

if TYPE_CHECKING:
    from electra_tf.text.vocabulary_trainer import WordCounter

# 150 MB of memory. 250 MB of English Wikipedia with 80 MB of novels have 430,000 distinct words.
MAX_WORDS_IN_MEMORY = 1_000_000


@dataclass
class UnitWords:
    """The words of a work unit."""

    words: Counter[str] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)


_settings: VocabularySettings | None = None
_word_counter: "WordCounter | None" = None


def set_up(settings: VocabularySettings) -> None:
    """Prepares this process for `count_unit`."""
    global _settings, _word_counter
    from data_prep.tensorflow_setup import restrained_tensorflow

    restrained_tensorflow()
    from electra_tf.text.vocabulary_trainer import WordCounter

    _settings = settings
    _word_counter = WordCounter(settings.lower_case, settings.strip_accents)


def count_unit(unit: WorkUnit) -> UnitWords:
    """Counts the words of a work unit's documents.

    Raises: UserError: see `read_unit`.
    """
    assert _settings is not None and _word_counter is not None
    result = UnitWords(counts=Counts(num_bytes=unit_num_bytes(unit)))
    for document in read_unit(unit, _settings, result.counts):
        if cleaned := clean_document(document, _settings, result.counts):
            _word_counter.add(cleaned.lines)
    result.words = _word_counter.take()
    return result


class WordTotals:
    """Sums the counts of words.

    Attributes:
        num_words: all occurrences.
    """

    def __init__(self, max_words_in_memory: int = MAX_WORDS_IN_MEMORY) -> None:
        self.num_words = 0
        self._max_words_in_memory = max_words_in_memory
        self._in_memory: Counter[str] = Counter()
        self._database = sqlite3.connect("")  # a temporary file, written when the cache is full
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE words (word TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID")

    def add(self, words: Mapping[str, int]) -> None:
        """Adds counts. Raises: sqlite3.OperationalError: no space for temporary files."""
        self._in_memory.update(words)
        self.num_words += sum(words.values())
        if len(self._in_memory) > self._max_words_in_memory:
            self._flush()

    def num_distinct(self) -> int:
        self._flush()
        return self._database.execute("SELECT count(*) FROM words").fetchone()[0]

    def items(self) -> Iterator[tuple[str, int]]:
        """Each word with its total, in the order of the words."""
        self._flush()
        return self._database.execute("SELECT word, count FROM words ORDER BY word")

    def most_frequent(self, num_words: int) -> Counter[str]:
        """The most frequent words with their totals; of equally frequent words the first ones in their order."""
        self._flush()
        query = "SELECT word, count FROM words ORDER BY count DESC, word LIMIT ?"
        return Counter(dict(self._database.execute(query, (num_words,))))

    def _flush(self) -> None:
        self._database.executemany(
            "INSERT INTO words VALUES (?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
            sorted(self._in_memory.items()),
        )
        self._in_memory.clear()
