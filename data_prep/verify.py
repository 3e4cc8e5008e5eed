"""Is a data set on the disk still what its manifest says? Every checksum and every count, shard by shard."""

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep import storage
from data_prep.examples import restrained_tensorflow
from data_prep.shards import count_tokens
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT, VOCAB_FILE, Manifest, Shard, Split

_logger = logging.getLogger(__name__)

_EXAMPLES_PER_BATCH = 1024
_SHARDS_PER_LINE = 50  # of progress


def verify(data_dir: str) -> Manifest:
    """Reads all of a data set and compares it with its manifest.

    Args:
        data_dir: a local path or a URL.
    Raises: UserError: naming each file that is missing, damaged or too many; the manifest itself may be.
    """
    manifest = Manifest.load(data_dir)
    faults = [*_vocabulary_faults(data_dir, manifest), *_stray_shards(data_dir, manifest), *_count_faults(manifest)]
    for name, split in manifest.splits.items():
        faults += _split_faults(data_dir, name, split, manifest)
    if faults:
        raise UserError(
            f"{data_dir} is not what its manifest says: {'; '.join(faults)}; copy these files again, or build the data"
            " set anew"
        )
    _logger.info(
        "%s: %d shards, %d examples, %d tokens, all as the manifest says",
        data_dir,
        sum(len(split.shards) for split in manifest.splits.values()),
        sum(split.num_examples for split in manifest.splits.values()),
        sum(split.num_tokens for split in manifest.splits.values()),
    )
    return manifest


def _vocabulary_faults(data_dir: str, manifest: Manifest) -> Iterator[str]:
    try:
        content = storage.read_bytes(storage.join(data_dir, VOCAB_FILE))
    except OSError as error:
        yield f"{VOCAB_FILE} cannot be read ({error.strerror or error})"
        return
    if (sha256 := hashlib.sha256(content).hexdigest()) != manifest.vocab_sha256:
        yield f"{VOCAB_FILE} has sha256 {sha256}, expected {manifest.vocab_sha256}"


def _stray_shards(data_dir: str, manifest: Manifest) -> list[str]:
    known = {shard.file for split in manifest.splits.values() for shard in split.shards}
    return [
        f"{name} is not in the manifest"
        for name in storage.names_in(data_dir)
        if name.startswith((TRAIN_SPLIT, HELD_OUT_SPLIT)) and name.endswith(".tfrecord") and name not in known
    ]


def _count_faults(manifest: Manifest) -> Iterator[str]:
    """Whether what was read is what was kept and what was left out."""
    counts = manifest.counts
    left_out = counts.num_documents_too_short + counts.num_documents_without_tokens + counts.num_documents_duplicate
    in_splits = sum(split.num_documents for split in manifest.splits.values())
    for what, found in (("splits hold", in_splits), ("counts leave", counts.num_documents_read - left_out)):
        if found != counts.num_documents:
            yield f"the manifest's {what} {found} documents, expected {counts.num_documents}"


def _split_faults(data_dir: str, name: str, split: Split, manifest: Manifest) -> list[str]:
    faults = []
    token_counts = np.zeros(manifest.vocab_size, np.int64)
    for i, shard in enumerate(split.shards):
        if i and i % _SHARDS_PER_LINE == 0:
            _logger.info("%s: %d of %d shards", name, i, len(split.shards))
        path = storage.join(data_dir, shard.file)
        try:
            content = storage.read_bytes(path)
        except OSError as error:
            faults.append(f"{shard.file} cannot be read ({error.strerror or error})")
            continue
        fault = _shard_fault(content, shard)
        if fault is None:
            num_examples, counts = _count(path, content, manifest.vocab_size)
            token_counts += counts
            if num_examples != shard.num_examples:
                fault = f"{shard.file} holds {num_examples} examples, expected {shard.num_examples}"
        if fault is not None:
            faults.append(fault)
    if not faults:
        in_shards = sum(shard.num_examples for shard in split.shards)
        for what, found, expected in (
            ("examples", in_shards, split.num_examples),
            ("tokens", int(token_counts.sum()), split.num_tokens),
        ):
            if found != expected:
                faults.append(f"the split {name} holds {found} {what}, expected {expected}")
        if name == TRAIN_SPLIT and manifest.token_counts not in (None, tuple(token_counts.tolist())):
            faults.append(f"the split {name} holds other tokens than the manifest's token_counts")
    return faults


def _shard_fault(content: bytes, shard: Shard) -> str | None:
    if len(content) != shard.num_bytes:
        return f"{shard.file} has {len(content)} bytes, expected {shard.num_bytes}"
    if (sha256 := hashlib.sha256(content).hexdigest()) != shard.sha256:
        return f"{shard.file} has sha256 {sha256}, expected {shard.sha256}"
    return None


def _count(path: str, content: bytes, vocab_size: int) -> tuple[int, np.ndarray]:
    """Examples, and how often each vocabulary entry stands, in a shard whose bytes are `content`."""
    tf = restrained_tensorflow()
    with contextlib.ExitStack() as stack:
        # TensorFlow reads records by name alone, and not from every store that the shard may have come from.
        if storage.is_remote(path):
            path = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "shard.tfrecord")
            Path(path).write_bytes(content)
        num_examples = sum(len(records) for records in tf.data.TFRecordDataset(path).batch(_EXAMPLES_PER_BATCH))
        return num_examples, count_tokens(Path(path), vocab_size)
