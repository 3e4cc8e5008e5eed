"""How often each word of the input occurs: exact totals in bounded memory, the same for any order of the input.

Worker processes count the words of work units; their sums are held in memory up to `MAX_WORDS_IN_MEMORY`, then written
to the disk in the order of the words and merged when they are read. So no word is ever dropped early, which would make
its total depend on when it came.
"""

import heapq
import itertools
import operator
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from data_prep.counts import Counts
from data_prep.examples import restrained_tensorflow
from data_prep.hygiene import HygieneOptions, clean_document
from data_prep.inputs import WorkUnit, read_unit, unit_num_bytes
from data_prep.readers.documents import ReaderOptions

if TYPE_CHECKING:
    from electra_tf.text.vocabulary_trainer import WordCounter

# 150 MB of memory. 250 MB of English Wikipedia with 80 MB of novels have 430,000 distinct words.
MAX_WORDS_IN_MEMORY = 1_000_000


@dataclass(frozen=True)
class CountingSettings:
    """What a process needs to know to count words."""

    lower_case: bool
    strip_accents: bool
    reader: ReaderOptions
    hygiene: HygieneOptions


@dataclass
class UnitWords:
    """The words of a work unit."""

    words: Counter[str] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)


_settings: CountingSettings | None = None
_word_counter: "WordCounter | None" = None


def set_up(settings: CountingSettings) -> None:
    """Readies this process for units."""
    global _settings, _word_counter
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
    for document in read_unit(unit, _settings.reader, result.counts.reading):
        if cleaned := clean_document(document, _settings.hygiene, result.counts.hygiene):
            _word_counter.add(cleaned.lines)
    result.words = _word_counter.take()
    return result


class WordTotals:
    """Sums the counts of words. A context manager, at whose end the files are gone.

    Attributes:
        num_words: all occurrences.
    """

    def __init__(self, max_words_in_memory: int = MAX_WORDS_IN_MEMORY) -> None:
        self.num_words = 0
        self._max_words_in_memory = max_words_in_memory
        self._in_memory: Counter[str] = Counter()
        self._runs: list[Path] = []
        self._directory: tempfile.TemporaryDirectory | None = None

    def __enter__(self) -> "WordTotals":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._in_memory.clear()
        if self._directory is not None:
            self._directory.cleanup()

    def add(self, words: Mapping[str, int]) -> None:
        """Adds counts.

        Raises: OSError: no room in the directory for temporary files.
        """
        self._in_memory.update(words)
        self.num_words += sum(words.values())
        if len(self._in_memory) > self._max_words_in_memory:
            self._write_run()

    def items(self) -> Iterator[tuple[str, int]]:
        """Each word once, in the order of the words, with its total. Words have no white space in them.

        Raises: OSError: no room in the directory for temporary files.
        """
        if self._runs and self._in_memory:
            self._write_run()  # what follows needs the memory
        runs = [_read_run(path) for path in self._runs]
        merged = heapq.merge(*runs, sorted(self._in_memory.items()))
        for word, counts in itertools.groupby(merged, key=operator.itemgetter(0)):
            yield word, sum(count for _, count in counts)

    def _write_run(self) -> None:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="build_vocab.")
        path = Path(self._directory.name) / str(len(self._runs))
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{word}\t{count}\n" for word, count in sorted(self._in_memory.items()))
        self._runs.append(path)
        self._in_memory.clear()


def _read_run(path: Path) -> Iterator[tuple[str, int]]:
    # With another `newline`, the file would also be cut at other ends of lines than "\n".
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            word, _, count = line.partition("\t")
            yield word, int(count)


def most_frequent(items: Iterable[tuple[str, int]], num_words: int) -> tuple[Counter[str], int]:
    """The most frequent words.

    Args:
        items: each word once, with its total.
        num_words: how many to keep; of equally frequent ones, those that come first in the order of the words.
    Returns: their counts, and how many words there were.
    """
    num_items = 0

    def ranked() -> Iterator[tuple[int, str]]:
        nonlocal num_items
        for word, count in items:
            num_items += 1
            yield -count, word

    kept = Counter({word: -rank for rank, word in heapq.nsmallest(num_words, ranked())})
    return kept, num_items
