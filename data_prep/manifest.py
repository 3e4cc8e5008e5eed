"""The end of a build: what must be left of the text, the manifest, the summary; and `--verify`."""

import datetime
import hashlib
import logging
import os
import sys

import numpy as np
from tqdm import tqdm

from data_prep import output, storage
from data_prep.counts import ReadCounts, named_faults, require_few_faults
from data_prep.inputs import BuildInputs
from data_prep.processes import speed
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS
from data_prep.settings import BuildSettings
from data_prep.shuffle import SPLITS, ShardResult
from electra_tf.config.errors import UserError
from electra_tf.text import manifest as data_manifest
from electra_tf.text.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, Manifest
from electra_tf.text.vocabulary import VOCABULARY_FILES

_logger = logging.getLogger(__name__)

_MIN_KEPT_FRACTION = 0.5  # of the tokens; with less, most of the text would be lost unnoticed
_NUM_NAMED_TEMPLATES = 10
_MANY_TOO_SHORT = 0.5  # of the documents; the text may not be what its format says
_MAX_UNKNOWN_FRACTION = 0.01  # of the tokens; a vocabulary of a language has far less in its own texts


def require_text(settings: BuildSettings, counts: ReadCounts, num_bytes: int) -> None:
    """Checks that the input could be read, that documents to train on are left, and half of their tokens are kept.

    Args:
        counts: the sum over all work units. Only with it are these shares known. Tokens of duplicates count as kept.
        num_bytes: the size of all files.
    Raises: ReadError: too much is faulty. UserError: no document is left, all are held out, or most tokens are dropped.
    """
    require_few_faults(counts, settings.max_skipped, num_bytes)
    if counts.num_documents_too_short > _MANY_TOO_SHORT * counts.num_documents_read:
        _logger.warning(
            "warning: %d of %d documents are shorter than --min_document_characters=%d; in the format text a blank line"
            " ends a document: if one follows every line or paragraph, give --input=sentences:GLOB or book:GLOB",
            counts.num_documents_too_short,
            counts.num_documents_read,
            settings.min_document_characters,
        )
    num_train, num_held_out = (counts.split_documents[split] for split in (TRAIN_SPLIT, HELD_OUT_SPLIT))
    if not num_train + num_held_out:
        too_short = f"shorter than --min_document_characters={settings.min_document_characters}"
        reasons = _left_out(counts, too_short) or "it holds no text"
        raise UserError(
            f"no document is left of {counts.num_bytes} bytes of input: {reasons}; give other files or change these"
            " settings"
        )
    if not num_train:
        raise UserError(
            f"all {num_held_out} documents were held out; lower --held_out_fraction={settings.held_out_fraction}"
            " or change --seed"
        )
    if complaint := too_few_tokens(settings, counts):
        raise UserError(complaint)
    if settings.held_out_fraction > 0 and not num_held_out:
        _logger.warning(
            "warning: --held_out_fraction=%s held out none of %d documents; raise it to get held-out data",
            settings.held_out_fraction,
            num_train,
        )


def too_few_tokens(settings: BuildSettings, counts: ReadCounts) -> str | None:
    """Returns a complaint with a remedy if less than half of the tokens read are in examples, else None."""
    num_kept = counts.num_tokens_read - counts.num_tokens_dropped
    if num_kept >= _MIN_KEPT_FRACTION * counts.num_tokens_read:
        return None
    return (
        f"only {num_kept} of {counts.num_tokens_read} tokens fit into examples of --max_seq_length="
        f"{settings.max_seq_length}: with --examples={settings.examples} what exceeds an example is dropped;"
        " give --examples=carry, which keeps all tokens, or --sentences=split for shorter lines"
    )


def _left_out(counts: ReadCounts | data_manifest.Counts, too_short: str = "too short") -> str:
    """Describes how many documents were left out, by reason: "3 redirects, 1 too short"."""
    left_out = {
        **counts.num_documents_skipped,
        too_short: counts.num_documents_too_short,
        "without a token": counts.num_documents_without_tokens,
        "duplicate": getattr(counts, "num_documents_duplicate", 0),
    }
    return ", ".join(f"{number} {reason}" for reason, number in left_out.items() if number)


def write_manifest(
    settings: BuildSettings,
    inputs: BuildInputs,
    counts: ReadCounts,
    results: list[ShardResult],
    token_counts: np.ndarray,
) -> Manifest:
    """Writes the vocabulary and then the manifest, which marks the data set as complete.

    Args:
        counts: the sum over all work units.
        results: one for each shard, in any order.
        token_counts: [V] int64, occurrences of each vocabulary entry in the training split.
    """
    results = sorted(results, key=lambda result: result.shard.file)
    most_frequent = sorted(counts.templates_dropped.items(), key=lambda item: (-item[1], item[0]))
    by_split = {split: [result for result in results if result.split == split] for split in SPLITS}
    manifest = Manifest(
        schema_version=data_manifest.SCHEMA_VERSION,
        vocab_size=inputs.vocabulary.size,
        vocab_sha256=inputs.vocabulary.sha256,
        **settings.shaping(),
        inputs=tuple(
            data_manifest.InputFile(**{name: getattr(file, name) for name in data_manifest.InputFile.model_fields})
            for file in inputs.files
        ),
        counts=_manifest_counts(counts, results),
        templates_dropped=dict(most_frequent[:_NUM_NAMED_TEMPLATES]),
        first_faulty=named_faults(counts, inputs.files),
        splits={
            split: data_manifest.Split(
                num_documents=sum(result.num_documents for result in of_split),
                num_examples=sum(result.shard.num_examples for result in of_split),
                num_tokens=sum(result.num_tokens for result in of_split),
                shards=tuple(result.shard for result in of_split),
            )
            for split, of_split in by_split.items()
            if of_split
        },
        token_counts=tuple(token_counts.tolist()),
    )
    storage.write_bytes(os.path.join(settings.output_dir, inputs.vocabulary.file_name), inputs.vocabulary.content)
    storage.write_bytes(os.path.join(settings.output_dir, MANIFEST_FILE), manifest.to_json().encode())
    return manifest


def _manifest_counts(counts: ReadCounts, results: list[ShardResult]) -> data_manifest.Counts:
    shared = {name: value for name, value in vars(counts).items() if name in data_manifest.Counts.model_fields}
    return data_manifest.Counts(
        **{**shared, "num_documents_skipped": dict(sorted(counts.num_documents_skipped.items()))},
        num_documents_duplicate=sum(result.num_duplicate_documents for result in results),
        num_documents=sum(result.num_documents for result in results),
        num_tokens_kept=sum(result.num_text_tokens for result in results),
    )


def log_summary(manifest: Manifest, seconds: float, num_tokens: int) -> None:
    """Logs the size of a data set and what was left out.

    Args:
        seconds: duration of this process.
        num_tokens: number of tokens read in that time, without those of an earlier, interrupted process.
    """
    counts = manifest.counts
    if reasons := _left_out(counts):
        _logger.info("left out: %s", reasons)
    if manifest.templates_dropped:
        _logger.info(
            "templates dropped inside lines: %s; --wikipedia_names can give their text",
            ", ".join(f"{number} {{{{{name}}}}}" for name, number in manifest.templates_dropped.items()),
        )
    if counts.num_tokens_dropped:
        _logger.info(
            "dropped: %d tokens (%.0f %%) that exceeded an example; --examples=carry keeps them",
            counts.num_tokens_dropped,
            100 * counts.num_tokens_dropped / counts.num_tokens_read,
        )
    if counts.num_documents_cut:
        _logger.warning(
            "%d cuts in documents of over %d Mi characters; in the format text a blank line ends a document",
            counts.num_documents_cut,
            MAX_DOCUMENT_CHARACTERS >> 20,
        )
    unknown_fraction = counts.num_unknown_tokens / max(1, counts.num_tokens_read)
    if unknown_fraction > _MAX_UNKNOWN_FRACTION:
        _logger.warning(
            "%.1f %% of the tokens are [UNK]: the vocabulary or its settings (case, accents) do not fit this text",
            100 * unknown_fraction,
        )
    splits = manifest.splits.values()
    num_examples = sum(split.num_examples for split in splits)
    _logger.info(
        "%d documents (%d held out) | %d examples, %.1f %% padding | %d tokens read, %d kept | %s | %s | %.1f MB on"
        " disk",
        counts.num_documents,
        manifest.splits[HELD_OUT_SPLIT].num_documents if HELD_OUT_SPLIT in manifest.splits else 0,
        num_examples,
        100 * (1 - sum(split.num_tokens for split in splits) / (num_examples * manifest.max_seq_length)),
        counts.num_tokens_read,
        counts.num_tokens_kept,
        datetime.timedelta(seconds=round(seconds)),
        speed(num_tokens, seconds),
        sum(shard.num_bytes for split in splits for shard in split.shards) / 1e6,
    )


def verify(data_dir: str) -> Manifest:
    """Compares every file of a data set, local or at a URL, with its manifest, which has a checksum of its own.

    Then writes `SHA256SUMS`, with which `sha256sum -c` repeats this where this program is not installed. If there is
    one, it is checked.

    Raises: UserError: files are missing, damaged or unknown (all are named), or the manifest is damaged.
    """
    manifest = output.read_manifest(data_dir)
    names = storage.names_in(data_dir)
    vocab_file = next((name for name in VOCABULARY_FILES if name in names), VOCABULARY_FILES[0])
    shards = {shard.file: shard.sha256 for split in manifest.splits.values() for shard in split.shards}
    checksums = {vocab_file: manifest.vocab_sha256, **shards}
    problems = [
        f"{name} is not in the manifest" for name in names if name.endswith(".tfrecord") and name not in checksums
    ]
    # In a file the bar ends its line, so that an error has a line of its own.
    for name in tqdm(checksums, unit="file", leave=not sys.stderr.isatty()):
        try:
            content = storage.read_bytes(os.path.join(data_dir, name))
        except OSError as error:
            problems.append(f"{name} cannot be read ({error.strerror or error})")
            continue
        if (sha256 := hashlib.sha256(content).hexdigest()) != checksums[name]:
            problems.append(f"{name} has sha256 {sha256}, expected {checksums[name]}")
    checksums[MANIFEST_FILE] = hashlib.sha256(storage.read_bytes(os.path.join(data_dir, MANIFEST_FILE))).hexdigest()
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(checksums.items())).encode()
    checksum_path = os.path.join(data_dir, output.CHECKSUM_FILE)
    has_checksums = output.CHECKSUM_FILE in names
    if has_checksums and storage.read_bytes(checksum_path) != lines:
        problems.append(f"{output.CHECKSUM_FILE} is of another data set")
    if problems:
        raise UserError(
            f"{data_dir} differs from its manifest: {'; '.join(problems)}; copy these files or build the data set again"
        )
    if not has_checksums:
        try:
            storage.write_bytes(checksum_path, lines)
        except OSError as error:  # a data set may be on a medium that cannot be written
            _logger.warning("%s was not written: %s", checksum_path, error.strerror or error)
    _logger.info("%s: %d files, all as in the manifest", data_dir, len(checksums))
    return manifest
