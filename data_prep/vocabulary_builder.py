"""Input to a vocabulary file and a report of how well it fits: what build_vocab.py does."""

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep import processes, storage, vocabulary_counts
from data_prep.counts import Counts
from data_prep.examples import restrained_tensorflow
from data_prep.hygiene import HygieneOptions
from data_prep.inputs import SourceFile, find_files, plan_units
from data_prep.progress import Progress, thousands
from data_prep.readers.documents import ReaderOptions
from data_prep.vocabulary_counts import CountingSettings, WordTotals, most_frequent
from electra_tf.config.errors import UserError

if TYPE_CHECKING:
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.text.vocabulary_coverage import Coverage

_logger = logging.getLogger(__name__)

REPORT_SUFFIX = ".coverage.json"

# Input in a work unit: so much that most words come more than once, so little that processes share a small corpus.
_UNIT_BYTES = 8 * 2**20

# Of text whose format does not show: it does not matter where documents end, and this one can be cut anywhere.
_PLAIN_TEXT_FORMAT = "sentences"


@dataclass(frozen=True)
class VocabularySettings:
    """What to learn, from what; the flags of build_vocab.py.

    Attributes:
        inputs: each `FORMAT:GLOB` or `GLOB`.
        output: the vocabulary file, a local path or a URL; the report stands beside it.
        vocab_size: number of tokens, V, the special and the unused ones included.
        num_unused_tokens: `[unused0]` and so on, for a user's own tokens.
        max_num_characters: that pieces may be made of; 0 decides by the text.
        coverage_inputs: text to measure the fit on; none for the training text itself.
    Raises: UserError: a value out of range.
    """

    inputs: tuple[str, ...]
    output: str
    vocab_size: int
    lower_case: bool
    strip_accents: bool
    num_unused_tokens: int
    max_num_characters: int
    coverage_inputs: tuple[str, ...]
    reader: ReaderOptions
    hygiene: HygieneOptions
    num_processes: int
    overwrite: bool

    def __post_init__(self) -> None:
        for name, value, least in (
            ("vocab_size", self.vocab_size, 1),
            ("num_unused_tokens", self.num_unused_tokens, 0),
            ("max_num_characters", self.max_num_characters, 0),
            ("num_processes", self.num_processes, 1),
        ):
            if value < least:
                raise UserError(f"--{name}={value}; expected at least {least}")

    @property
    def report_file(self) -> str:
        return self.output + REPORT_SUFFIX


@dataclass(frozen=True)
class _Text:
    """What was read of some input."""

    inputs: tuple[str, ...]
    num_files: int
    num_words: int
    counts: Counts

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": list(self.inputs),
            "num_files": self.num_files,
            "num_bytes": self.counts.num_bytes,
            "num_truncated_inputs": len(set(self.counts.reading.truncations)),
            **asdict(self.counts.hygiene),
            "num_words": self.num_words,
        }


def build_vocabulary(settings: VocabularySettings) -> dict[str, Any]:
    """Learns a vocabulary, measures it, and writes both files: the same for any order of the input and any processes.

    Returns: the report, which is the content of the second file.
    Raises: UserError: see `find_files` and the readers; also if the output cannot be written, the text holds no word or
        not enough for the size, or a process was killed.
    """
    _check_output(settings)
    files = find_files(settings.inputs, undetected_format=_PLAIN_TEXT_FORMAT)
    coverage_files = (
        find_files(settings.coverage_inputs, undetected_format=_PLAIN_TEXT_FORMAT) if settings.coverage_inputs else []
    )
    _check_not_read(settings, [file.path for file in (*files, *coverage_files)])
    counting = CountingSettings(settings.lower_case, settings.strip_accents, settings.reader, settings.hygiene)
    with _failures_explained(settings), WordTotals() as totals, WordTotals() as coverage_totals:
        with processes.started(settings.num_processes, vocabulary_counts.set_up, counting) as run_all:
            training_text = _count(settings, settings.inputs, files, totals, run_all)
            coverage_text = None
            if coverage_files:
                coverage_text = _count(settings, settings.coverage_inputs, coverage_files, coverage_totals, run_all)
        vocabulary, training = _train(settings, totals)
        coverage = _measure(settings, coverage_totals if coverage_text else totals, vocabulary)
    report = {
        **_settings_json(settings, vocabulary),
        "training_text": {**training_text.to_json(), **training},
        "coverage_text": coverage_text.to_json() if coverage_text else "the training text",
        "coverage": _coverage_json(coverage),
    }
    _write(settings.output, "".join(f"{token}\n" for token in vocabulary.tokens))
    _write(settings.report_file, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return report


def _check_output(settings: VocabularySettings) -> None:
    for path in (settings.output, settings.report_file):
        if os.path.isdir(path):
            raise UserError(f"--output={path} is a directory, expected a file; add a file name such as vocab.txt")
        if storage.exists(path) and not settings.overwrite:
            raise UserError(f"{path} exists; give another --output or --overwrite")
    parent = Path(settings.output).parent
    if not storage.is_remote(settings.output) and not parent.is_dir():
        raise UserError(f"--output names the directory {parent}, which does not exist; create it first")


def _check_not_read(settings: VocabularySettings, sources: list[str]) -> None:
    read = {os.path.realpath(source) for source in sources}
    for path in (settings.output, settings.report_file):
        if os.path.realpath(path) in read:
            raise UserError(f"{path} is to be read, and would be overwritten with --output; give another --output")


@contextlib.contextmanager
def _failures_explained(settings: VocabularySettings) -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool:
        raise UserError(
            f"one of {settings.num_processes} processes was killed, most likely for want of memory; lower"
            " --num_processes"
        ) from None
    except OSError as error:  # readers explain theirs
        raise UserError(
            f"cannot write temporary files: {error.strerror or error}; free some space, or name another directory for"
            " them in the environment variable TMPDIR"
        ) from error


def _count(
    settings: VocabularySettings,
    inputs: tuple[str, ...],
    files: list[SourceFile],
    totals: WordTotals,
    run_all: processes.RunAll,
) -> _Text:
    """Adds the words of files to `totals`.

    Raises: UserError: there are none.
    """
    num_bytes = sum(file.num_bytes for file in files)
    _logger.info("reading %d files, %.1f MB, with %d processes", len(files), num_bytes / 1e6, settings.num_processes)
    counts = Counts()
    progress = Progress(num_bytes, counted="words")
    for result in run_all(vocabulary_counts.count_unit, plan_units(files, _UNIT_BYTES, settings.reader)):
        totals.add(result.words)
        for message in result.counts.reading.truncations:
            _logger.warning("warning: %s", message)
        counts.add(result.counts)
        progress.update(counts.num_bytes, totals.num_words)
    if not totals.num_words:
        raise UserError(f"{' '.join(inputs)}: {len(files)} file(s) without a word; give files with text in them")
    _logger.info("%d words | %s words/s", totals.num_words, thousands(totals.num_words / progress.seconds))
    return _Text(inputs, len(files), totals.num_words, counts)


def _train(settings: VocabularySettings, totals: WordTotals) -> tuple["Vocabulary", dict[str, int]]:
    """Returns: the vocabulary, and of how many words it was learnt."""
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.text.vocabulary_trainer import MAX_TRAINING_WORDS, train_vocabulary

    words, num_distinct_words = most_frequent(totals.items(), MAX_TRAINING_WORDS)
    _logger.info("learning %d tokens from %d of %d distinct words", settings.vocab_size, len(words), num_distinct_words)
    tokens = train_vocabulary(
        words,
        vocab_size=settings.vocab_size,
        max_num_characters=settings.max_num_characters,
        num_unused_tokens=settings.num_unused_tokens,
    )
    vocabulary = Vocabulary.from_bytes("".join(f"{token}\n" for token in tokens).encode(), settings.output)
    return vocabulary, {"num_distinct_words": num_distinct_words, "num_distinct_words_trained_on": len(words)}


def _measure(settings: VocabularySettings, totals: WordTotals, vocabulary: "Vocabulary") -> "Coverage":
    restrained_tensorflow()
    from electra_tf.text.tokenizer import BertTokenizer
    from electra_tf.text.vocabulary_coverage import measure_coverage

    return measure_coverage(totals.items(), BertTokenizer(vocabulary, settings.lower_case, settings.strip_accents))


def _settings_json(settings: VocabularySettings, vocabulary: "Vocabulary") -> dict[str, Any]:
    names = ("vocab_size", "lower_case", "strip_accents", "num_unused_tokens", "max_num_characters")
    return {
        "vocab_sha256": vocabulary.sha256,
        **{name: getattr(settings, name) for name in names},
        "num_characters": sum(len(token) == 1 for token in vocabulary.tokens),
        **asdict(settings.hygiene),
        "text_field": settings.reader.text_field,
    }


def _coverage_json(coverage: "Coverage") -> dict[str, Any]:
    return {
        **asdict(coverage),
        "unknown_fraction": coverage.unknown_fraction,
        "tokens_per_word": coverage.tokens_per_word,
        "single_piece_fraction": coverage.single_piece_fraction,
    }


def _write(path: str, text: str) -> None:
    try:
        storage.write_bytes(path, text.encode("utf-8"))
    except OSError as error:
        raise UserError(f"cannot write --output={path}: {error.strerror or error}; give another file") from None
