"""What units and shards tell, put together: the manifest. The local builder and the Beam pipeline both end here."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from data_prep import storage
from data_prep.counts import Counts
from data_prep.inputs import SourceFile
from data_prep.settings import BuildSettings
from data_prep.shards import ShardResult
from data_prep.spills import SPLITS, SpillSummary
from electra_tf.config.errors import UserError
from electra_tf.text import manifest as data_manifest
from electra_tf.text.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, VOCAB_FILE, Manifest
from electra_tf.text.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)


@dataclass
class Phase1:
    """Totals over the work units; the dictionaries are by split, duplicates included."""

    num_units: int = 0
    counts: Counts = field(default_factory=Counts)
    num_documents: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    num_record_bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))

    def add(self, summary: SpillSummary) -> None:
        """Adds a unit, and warns of files that were cut off."""
        for message in summary.counts.reading.truncations:
            _logger.warning("warning: %s", message)
        self.counts.add(summary.counts)
        for split in SPLITS:
            self.num_documents[split] += summary.num_documents[split]
            self.num_record_bytes[split] += summary.num_record_bytes[split]


def require_documents(settings: BuildSettings, phase_1: Phase1) -> None:
    """Looks whether there is anything to train on.

    Raises: UserError: if no document is left, or all are held out.
    """
    num_train, num_held_out = (phase_1.num_documents[split] for split in (TRAIN_SPLIT, HELD_OUT_SPLIT))
    if not num_train + num_held_out:
        counts = phase_1.counts
        left_out = {
            **counts.reading.num_documents_skipped,
            f"shorter than --min_document_characters={settings.hygiene.min_document_characters}": (
                counts.hygiene.num_documents_too_short
            ),
            "without a token": counts.num_documents_without_tokens,
        }
        reasons = ", ".join(f"{number} {reason}" for reason, number in left_out.items() if number)
        raise UserError(
            f"no document is left of {counts.num_bytes} bytes of input: {reasons or 'it holds no text'}; give files"
            " with words in them, or relax these rules"
        )
    if not num_train:
        raise UserError(
            f"all {num_held_out} documents were held out; lower --held_out_fraction={settings.held_out_fraction}"
            " or change --seed"
        )
    if settings.held_out_fraction > 0 and not num_held_out:
        _logger.warning(
            "warning: none of %d documents was held out with --held_out_fraction=%s: the data set has no held-out part;"
            " raise the fraction, or split the text into more documents",
            num_train,
            settings.held_out_fraction,
        )


def assemble_manifest(
    settings: BuildSettings,
    files: Iterable[SourceFile],
    vocabulary: Vocabulary,
    phase_1: Phase1,
    results: Iterable[ShardResult],
    token_counts: np.ndarray,
) -> Manifest:
    """The manifest of a build whose shards are all written, `results` in any order.

    Args:
        token_counts: [V] int64, of the training split.
    """
    results = sorted(results, key=lambda result: result.shard.file)
    return Manifest(
        schema_version=data_manifest.SCHEMA_VERSION,
        vocab_size=vocabulary.size,
        vocab_sha256=vocabulary.sha256,
        **settings.shaping(),
        inputs=tuple(
            data_manifest.InputFile(
                format=file.format, compression=file.compression, name=file.name, num_bytes=file.num_bytes
            )
            for file in files
        ),
        counts=_counts(phase_1.counts, results),
        splits={
            split: _split([result for result in results if result.split == split])
            for split in SPLITS
            if any(result.split == split for result in results)
        },
        token_counts=tuple(token_counts.tolist()),
    )


def _counts(counts: Counts, results: list[ShardResult]) -> data_manifest.Counts:
    return data_manifest.Counts(
        num_documents_skipped=dict(sorted(counts.reading.num_documents_skipped.items())),
        num_documents_cut=counts.reading.num_documents_cut,
        num_documents_read=counts.hygiene.num_documents_read,
        num_documents_normalized=counts.hygiene.num_documents_normalized,
        num_control_characters_dropped=counts.hygiene.num_control_characters_dropped,
        num_documents_too_short=counts.hygiene.num_documents_too_short,
        num_documents_without_tokens=counts.num_documents_without_tokens,
        num_documents_duplicate=sum(result.num_duplicate_documents for result in results),
        num_documents=sum(result.num_documents for result in results),
        num_tokens_read=counts.num_tokens_read,
        num_unknown_tokens=counts.num_unknown_tokens,
        num_tokens_kept=sum(result.num_text_tokens for result in results),
        num_truncated_inputs=len(set(counts.reading.truncations)),
    )


def _split(results: list[ShardResult]) -> data_manifest.Split:
    return data_manifest.Split(
        num_documents=sum(result.num_documents for result in results),
        num_examples=sum(result.shard.num_examples for result in results),
        num_tokens=sum(result.num_tokens for result in results),
        shards=tuple(result.shard for result in results),
    )


def write_manifest(manifest: Manifest, settings: BuildSettings, vocabulary_content: bytes) -> None:
    """Writes the vocabulary and, last of all, the manifest: where there is one, the data set is complete."""
    storage.write_bytes(storage.join(settings.output_dir, VOCAB_FILE), vocabulary_content)
    storage.write_bytes(storage.join(settings.output_dir, MANIFEST_FILE), manifest.to_json().encode())
