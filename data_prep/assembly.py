"""The parts of a build that the local builder and the Beam pipeline share: its inputs, its checks, its manifest."""

import datetime
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_prep import output, storage
from data_prep.counts import ReadCounts, join_faults, named_faults, require_few_faults
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS
from data_prep.script_check import require_readable, require_undamaged
from data_prep.settings import BuildSettings
from data_prep.shards import SPLITS, ShardResult
from data_prep.sources import SourceFile, find_files
from electra_tf.config.errors import UserError
from electra_tf.files import store_errors
from electra_tf.text import manifest as data_manifest
from electra_tf.text.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, Manifest
from electra_tf.text.vocabulary import Vocabulary
from electra_tf.text.vocabulary_settings import chosen_settings, stated_settings

_logger = logging.getLogger(__name__)

_MIN_KEPT_FRACTION = 0.5  # of the tokens; with less, most of the text would be lost unnoticed
_NUM_NAMED_TEMPLATES = 10
_MANY_TOO_SHORT = 0.5  # of the documents; the text may not be what its format says
_MAX_UNKNOWN_FRACTION = 0.01  # of the tokens; a vocabulary of a language has far less in its own texts


@dataclass(frozen=True)
class BuildInputs:
    """The files that a build reads."""

    files: list[SourceFile]
    vocabulary: Vocabulary

    @classmethod
    def find(cls, settings: BuildSettings) -> "BuildInputs":
        """Finds the input files and reads the vocabulary.

        Raises: UserError: see `find_files`, `require_readable` and `Vocabulary.from_bytes`.
        """
        files = find_files(settings.inputs)
        require_readable(files, settings)
        with store_errors(settings.vocab_file, "cannot be read"):
            content = storage.read_bytes(settings.vocab_file)
        return cls(files, Vocabulary.from_bytes(content, settings.vocab_file))

    def with_text_settings(self, settings: BuildSettings) -> BuildSettings:
        """The settings with those of the vocabulary.

        Raises: UserError: a flag contradicts the vocabulary, or the vocabulary does not fit; see `chosen_settings`. Or
            the vocabulary states no settings, and a default damages the text; see `require_undamaged`.
        """
        chosen = chosen_settings(self.vocabulary, settings.vocab_file, _content_if_exists, settings.text_flags)
        if stated_settings(self.vocabulary, settings.vocab_file, _content_if_exists) is None:
            require_undamaged(self.files, settings, chosen)
        return settings.model_copy(update=chosen._asdict())

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)

    def configuration(self, settings: BuildSettings) -> dict[str, Any]:
        """The settings and files that determine the output, as JSON. A build only continues one with the same."""
        names = ("format", "compression", "name", "num_bytes", "modified")
        inputs = [{name: getattr(file, name) for name in names} for file in self.files]
        return {**settings.shaping(), "vocab_sha256": self.vocabulary.sha256, "inputs": inputs}


def _content_if_exists(path: str) -> bytes | None:
    with store_errors(path, "cannot be read"):
        return None if storage.size_of(path) is None else storage.read_bytes(path)


def build_once(
    settings: BuildSettings, inputs: BuildInputs, build: Callable[[BuildSettings, BuildInputs], Manifest]
) -> Manifest:
    """Calls `build` unless the same command has already finished; returns the manifest in the output directory.

    Raises: UserError: see `output.finished_manifest`, `output.opened` and `build`.
    """
    configuration = inputs.configuration(settings)
    if manifest := output.finished_manifest(settings, configuration):
        output.remove_build_dir(settings)
        _logger.info("%s already holds this data set, built from files with these names and sizes", settings.output_dir)
        if faulty := manifest.first_faulty:
            _logger.warning("warning: it lacks %s; after a repair, --overwrite builds it again", join_faults(faulty))
    else:
        with output.opened(settings, configuration, [settings.vocab_file, *(file.path for file in inputs.files)]):
            manifest = build(settings, inputs)
    return manifest


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


def speed(number: int, seconds: float, unit: str = "tokens") -> str:
    """Formats a speed: (1234567, 2) gives "617 k tokens/s"."""
    return f"{number / seconds / 1e3:,.0f} k {unit}/s"
