"""The manifest of a data set: written at the end of a build, summed up in a log line, compared with the files."""

import datetime
import hashlib
import logging
import os
import sys

import numpy as np
from tqdm import tqdm

from data_prep.counts import ReadCounts, left_out, named_faults, warn_of_mark
from data_prep.inputs import BuildInputs
from data_prep.processes import speed
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS
from data_prep.settings import BuildSettings
from data_prep.store import SPLITS, ShardResult
from electra_tf.config.errors import UserError
from electra_tf.data import manifest as data_manifest
from electra_tf.data.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, Manifest
from electra_tf.files import names_in, open_binary, write_atomically
from electra_tf.text.vocabulary import VOCABULARY_FILES

_logger = logging.getLogger(__name__)

_NUM_NAMED_TEMPLATES = 10
_MIN_HELD_OUT = 0.5  # of the fraction that is asked for, by tokens


def write_manifest(
    settings: BuildSettings,
    inputs: BuildInputs,
    counts: ReadCounts,
    results: list[ShardResult],
    token_counts: np.ndarray,
) -> None:
    """Writes the vocabulary and then the manifest, which marks the data set as complete.

    Args:
        counts: the sum over all work units.
        results: one for each shard, in any order.
        token_counts: [V] int64, occurrences of each vocabulary entry in the training split.
    """
    results = sorted(results, key=lambda result: result.shard.file)
    most_frequent = sorted(counts.templates_dropped.items(), key=lambda item: (-item[1], item[0]))
    by_split = {split: [result for result in results if result.split == split] for split in SPLITS}
    shared = {name: value for name, value in vars(counts).items() if name in data_manifest.Counts.model_fields}
    manifest = Manifest(
        schema_version=data_manifest.SCHEMA_VERSION,
        reader_version=data_manifest.READER_VERSION,
        vocab_size=inputs.vocabulary.size,
        vocab_sha256=inputs.vocabulary.sha256,
        **settings.shaping(),
        inputs=tuple(data_manifest.InputFile.model_validate(file, from_attributes=True) for file in inputs.files),
        counts=data_manifest.Counts(
            **{**shared, "num_documents_skipped": dict(sorted(counts.num_documents_skipped.items()))},
            num_documents_duplicate=sum(result.num_duplicate_documents for result in results),
            num_documents_near_duplicate=sum(result.num_near_duplicate_documents for result in results),
            num_documents=sum(result.num_documents for result in results),
            num_tokens_kept=sum(result.num_text_tokens for result in results),
        ),
        templates_dropped=dict(most_frequent[:_NUM_NAMED_TEMPLATES]),
        first_faulty=named_faults(counts, {file.path: file.name for file in inputs.files}),
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
    warn_of_mark(dict(zip(inputs.vocabulary.tokens, token_counts.tolist(), strict=True)))
    write_atomically(os.path.join(settings.output_dir, inputs.vocabulary.file_name), inputs.vocabulary.content)
    write_atomically(os.path.join(settings.output_dir, MANIFEST_FILE), manifest.to_json().encode())


def log_summary(manifest: Manifest, seconds: float, num_tokens: int) -> None:
    """Logs what a build has done. `num_tokens`: those that it read in these seconds, without those of earlier runs."""
    counts = manifest.counts
    if reasons := left_out(counts):
        _logger.info("left out: %s", reasons)
    if manifest.templates_dropped:
        _logger.info(
            "templates dropped inside lines: %s; wikipedia_names can give their text",
            ", ".join(f"{number} {{{{{name}}}}}" for name, number in manifest.templates_dropped.items()),
        )
    if counts.num_tokens_dropped:
        _logger.info(
            "dropped: %d tokens (%.0f %%) that exceeded an example; examples=carry keeps them",
            counts.num_tokens_dropped,
            100 * counts.num_tokens_dropped / counts.num_tokens_read,
        )
    if counts.num_documents_cut:
        _logger.warning(
            "%d cuts in documents of over %d Mi characters; in the format text a blank line ends a document",
            counts.num_documents_cut,
            MAX_DOCUMENT_CHARACTERS >> 20,
        )
    splits = manifest.splits.values()
    held_out = manifest.splits.get(HELD_OUT_SPLIT)
    fraction = held_out.num_tokens / sum(split.num_tokens for split in splits) if held_out else 0
    asked = manifest.held_out_fraction
    if not _MIN_HELD_OUT * asked <= fraction <= max(asked, 0.5):
        _logger.warning(
            "warning: %.2g %% of the tokens are held out, held_out_fraction=%g asked for %.2g %%: the documents are"
            " few or unequal; try another fraction or seed",
            100 * fraction, asked, 100 * asked,
        )  # fmt: skip
    num_examples = sum(split.num_examples for split in splits)
    _logger.info(
        "%d documents (%d held out) | %d examples, %.1f %% padding | %d tokens read, %d kept | %s | %s | %.1f MB on"
        " disk",
        counts.num_documents,
        held_out.num_documents if held_out else 0,
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

    Raises: UserError: files are missing, damaged or unknown (all are named), or the manifest is damaged.
    """
    manifest = Manifest.load(data_dir)
    names = names_in(data_dir)
    vocab_file = next((name for name in VOCABULARY_FILES if name in names), VOCABULARY_FILES[0])
    shards = {shard.file: shard.sha256 for split in manifest.splits.values() for shard in split.shards}
    checksums = {vocab_file: manifest.vocab_sha256, **shards}
    problems = [
        f"{name} is not in the manifest" for name in names if name.endswith(".tfrecord") and name not in checksums
    ]
    # In a file the bar ends its line, so that an error has a line of its own.
    for name, expected in tqdm(checksums.items(), unit="file", leave=not sys.stderr.isatty()):
        try:
            with open_binary(os.path.join(data_dir, name)) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            problems.append(f"{name} cannot be read ({error.strerror or error})")
            continue
        if sha256 != expected:
            problems.append(f"{name} has sha256 {sha256}, expected {expected}")
    if problems:
        raise UserError(
            f"{data_dir} differs from its manifest: {'; '.join(problems)}; copy these files or build the data set again"
        )
    _logger.info("%s: %d files, all as in the manifest", data_dir, len(checksums))
    return manifest
