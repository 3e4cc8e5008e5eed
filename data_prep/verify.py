"""Compares a data set with its manifest: every checksum and every count."""

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep import storage
from data_prep.output import read_manifest
from data_prep.shards import count_tokens
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote
from electra_tf.text.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT, VOCAB_FILE, Manifest, Shard

_logger = logging.getLogger(__name__)

_SHARDS_PER_LINE = 50  # of progress


def verify(data_dir: str) -> Manifest:
    """Reads a whole data set and compares it with its manifest.

    Args:
        data_dir: a local path or a URL.
    Raises: UserError: files are missing, damaged or unknown (all are named), or the manifest is damaged.
    """
    from data_prep.tensorflow_setup import restrained_tensorflow

    restrained_tensorflow()
    manifest = read_manifest(data_dir)
    problems = [*_file_problems(data_dir, manifest), *_document_problems(manifest)]
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


def _file_problems(data_dir: str, manifest: Manifest) -> Iterator[str]:
    try:
        sha256 = hashlib.sha256(storage.read_bytes(os.path.join(data_dir, VOCAB_FILE))).hexdigest()
        if sha256 != manifest.vocab_sha256:
            yield f"{VOCAB_FILE} has sha256 {sha256}, expected {manifest.vocab_sha256}"
    except OSError as error:
        yield f"{VOCAB_FILE} cannot be read ({error.strerror or error})"
    known = {shard.file for split in manifest.splits.values() for shard in split.shards}
    for name in storage.names_in(data_dir):
        if name.startswith((TRAIN_SPLIT, HELD_OUT_SPLIT)) and name.endswith(".tfrecord") and name not in known:
            yield f"{name} is not in the manifest"


def _document_problems(manifest: Manifest) -> Iterator[str]:
    counts = manifest.counts
    left_out = counts.num_documents_too_short + counts.num_documents_without_tokens + counts.num_documents_duplicate
    in_splits = sum(split.num_documents for split in manifest.splits.values())
    for what, number in (("splits hold", in_splits), ("counts leave", counts.num_documents_read - left_out)):
        if number != counts.num_documents:
            yield f"the manifest's {what} {number} documents, expected {counts.num_documents}"


def _split_problems(data_dir: str, name: str, manifest: Manifest) -> list[str]:
    split = manifest.splits[name]
    problems = []
    token_counts = np.zeros(manifest.vocab_size, np.int64)
    for i, shard in enumerate(split.shards):
        if i and i % _SHARDS_PER_LINE == 0:
            _logger.info("%s: %d of %d shards", name, i, len(split.shards))
        problem, counts = _read_shard(os.path.join(data_dir, shard.file), shard, manifest.vocab_size)
        token_counts += counts
        problems += [f"{shard.file} {problem}"] if problem else []
    if problems:
        return problems
    in_shards = sum(shard.num_examples for shard in split.shards)
    for what, number, expected in (
        ("examples", in_shards, split.num_examples),
        ("tokens", int(token_counts.sum()), split.num_tokens),
    ):
        if number != expected:
            problems.append(f"the split {name} holds {number} {what}, expected {expected}")
    if name == TRAIN_SPLIT and manifest.token_counts != tuple(token_counts.tolist()):
        problems.append(f"the split {name} holds other tokens than the manifest's token_counts")
    return problems


def _read_shard(path: str, shard: Shard, vocab_size: int) -> tuple[str, np.ndarray | int]:
    """Returns: the problem with a shard ("" if there is none), and its token counts, [V] int64, or 0 if damaged."""
    try:
        content = storage.read_bytes(path)
    except OSError as error:
        return f"cannot be read ({error.strerror or error})", 0
    if len(content) != shard.num_bytes:
        return f"has {len(content)} bytes, expected {shard.num_bytes}", 0
    if (sha256 := hashlib.sha256(content).hexdigest()) != shard.sha256:
        return f"has sha256 {sha256}, expected {shard.sha256}", 0
    with contextlib.ExitStack() as stack:
        # TensorFlow does not read from every file system that fsspec supports.
        if is_remote(path):
            path = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "shard.tfrecord")
            Path(path).write_bytes(content)
        num_examples, token_counts = count_tokens(Path(path), vocab_size)
    is_complete = num_examples == shard.num_examples
    return "" if is_complete else f"holds {num_examples} examples, expected {shard.num_examples}", token_counts
