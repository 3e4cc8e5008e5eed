"""The shards of a pre-training data set, whoever built it, and the vocabulary they were built with."""

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import DataConfig, PretrainingConfig
from electra_tf.data.masking import SpecialIds
from electra_tf.text import records
from electra_tf.text.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, VOCAB_FILE, Manifest, check_matches
from electra_tf.text.vocabulary import Vocabulary

# How the authors' builder names its files.
_AUTHORS_FILES = "pretrain_data.tfrecord*"
# A TFRecord is its length (8 bytes), a checksum of the length (4), the data and a checksum of the data (4).
_LENGTH_BYTES, _FRAME_BYTES = 8, 16

_PARSERS = {"compact": records.parse_examples, "fixed_length": records.parse_fixed_length_examples}


@dataclass(frozen=True)
class Corpus:
    """One split of a data set, ready to be read.

    Attributes:
        files: the shards, in a fixed order.
        num_examples: of each shard.
        parse: [B] string of serialized records -> `input_ids`, `input_mask`, `segment_ids`, each [B, S] int32.
    """

    files: tuple[str, ...]
    num_examples: tuple[int, ...]
    parse: Callable[[tf.Tensor], dict[str, tf.Tensor]]

    @property
    def total_examples(self) -> int:
        return sum(self.num_examples)


@dataclass(frozen=True)
class PretrainingData:
    """A data directory that fits a run: its vocabulary, its training split, and its held-out split if it has one."""

    vocabulary: Vocabulary
    vocab_file: Path
    lower_case: bool
    strip_accents: bool
    train: Corpus
    held_out: Corpus | None

    @property
    def special_ids(self) -> SpecialIds:
        vocabulary = self.vocabulary
        return SpecialIds(vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id, vocabulary.size)


def open_data(data_dir: str | os.PathLike, config: PretrainingConfig) -> PretrainingData:
    """Opens what `build_pretraining_dataset.py`, or the authors' builder, has written.

    Raises: UserError: if there is nothing, or if vocabulary, sequence length or schema do not fit the run.
    """
    directory = Path(data_dir)
    if not directory.is_dir():
        raise UserError(f"--data_dir={data_dir} is no directory; build one with build_pretraining_dataset.py")
    vocab_file = _vocab_file(directory, config.data)
    vocabulary = Vocabulary.load(vocab_file)
    if vocabulary.size != config.encoder.vocab_size:
        raise UserError(
            f"the data set's vocabulary has {vocabulary.size} entries, encoder.vocab_size is "
            f"{config.encoder.vocab_size}; give --set encoder.vocab_size={vocabulary.size} or use data built with "
            "another vocabulary"
        )
    if (directory / MANIFEST_FILE).exists():
        return _open_with_manifest(directory, vocab_file, vocabulary, config)
    # The authors' builder records neither; both are its defaults.
    train = _open_authors_records(directory, config)
    return PretrainingData(vocabulary, vocab_file, lower_case=True, strip_accents=True, train=train, held_out=None)


def _vocab_file(directory: Path, config: DataConfig) -> Path:
    if config.vocab_file is not None:
        return Path(config.vocab_file)
    if not (directory / VOCAB_FILE).exists():
        raise UserError(f"{directory} holds no {VOCAB_FILE}; give the vocabulary with --set data.vocab_file=PATH")
    return directory / VOCAB_FILE


def _open_with_manifest(
    directory: Path, vocab_file: Path, vocabulary: Vocabulary, config: PretrainingConfig
) -> PretrainingData:
    manifest = Manifest.load(directory)
    check_matches(manifest, vocabulary=vocabulary, max_seq_length=config.data.max_seq_length)
    corpora = {}
    for name, split in manifest.splits.items():
        files = tuple(str(directory / shard.file) for shard in split.shards)
        for file, shard in zip(files, split.shards, strict=True):
            _require_size(file, shard.num_bytes)
        counts = tuple(shard.num_examples for shard in split.shards)
        corpora[name] = _corpus(files, counts, "compact", config.data.max_seq_length)
    corpora = {name: corpus for name, corpus in corpora.items() if corpus.total_examples > 0}
    if TRAIN_SPLIT not in corpora:
        raise UserError(f"{directory} holds no examples to train on; build the data set from more text")
    return PretrainingData(
        vocabulary,
        vocab_file,
        manifest.lower_case,
        manifest.strip_accents,
        corpora[TRAIN_SPLIT],
        corpora.get(HELD_OUT_SPLIT),
    )


def _require_size(file: str, num_bytes: int) -> None:
    """A cheap look at each shard before hours of training; a flipped byte is found when it is read."""
    if not os.path.isfile(file):
        raise UserError(f"{file} is in {MANIFEST_FILE} but no file on disk; copy or build the data set again")
    if os.path.getsize(file) != num_bytes:
        raise UserError(
            f"{file} has {os.path.getsize(file)} bytes, {MANIFEST_FILE} says {num_bytes}; copy or build the data set "
            "again"
        )


def _open_authors_records(directory: Path, config: PretrainingConfig) -> Corpus:
    files = tuple(str(path) for path in sorted(directory.glob(_AUTHORS_FILES)) if path.is_file())
    if not files:
        raise UserError(
            f"{directory} holds neither {MANIFEST_FILE} nor {_AUTHORS_FILES}; build a data set with "
            "build_pretraining_dataset.py"
        )
    counts = tuple(count_records(file) for file in files)
    layouts = {_layout(file, config.data) for file, count in zip(files, counts, strict=True) if count}
    if len(layouts) != 1:
        nothing = f"none of its {len(files)} record files holds an example"
        found = f"its record files mix the layouts {sorted(layouts)}" if layouts else nothing
        raise UserError(f"{directory}: {found}; expected the output of one build")
    return _corpus(files, counts, layouts.pop(), config.data.max_seq_length)


def _layout(file: str, config: DataConfig) -> records.RecordFormat:
    """The layout of a file's first record. Raises: UserError: if it is none, or of another sequence length."""
    try:
        first = next(iter(tf.data.TFRecordDataset(file).as_numpy_iterator()))
    except tf.errors.OpError as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{file} is no TFRecord file, or damaged ({reason}); copy or build it again") from None
    layout, length = records.record_format(first)
    if layout == "fixed_length" and length != config.max_seq_length:
        raise UserError(
            f"{file} has sequences of length {length}, data.max_seq_length is {config.max_seq_length}; make them equal"
        )
    return layout


def _corpus(files: tuple[str, ...], counts: tuple[int, ...], layout: records.RecordFormat, length: int) -> Corpus:
    # An empty shard would be visited for nothing.
    kept = [(file, count) for file, count in zip(files, counts, strict=True) if count]
    parser = _PARSERS[layout]
    return Corpus(
        files=tuple(file for file, _ in kept),
        num_examples=tuple(count for _, count in kept),
        parse=lambda serialized: parser(serialized, length),
    )


def count_records(file: str) -> int:
    """The number of records of an uncompressed TFRecord file, from the lengths alone.

    Raises: UserError: if the file ends inside a record, naming the offset.
    """
    size, offset, count = os.path.getsize(file), 0, 0
    with open(file, "rb") as stream:
        while offset < size:
            stream.seek(offset)
            header = stream.read(_LENGTH_BYTES)
            length = struct.unpack("<Q", header)[0] if len(header) == _LENGTH_BYTES else size
            offset, start = offset + _FRAME_BYTES + length, offset
            if offset > size:
                raise UserError(f"{file} ends inside the record that starts at byte {start}; copy or build it again")
            count += 1
    return count
