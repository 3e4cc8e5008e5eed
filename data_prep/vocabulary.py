"""Builds a vocabulary file and a report on how well it fits a text, for electra-tf build-vocab.

Worker processes count the words of units. The totals of all words are in memory, about 150 bytes per word and two
per character of Asian scripts: dropping rare words early would make totals depend on the order of the input.
"""

import json
import logging
import os
import tempfile
import time
from collections import Counter
from typing import Any

from data_prep.counts import ReadCounts, require_few_faults, total_of, warn_of_mark
from data_prep.documents import segment_documents
from data_prep.inputs import require_known, require_readable, require_undamaged, sample_text
from data_prep.processes import RunAll, progress_bar, speed, start_workers
from data_prep.settings import VocabularySettings
from data_prep.sources import SourceFile, find_files
from data_prep.units import Unit, plan_units, read_batches
from electra_tf.config.errors import UserError
from electra_tf.files import exists, is_directory, is_remote, make_directory, store_errors, write_atomically

_logger = logging.getLogger(__name__)

# Input in a unit: enough for most words to occur repeatedly, little enough to divide a small corpus.
_UNIT_BYTES = 8 * 2**20

# The format of text whose format cannot be detected: document boundaries do not matter here.
_PLAIN_TEXT_FORMAT = "sentences"

_REPORTED_COUNTS = [
    "num_bytes",
    "num_documents_read",
    "num_documents_mojibake_fixed",
    "num_documents_normalized",
    "num_control_characters_dropped",
    "num_documents_too_short",
]
_REPORTED_CLEANING = [*VocabularySettings.CLEANING, "min_document_characters", "text_field"]

_settings: VocabularySettings | None = None
_word_counter: Any = None  # of `electra_tf.text.vocabulary_trainer`, which imports TensorFlow


def set_up(settings: VocabularySettings) -> None:
    """Prepares this process for `count_unit`."""
    global _settings, _word_counter
    from data_prep.tensorflow_setup import restrain_tensorflow

    restrain_tensorflow()
    _settings = settings
    _word_counter = trainer_of(settings).word_counter()


def trainer_of(settings: VocabularySettings) -> Any:
    """The trainer of the kind of vocabulary that the settings name."""
    if settings.model == "wordpiece":
        from electra_tf.text.wordpiece_trainer import WordPieceVocabularyTrainer

        numbers = settings.vocab_size, settings.max_num_characters, settings.num_unused_tokens
        return WordPieceVocabularyTrainer(*numbers, settings.text_settings)
    from electra_tf.text.sentencepiece_trainer import SentencePieceVocabularyTrainer

    return SentencePieceVocabularyTrainer(settings.model, settings.vocab_size, settings.byte_fallback)


def count_unit(unit: Unit) -> tuple[Counter[str], ReadCounts]:
    """Counts the words of a unit. Raises: ReadError: see `read_unit`."""
    assert _settings is not None and _word_counter is not None
    counts = ReadCounts()
    for documents, of_batch in read_batches(unit, _settings):
        lines = [document.lines for document in documents]
        for of_document in segment_documents(documents, lines, _settings.segmenter, of_batch):
            _word_counter.add(of_document)
        counts.add(of_batch)
    return _word_counter.take(), counts


def build_vocabulary(settings: VocabularySettings) -> dict[str, Any]:
    """Trains a vocabulary, measures its coverage and writes both.

    Returns: the report.
    Raises: UserError: see `find_files`, `require_undamaged`, the readers and the trainers' `train`; also if an
        output file exists, cannot be written or is one of the inputs. OSError: the disk is full.
    """
    files, coverage_files = (
        find_files(inputs, undetected_format=_PLAIN_TEXT_FORMAT) if inputs else []
        for inputs in (settings.inputs, settings.coverage_inputs)
    )
    # Before hours of reading.
    if not is_remote(settings.output):
        with store_errors(f"output={settings.output}", "cannot be written"):
            directory = os.path.dirname(settings.output) or os.curdir
            make_directory(directory)
            tempfile.TemporaryFile(dir=directory).close()
    read = {os.path.realpath(file.path) for file in (*files, *coverage_files)}
    for path in (settings.output, settings.report_file):
        is_kept = not settings.overwrite or os.path.realpath(path) in read
        if is_directory(path) or is_kept and exists(path):
            raise UserError(f"{path} exists; give another output, a file and no input, or overwrite")
    require_readable(files, settings)
    sample = sample_text(files, settings)
    require_undamaged(sample, settings, settings.text_settings)
    with start_workers(settings.num_processes, set_up, settings) as run_all:
        words, training_text = _count(settings, settings.inputs, files, run_all)
        coverage_words, coverage_text = words, "the training text"
        if coverage_files:
            coverage_words, coverage_text = _count(settings, settings.coverage_inputs, coverage_files, run_all)
    from data_prep.tensorflow_setup import restrain_tensorflow

    restrain_tensorflow()
    from electra_tf.text.kinds import create_tokenizer
    from electra_tf.text.vocabulary_trainer import measure_coverage

    trainer = trainer_of(settings)
    most_frequent = trainer.training_words(words)
    _logger.info("learning %d tokens from %d of %d distinct words", settings.vocab_size, len(most_frequent), len(words))
    vocabulary = trainer.train(most_frequent)
    trained_on = {"num_distinct_words": len(words), "num_distinct_words_trained_on": len(most_frequent)}
    tokenizer = create_tokenizer(vocabulary, settings.text_settings)
    require_known(sample, vocabulary, settings.text_settings)
    warn_of_mark(words)
    report = {
        "vocab_sha256": vocabulary.sha256,
        **settings.reported(),
        "num_characters": sum(len(token) == 1 for token in vocabulary.tokens),
        **{name: getattr(settings, name) for name in _REPORTED_CLEANING},
        "training_text": {**training_text, **trained_on},
        "coverage_text": coverage_text,
        "coverage": measure_coverage(coverage_words.items(), tokenizer),
    }
    write_atomically(settings.output, vocabulary.content)
    write_atomically(settings.report_file, (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    return report


def _count(
    settings: VocabularySettings, inputs: tuple[str, ...], files: list[SourceFile], run_all: RunAll
) -> tuple[Counter[str], dict[str, Any] | str]:
    """Returns: the words with their totals, and what was read, for the report."""
    num_bytes = sum(file.num_bytes for file in files)
    _logger.info("reading %d files, %.1f MB, with %d processes", len(files), num_bytes / 1e6, settings.num_processes)
    words: Counter[str] = Counter()
    units = []
    begin = time.monotonic()
    with progress_bar(num_bytes) as progress:
        for words_of_unit, unit_counts in run_all(count_unit, plan_units(files, _UNIT_BYTES, settings)):
            words.update(words_of_unit)
            units.append(unit_counts)
            progress.update(unit_counts.num_bytes)
    counts = total_of(units)
    require_few_faults(counts, settings.max_skipped, num_bytes)
    if not (num_words := words.total()):
        raise UserError(f"{' '.join(inputs)}: {len(files)} file(s) without a word; give files with text in them")
    _logger.info("%d words | %s", num_words, speed(num_words, time.monotonic() - begin, "words"))
    read = {name: getattr(counts, name) for name in _REPORTED_COUNTS}
    return words, {"inputs": list(inputs), "num_files": len(files), **read, "num_words": num_words}
