"""Builds a vocabulary file and a report of how well it fits: the work of build_vocab.py."""

import contextlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep import processes, storage, vocabulary_counts
from data_prep.assembly import add_counts, speed
from data_prep.pipeline import progress_bar
from data_prep.readers.documents import Counts
from data_prep.settings import VocabularySettings
from data_prep.source_files import SourceFile, find_files
from data_prep.vocabulary_counts import WordTotals
from data_prep.work_units import plan_units
from electra_tf.config.errors import UserError

if TYPE_CHECKING:
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.text.vocabulary_coverage import Coverage

_logger = logging.getLogger(__name__)

# Input in a work unit: enough that most words occur repeatedly, little enough that processes share a small corpus.
_UNIT_BYTES = 8 * 2**20

# The format of text that does not show its format: document boundaries do not matter, and it can be split anywhere.
_PLAIN_TEXT_FORMAT = "sentences"


def build_vocabulary(settings: VocabularySettings) -> dict[str, Any]:
    """Trains a vocabulary, measures its coverage and writes both.

    Returns: the report.
    Raises: UserError: see `find_files`, the readers and `train_vocabulary`; also if an output file exists, cannot be
        written or is one of the inputs.
    """
    _check_output(settings)
    files, coverage_files = (
        find_files(inputs, undetected_format=_PLAIN_TEXT_FORMAT) if inputs else []
        for inputs in (settings.inputs, settings.coverage_inputs)
    )
    _check_not_read(settings, [file.path for file in (*files, *coverage_files)])
    with _failures_explained(settings):
        coverage_totals = totals = WordTotals()
        coverage_text: dict[str, Any] | str = "the training text"
        with processes.started(settings.num_processes, vocabulary_counts.set_up, settings) as run_all:
            training_text = _count(settings, settings.inputs, files, totals, run_all)
            if coverage_files:
                coverage_totals = WordTotals()
                coverage_text = _count(settings, settings.coverage_inputs, coverage_files, coverage_totals, run_all)
        vocabulary, training = _train(settings, totals)
        coverage = _measure(settings, coverage_totals, vocabulary)
    report = {
        **_settings_json(settings, vocabulary),
        "training_text": {**training_text, **training},
        "coverage_text": coverage_text,
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
            raise UserError(f"{path} is an input, and --output would overwrite it; give another --output")


@contextlib.contextmanager
def _failures_explained(settings: VocabularySettings) -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool:
        raise UserError(
            f"one of {settings.num_processes} processes was killed, most likely because memory ran out; lower"
            " --num_processes"
        ) from None
    except (OSError, sqlite3.OperationalError) as error:  # the readers explain their own
        raise UserError(
            f"cannot write temporary files: {getattr(error, 'strerror', None) or error}; free some space, or name"
            " another directory for them in the environment variable TMPDIR"
        ) from error


def _count(
    settings: VocabularySettings,
    inputs: tuple[str, ...],
    files: list[SourceFile],
    totals: WordTotals,
    run_all: processes.RunAll,
) -> dict[str, Any]:
    """Adds the words of files to `totals`.

    Returns: what was read, for the report.
    Raises: UserError: the files hold no word.
    """
    num_bytes = sum(file.num_bytes for file in files)
    _logger.info("reading %d files, %.1f MB, with %d processes", len(files), num_bytes / 1e6, settings.num_processes)
    counts = Counts()
    begin = time.monotonic()
    with progress_bar(num_bytes) as progress:
        for unit in run_all(vocabulary_counts.count_unit, plan_units(files, _UNIT_BYTES, settings)):
            totals.add(unit.words)
            add_counts(counts, unit.counts)
            progress.update(unit.counts.num_bytes)
    if not totals.num_words:
        raise UserError(f"{' '.join(inputs)}: {len(files)} file(s) without a word; give files with text in them")
    _logger.info("%d words | %s", totals.num_words, speed(totals.num_words, time.monotonic() - begin, "words"))
    return {
        "inputs": list(inputs),
        "num_files": len(files),
        "num_bytes": counts.num_bytes,
        "num_truncated_inputs": len(set(counts.truncations)),
        "num_documents_read": counts.num_documents_read,
        "num_documents_normalized": counts.num_documents_normalized,
        "num_control_characters_dropped": counts.num_control_characters_dropped,
        "num_documents_too_short": counts.num_documents_too_short,
        "num_words": totals.num_words,
    }


def _train(settings: VocabularySettings, totals: WordTotals) -> tuple["Vocabulary", dict[str, int]]:
    """Returns: the vocabulary, and the numbers of distinct words for the report."""
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.text.vocabulary_trainer import MAX_TRAINING_WORDS, train_vocabulary

    words, num_distinct_words = totals.most_frequent(MAX_TRAINING_WORDS), totals.num_distinct()
    _logger.info("training %d tokens on %d of %d distinct words", settings.vocab_size, len(words), num_distinct_words)
    tokens = train_vocabulary(
        words,
        vocab_size=settings.vocab_size,
        max_num_characters=settings.max_num_characters,
        num_unused_tokens=settings.num_unused_tokens,
    )
    vocabulary = Vocabulary.from_bytes("".join(f"{token}\n" for token in tokens).encode(), settings.output)
    return vocabulary, {"num_distinct_words": num_distinct_words, "num_distinct_words_trained_on": len(words)}


def _measure(settings: VocabularySettings, totals: WordTotals, vocabulary: "Vocabulary") -> "Coverage":
    from data_prep.tensorflow_setup import restrained_tensorflow

    restrained_tensorflow()
    from electra_tf.text.tokenizer import BertTokenizer
    from electra_tf.text.vocabulary_coverage import measure_coverage

    return measure_coverage(totals.items(), BertTokenizer(vocabulary, settings.lower_case, settings.strip_accents))


def _settings_json(settings: VocabularySettings, vocabulary: "Vocabulary") -> dict[str, Any]:
    names = ("vocab_size", "lower_case", "strip_accents", "num_unused_tokens", "max_num_characters")
    text_names = ("unicode_normalization", "drop_control_characters", "min_document_characters", "text_field")
    return {
        "vocab_sha256": vocabulary.sha256,
        **{name: getattr(settings, name) for name in names},
        "num_characters": sum(len(token) == 1 for token in vocabulary.tokens),
        **{name: getattr(settings, name) for name in text_names},
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
