"""Builds a vocabulary file and a report of its fit: the work of build_vocab.py.

Worker processes count the words of work units. The totals are in memory, and from `MAX_WORDS_IN_MEMORY` words on in a
temporary SQLite database. No word is dropped early: its total would depend on the order of the input.
"""

import json
import logging
import os
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from data_prep import processes, storage
from data_prep.assembly import speed
from data_prep.pipeline import progress_bar
from data_prep.readers.documents import ReadCounts, clean_document
from data_prep.settings import VocabularySettings
from data_prep.source_files import SourceFile, find_files
from data_prep.work_units import WorkUnit, plan_units, read_unit
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote, store_errors

if TYPE_CHECKING:
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.text.vocabulary_trainer import WordCounter

_logger = logging.getLogger(__name__)

# Input in a work unit: enough for most words to occur repeatedly, little enough to divide a small corpus.
_UNIT_BYTES = 8 * 2**20

# The format of text whose format cannot be detected: document boundaries do not matter here.
_PLAIN_TEXT_FORMAT = "sentences"
# 150 MB of memory. 250 MB of English Wikipedia with 80 MB of novels have 430,000 distinct words.
MAX_WORDS_IN_MEMORY = 1_000_000

_REPORTED_COUNTS = [
    "num_bytes",
    "num_documents_read",
    "num_documents_normalized",
    "num_control_characters_dropped",
    "num_documents_too_short",
]
_REPORTED_SETTINGS = ["vocab_size", "lower_case", "strip_accents", "num_unused_tokens", "max_num_characters"]
_REPORTED_CLEANING = ["unicode_normalization", "drop_control_characters", "min_document_characters", "text_field"]

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


def count_unit(unit: WorkUnit) -> tuple[Counter[str], ReadCounts]:
    """Counts the words of a work unit. Raises: UserError: see `read_unit`."""
    assert _settings is not None and _word_counter is not None
    counts = ReadCounts()
    for document in read_unit(unit, _settings, counts):
        if cleaned := clean_document(document, _settings, counts):
            _word_counter.add(cleaned.lines)
    return _word_counter.take(), counts


class WordTotals:
    """Adds up the counts of words. `num_words` is the number of all occurrences."""

    def __init__(self, max_words_in_memory: int = MAX_WORDS_IN_MEMORY) -> None:
        self.num_words = 0
        self._max_words_in_memory = max_words_in_memory
        self._in_memory: Counter[str] = Counter()
        self._database = sqlite3.connect("")  # a temporary file, written when the cache is full
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE words (word TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID")

    def add(self, words: Mapping[str, int]) -> None:
        """Adds counts. Raises: sqlite3.OperationalError: the disk for temporary files is full."""
        self._in_memory.update(words)
        self.num_words += sum(words.values())
        if len(self._in_memory) > self._max_words_in_memory:
            self._flush()

    def num_distinct(self) -> int:
        self._flush()
        return self._database.execute("SELECT count(*) FROM words").fetchone()[0]

    def items(self) -> Iterator[tuple[str, int]]:
        """Yields each word with its total, sorted by word."""
        self._flush()
        return self._database.execute("SELECT word, count FROM words ORDER BY word")

    def most_frequent(self, num_words: int) -> Counter[str]:
        """Returns the most frequent words with their totals; equally frequent ones are sorted by word."""
        self._flush()
        query = "SELECT word, count FROM words ORDER BY count DESC, word LIMIT ?"
        return Counter(dict(self._database.execute(query, (num_words,))))

    def _flush(self) -> None:
        self._database.executemany(
            "INSERT INTO words VALUES (?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
            sorted(self._in_memory.items()),
        )
        self._in_memory.clear()


def build_vocabulary(settings: VocabularySettings) -> dict[str, Any]:
    """Trains a vocabulary, measures its coverage and writes both.

    Returns: the report.
    Raises: UserError: see `find_files`, the readers and `train_vocabulary`; also if an output file exists, cannot be
        written or is one of the inputs. OSError: the disk is full.
    """
    files, coverage_files = (
        find_files(inputs, undetected_format=_PLAIN_TEXT_FORMAT) if inputs else []
        for inputs in (settings.inputs, settings.coverage_inputs)
    )
    _check_output(settings, [file.path for file in (*files, *coverage_files)])
    try:
        vocab_content, report = _train_and_measure(settings, files, coverage_files)
    except BrokenProcessPool:
        raise UserError(processes.KILLED) from None
    except sqlite3.OperationalError as error:
        raise UserError(f"temporary files: {error}; name a directory with more space in TMPDIR") from None
    storage.write_bytes(settings.output, vocab_content)
    storage.write_bytes(settings.report_file, (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    return report


def _check_output(settings: VocabularySettings, sources: list[str]) -> None:
    """Checks that the output can be written, before hours of reading.

    Raises: UserError: it is a directory, exists, is an input or cannot be written.
    """
    if os.path.isdir(settings.output):
        raise UserError(f"--output={settings.output} is a directory; add a file name such as vocab.txt")
    read = {os.path.realpath(source) for source in sources}
    for path in (settings.output, settings.report_file):
        if storage.exists(path) and not settings.overwrite:
            raise UserError(f"{path} exists; give another --output or --overwrite")
        if os.path.realpath(path) in read:
            raise UserError(f"{path} is an input, and --output would overwrite it; give another --output")
    if not is_remote(settings.output):
        with store_errors(f"--output={settings.output}", "cannot be written"):
            tempfile.TemporaryFile(dir=os.path.dirname(settings.output) or os.curdir).close()


def _train_and_measure(
    settings: VocabularySettings, files: list[SourceFile], coverage_files: list[SourceFile]
) -> tuple[bytes, dict[str, Any]]:
    """Returns: the content of the vocabulary file, and the report."""
    from electra_tf.text.vocabulary import Vocabulary

    with processes.started(settings.num_processes, set_up, settings) as run_all:
        totals, training_text = _count(settings, settings.inputs, files, run_all)
        coverage_totals: WordTotals = totals
        coverage_text: dict[str, Any] | str = "the training text"
        if coverage_files:
            coverage_totals, coverage_text = _count(settings, settings.coverage_inputs, coverage_files, run_all)
    tokens, training = _train(settings, totals)
    content = "".join(f"{token}\n" for token in tokens).encode()
    vocabulary = Vocabulary.from_bytes(content, settings.output)
    return content, {
        "vocab_sha256": vocabulary.sha256,
        **{name: getattr(settings, name) for name in _REPORTED_SETTINGS},
        "num_characters": sum(len(token) == 1 for token in tokens),
        **{name: getattr(settings, name) for name in _REPORTED_CLEANING},
        "training_text": {**training_text, **training},
        "coverage_text": coverage_text,
        "coverage": _measure(settings, coverage_totals, vocabulary),
    }


def _count(
    settings: VocabularySettings, inputs: tuple[str, ...], files: list[SourceFile], run_all: processes.RunAll
) -> tuple[WordTotals, dict[str, Any]]:
    """Counts the words of files.

    Returns: the totals, and what was read, for the report.
    Raises: UserError: the files hold no word.
    """
    num_bytes = sum(file.num_bytes for file in files)
    _logger.info("reading %d files, %.1f MB, with %d processes", len(files), num_bytes / 1e6, settings.num_processes)
    totals, counts = WordTotals(), ReadCounts()
    begin = time.monotonic()
    with progress_bar(num_bytes) as progress:
        for words, unit_counts in run_all(count_unit, plan_units(files, _UNIT_BYTES, settings)):
            totals.add(words)
            counts.add(unit_counts)
            progress.update(unit_counts.num_bytes)
    if not totals.num_words:
        raise UserError(f"{' '.join(inputs)}: {len(files)} file(s) without a word; give files with text in them")
    _logger.info("%d words | %s", totals.num_words, speed(totals.num_words, time.monotonic() - begin, "words"))
    read = {name: getattr(counts, name) for name in _REPORTED_COUNTS}
    return totals, {"inputs": list(inputs), "num_files": len(files), **read, "num_words": totals.num_words}


def _train(settings: VocabularySettings, totals: WordTotals) -> tuple[tuple[str, ...], dict[str, int]]:
    """Trains the tokens.

    Returns: the tokens, and the numbers of distinct words for the report.
    """
    from electra_tf.text.vocabulary_trainer import MAX_TRAINING_WORDS, train_vocabulary

    words, num_distinct_words = totals.most_frequent(MAX_TRAINING_WORDS), totals.num_distinct()
    _logger.info("training %d tokens on %d of %d distinct words", settings.vocab_size, len(words), num_distinct_words)
    tokens = train_vocabulary(
        words,
        vocab_size=settings.vocab_size,
        max_num_characters=settings.max_num_characters,
        num_unused_tokens=settings.num_unused_tokens,
    )
    return tokens, {"num_distinct_words": num_distinct_words, "num_distinct_words_trained_on": len(words)}


def _measure(settings: VocabularySettings, totals: WordTotals, vocabulary: "Vocabulary") -> dict[str, float]:
    """Measures how well the vocabulary fits the words, for the report."""
    from data_prep.tensorflow_setup import restrained_tensorflow

    restrained_tensorflow()
    from electra_tf.text.tokenizer import BertTokenizer
    from electra_tf.text.vocabulary_trainer import measure_coverage

    tokenizer = BertTokenizer(vocabulary, settings.lower_case, settings.strip_accents)
    return measure_coverage(totals.items(), tokenizer)
