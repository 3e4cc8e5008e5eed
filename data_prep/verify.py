"""Compares a data set with its manifest: every checksum and every count."""

import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data_prep import storage
from data_prep.output import read_manifest
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT, Manifest
from electra_tf.text.vocabulary import VOCABULARY_FILES

_logger = logging.getLogger(__name__)

# Records in one call that counts tokens: enough to hide the cost of the call, few enough for the cache.
_RECORDS_PER_CALL = 1024


def verify(data_dir: str) -> Manifest:
    """Reads a whole data set, local or at a URL, and compares it with its manifest.

    Raises: UserError: files are missing, damaged or unknown (all are named), or the manifest is damaged.
    """
    from data_prep.tensorflow_setup import restrained_tensorflow

    restrained_tensorflow()
    manifest = read_manifest(data_dir)
    problems: list[str] = []
    names = storage.names_in(data_dir)
    vocab_file = next((name for name in VOCABULARY_FILES if name in names), VOCABULARY_FILES[0])
    _read(data_dir, vocab_file, manifest.vocab_sha256, problems)
    shards = {shard.file for split in manifest.splits.values() for shard in split.shards}
    for name in names:
        if name.startswith((TRAIN_SPLIT, HELD_OUT_SPLIT)) and name.endswith(".tfrecord") and name not in shards:
            problems.append(f"{name} is not in the manifest")
    problems += _document_problems(manifest)
    for name in manifest.splits:
        problems += _split_problems(data_dir, name, manifest)
    if problems:
        raise UserError(
            f"{data_dir} differs from its manifest: {'; '.join(problems)}; copy these files or build the data set again"
        )
    splits = manifest.splits.values()
    _logger.info(
        "%s: %d shards, %d examples, %d tokens, all as in the manifest",
        data_dir,
        sum(len(split.shards) for split in splits),
        sum(split.num_examples for split in splits),
        sum(split.num_tokens for split in splits),
    )
    return manifest


def _read(data_dir: str, name: str, sha256: str, problems: list[str]) -> bytes | None:
    """Reads a file. If it is unreadable or has another checksum, adds a problem and returns None."""
    try:
        content = storage.read_bytes(os.path.join(data_dir, name))
    except OSError as error:
        problems.append(f"{name} cannot be read ({error.strerror or error})")
        return None
    if (actual := hashlib.sha256(content).hexdigest()) != sha256:
        problems.append(f"{name} has sha256 {actual}, expected {sha256}")
        return None
    return content


def _document_problems(manifest: Manifest) -> Iterator[str]:
    counts = manifest.counts
    left_out = counts.num_documents_too_short + counts.num_documents_without_tokens + counts.num_documents_duplicate
    in_splits = sum(split.num_documents for split in manifest.splits.values())
    for what, number in (("splits hold", in_splits), ("counts leave", counts.num_documents_read - left_out)):
        if number != counts.num_documents:
            yield f"the manifest's {what} {number} documents, expected {counts.num_documents}"


def _split_problems(data_dir: str, name: str, manifest: Manifest) -> list[str]:
    split = manifest.splits[name]
    problems: list[str] = []
    token_counts = np.zeros(manifest.vocab_size, np.int64)
    # In a file the bar ends its line, so that an error has a line of its own.
    for shard in tqdm(split.shards, desc=name, unit="shard", delay=5, leave=not sys.stderr.isatty()):
        content = _read(data_dir, shard.file, shard.sha256, problems)
        if content is None:
            continue
        # A copy, because TensorFlow does not read from every file system that fsspec supports.
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            num_examples, token_counts_of_shard = count_tokens(Path(file.name), manifest.vocab_size)
        token_counts += token_counts_of_shard
        if (num_examples, len(content)) != (shard.num_examples, shard.num_bytes):
            expected = f"{shard.num_examples} examples in {shard.num_bytes} bytes"
            problems.append(f"{shard.file} holds {num_examples} examples in {len(content)} bytes, expected {expected}")
    if problems:
        return problems
    in_shards = sum(shard.num_examples for shard in split.shards)
    for what, number, stated in (
        ("examples", in_shards, split.num_examples),
        ("tokens", int(token_counts.sum()), split.num_tokens),
    ):
        if number != stated:
            problems.append(f"the split {name} holds {number} {what}, expected {stated}")
    if name == TRAIN_SPLIT and manifest.token_counts != tuple(token_counts.tolist()):
        problems.append(f"the split {name} holds other tokens than the manifest's token_counts")
    return problems


def count_tokens(path: Path, vocab_size: int) -> tuple[int, np.ndarray]:
    """Counts the examples and tokens of a shard.

    Returns: the number of examples, and the occurrences of each vocabulary entry, [CLS] and [SEP] included, [V] int64.
    """
    import tensorflow as tf

    from electra_tf.text.records import flat_token_ids

    num_examples, token_counts = 0, np.zeros(vocab_size, np.int64)
    for records in tf.data.TFRecordDataset(str(path)).batch(_RECORDS_PER_CALL):
        num_examples += len(records)
        token_counts += np.bincount(flat_token_ids(records).numpy(), minlength=vocab_size)
    return num_examples, token_counts
