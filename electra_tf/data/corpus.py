"""The shards of a pre-training data set, whoever built it, and the vocabulary they were built with."""

import hashlib
import logging
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Literal

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.files import is_remote
from electra_tf.config.schema import DataConfig, RunConfig
from electra_tf.data.masking import MaskingVocabulary
from electra_tf.data.record_frames import FRAME_BYTES, LENGTH_BYTES, read_frames
from electra_tf.text import records
from electra_tf.text.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, VOCAB_FILE, Manifest, check_matches
from electra_tf.text.vocabulary import CONTINUATION_PREFIX, Vocabulary

# How the authors' builder names its files.
_AUTHORS_FILES = "pretrain_data.tfrecord*"

logger = logging.getLogger(__name__)

_PARSERS = {"compact": records.parse_examples, "fixed_length": records.parse_fixed_length_examples}


@dataclass(frozen=True)
class Corpus:
    """One split of a data set, ready to be read.

    Attributes:
        files: the shards, in a fixed order.
        num_examples: of each shard.
        parse: [B] string of serialized records -> `input_ids`, `input_mask`, `segment_ids`, each [B, S] int32. Fails
            with a `tf.errors.InvalidArgumentError` where one is no such record or holds an id beyond the vocabulary.
        padding: a serialized record that parses to a row without a token.
        on_damaged_record: what is done with a record that cannot be read: the run stops, or it counts as padding.
    """

    files: tuple[str, ...]
    num_examples: tuple[int, ...]
    parse: Callable[[tf.Tensor], dict[str, tf.Tensor]]
    padding: bytes
    on_damaged_record: Literal["stop", "skip"]

    @property
    def total_examples(self) -> int:
        return sum(self.num_examples)


@dataclass(frozen=True)
class PretrainingData:
    """A data directory that fits a run: its vocabulary, its training split, and its held-out split if it has one.

    Attributes:
        directory: or URL, where it lies.
        identity: the same for every copy of one data set, and of no other: a hash of the manifest, which has the
            checksums of the shards, or of the names of the authors' files.
        vocab_content: of the vocabulary's file.
        token_counts: how often each vocabulary entry stands in the training split, [V] int64; None where the builder
            has not counted.
    """

    directory: str
    identity: str
    vocabulary: Vocabulary
    vocab_content: bytes
    lower_case: bool
    strip_accents: bool
    train: Corpus
    held_out: Corpus | None
    token_counts: np.ndarray | None

    @property
    def special_ids(self) -> MaskingVocabulary:
        vocabulary = self.vocabulary
        return MaskingVocabulary(
            vocabulary.cls_id,
            vocabulary.sep_id,
            vocabulary.mask_id,
            vocabulary.size,
            is_continuation=np.array([token.startswith(CONTINUATION_PREFIX) for token in vocabulary.tokens]),
            token_counts=self.token_counts,
        )

    def text_token_counts(self, purpose: str) -> np.ndarray:
        """How often each vocabulary entry stands in the text of the training split: [V] int64.

        What examples are put together with is no text: [CLS] and [SEP] count as 0, as [PAD] and [MASK] do.

        Args:
            purpose: the setting that asks for them, for messages.
        Raises: UserError: if the data set has no counts.
        """
        if self.token_counts is None:
            raise UserError(
                f"{purpose} needs to know how frequent each token is, and {self.directory} does not tell: it was not "
                "built by this version of build_pretraining_dataset.py; build it anew (--overwrite replaces it)"
            )
        vocabulary, counts = self.vocabulary, self.token_counts.copy()
        counts[[vocabulary.pad_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id]] = 0
        return counts


def open_data(data_dir: str | os.PathLike, config: RunConfig) -> PretrainingData:
    """Opens what `build_pretraining_dataset.py`, or the authors' builder, has written.

    Args:
        data_dir: a directory, or a URL of a storage that TensorFlow itself reads, such as `gs://`.
    Raises: UserError: if there is nothing, or if vocabulary, sequence length or schema do not fit the run, or if the
        run's masking asks for what the data set does not tell.
    """
    data = _open(str(data_dir), config)
    if config.masking.strategy == "rare_tokens":
        data.text_token_counts("masking.strategy rare_tokens")
    return data


def _open(directory: str, config: RunConfig) -> PretrainingData:
    _require_directory(directory)
    vocab_file = _vocab_file(directory, config.data)
    vocab_content = _read(vocab_file)
    vocabulary = Vocabulary.from_bytes(vocab_content, vocab_file)
    if vocabulary.size != config.encoder.vocab_size:
        raise UserError(
            f"the data set's vocabulary has {vocabulary.size} entries, encoder.vocab_size is "
            f"{config.encoder.vocab_size}; give --set encoder.vocab_size={vocabulary.size} or use data built with "
            "another vocabulary"
        )
    if tf.io.gfile.exists(os.path.join(directory, MANIFEST_FILE)):
        return _open_with_manifest(directory, vocab_content, vocabulary, config)
    # The authors' builder records neither; both are its defaults.
    train = _open_authors_records(directory, config)
    names = "\n".join(os.path.basename(file) for file in train.files)
    return PretrainingData(
        directory,
        _identity(names.encode()),
        vocabulary,
        vocab_content,
        lower_case=True,
        strip_accents=True,
        train=train,
        held_out=None,
        token_counts=None,
    )


def _identity(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _require_directory(data_dir: str) -> None:
    try:
        is_directory = tf.io.gfile.stat(data_dir).is_directory  # `isdir` would hide every reason behind a "no"
    except tf.errors.NotFoundError:
        is_directory = False
    except tf.errors.UnimplementedError:
        raise UserError(
            f"--data_dir={data_dir}: TensorFlow has no file system for {data_dir.partition('://')[0]}://; copy the data"
            " set to a local directory or to gs://"
        ) from None
    except tf.errors.OpError as error:
        raise UserError(f"cannot reach --data_dir={data_dir}: {_first_line(error)}") from None
    if not is_directory:
        raise UserError(f"--data_dir={data_dir} is no directory; build one with build_pretraining_dataset.py")


def _vocab_file(directory: str, config: DataConfig) -> str:
    if config.vocab_file is not None:
        return config.vocab_file
    path = os.path.join(directory, VOCAB_FILE)
    if not tf.io.gfile.exists(path):
        raise UserError(f"{directory} holds no {VOCAB_FILE}; give the vocabulary with --set data.vocab_file=PATH")
    return path


def _read(path: str) -> bytes:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    except tf.errors.OpError as error:
        raise UserError(f"cannot read {path}: {_first_line(error)}; give a file that can be read") from None


def _first_line(error: tf.errors.OpError) -> str:
    return str(error.message).strip().partition("\n")[0]


def _open_with_manifest(
    directory: str, vocab_content: bytes, vocabulary: Vocabulary, config: RunConfig
) -> PretrainingData:
    manifest_file = os.path.join(directory, MANIFEST_FILE)
    manifest_content = _read(manifest_file)
    manifest = Manifest.from_bytes(manifest_content, manifest_file)
    check_matches(manifest, vocabulary=vocabulary, max_seq_length=config.data.max_seq_length)
    corpora = {}
    for name, split in manifest.splits.items():
        files = tuple(os.path.join(directory, shard.file) for shard in split.shards)
        for file, shard in zip(files, split.shards, strict=True):
            _require_size(file, shard.num_bytes, config.data)
        counts = tuple(shard.num_examples for shard in split.shards)
        corpora[name] = _corpus(files, counts, "compact", config)
    corpora = {name: corpus for name, corpus in corpora.items() if corpus.total_examples > 0}
    if TRAIN_SPLIT not in corpora:
        raise UserError(f"{directory} holds no examples to train on; build the data set from more text")
    counts = manifest.token_counts
    return PretrainingData(
        directory,
        _identity(manifest_content),
        vocabulary,
        vocab_content,
        manifest.lower_case,
        manifest.strip_accents,
        corpora[TRAIN_SPLIT],
        corpora.get(HELD_OUT_SPLIT),
        None if counts is None else np.array(counts, np.int64),
    )


def _require_size(file: str, num_bytes: int, config: DataConfig) -> None:
    """A cheap look at each shard before hours of training; a flipped byte is found when it is read."""
    if not tf.io.gfile.exists(file) or tf.io.gfile.isdir(file):
        raise UserError(f"{file} is in {MANIFEST_FILE} but no file on disk; copy or build the data set again")
    found = tf.io.gfile.stat(file).length
    if found < num_bytes and config.on_damaged_record == "skip":
        logger.warning("damaged data: %s has %d bytes, %s says %d", file, found, MANIFEST_FILE, num_bytes)
    elif found != num_bytes:
        raise UserError(f"{file} has {found} bytes, {MANIFEST_FILE} says {num_bytes}; copy or build the data set again")


def _open_authors_records(directory: str, config: RunConfig) -> Corpus:
    found = sorted(tf.io.gfile.glob(os.path.join(directory, _AUTHORS_FILES)))
    files = tuple(path for path in found if not tf.io.gfile.isdir(path))
    if not files:
        raise UserError(
            f"{directory} holds neither {MANIFEST_FILE} nor {_AUTHORS_FILES}; build a data set with "
            "build_pretraining_dataset.py"
        )
    counts = tuple(count_records(file, config.data.on_damaged_record) for file in files)
    layouts = {_layout(file, config.data) for file, count in zip(files, counts, strict=True) if count} - {None}
    if len(layouts) != 1:
        nothing = f"none of its {len(files)} record files holds an example"
        found = f"its record files mix the layouts {sorted(layouts)}" if layouts else nothing
        raise UserError(f"{directory}: {found}; expected the output of one build")
    return _corpus(files, counts, layouts.pop(), config)


def _layout(file: str, config: DataConfig) -> records.RecordFormat | None:
    """The layout of a file's first record; None if that cannot be read but may be left out.

    Raises: UserError: if it is none, or of another sequence length.
    """
    try:
        first = next(iter(tf.data.TFRecordDataset(file).as_numpy_iterator()))
    except tf.errors.OpError as error:
        if config.on_damaged_record == "skip":
            return None
        raise UserError(
            f"{file} is no TFRecord file, or damaged ({_first_line(error)}); copy or build it again"
        ) from None
    layout, length = records.record_format(first)
    if layout == "fixed_length" and length != config.max_seq_length:
        raise UserError(
            f"{file} has sequences of length {length}, data.max_seq_length is {config.max_seq_length}; make them equal"
        )
    return layout


def _corpus(files: tuple[str, ...], counts: tuple[int, ...], layout: records.RecordFormat, config: RunConfig) -> Corpus:
    # An empty shard would be visited for nothing.
    kept = [(file, count) for file, count in zip(files, counts, strict=True) if count]
    parser, length, vocab_size = _PARSERS[layout], config.data.max_seq_length, config.encoder.vocab_size

    def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = parser(serialized, length)
        ids = batch[records.INPUT_IDS]
        # An accelerator reads some other row of the word table without a word.
        known = tf.reduce_all((ids >= 0) & (ids < vocab_size))
        with tf.control_dependencies([tf.debugging.Assert(known, ["an id is not in the vocabulary"])]):
            return {**batch, records.INPUT_IDS: tf.identity(ids)}

    return Corpus(
        files=tuple(file for file, _ in kept),
        num_examples=tuple(count for _, count in kept),
        parse=parse,
        padding=records.padding_example(layout, length),
        on_damaged_record=config.data.on_damaged_record,
    )


def count_records(file: str, on_damaged_record: Literal["stop", "skip"]) -> int:
    """The number of records of an uncompressed TFRecord file, from the lengths alone.

    Raises: UserError: if the file ends inside a record or a length is damaged, naming the place, and that is to stop.
    """
    size, offset, count = tf.io.gfile.stat(file).length, 0, 0
    with _opened(file) as stream:
        while offset < size:
            stream.seek(offset)
            header = stream.read(LENGTH_BYTES)
            offset += FRAME_BYTES + (struct.unpack("<Q", header)[0] if len(header) == LENGTH_BYTES else size)
            if offset > size:
                return _count_whole_records(file, on_damaged_record)
            count += 1
    return count


def _count_whole_records(file: str, on_damaged_record: Literal["stop", "skip"]) -> int:
    """The number of records up to the one, counted, at whose length or end the file breaks off."""
    frames = read_frames(_read(file))
    place = f"{file}: record {len(frames) - 1} at byte {frames[-1].offset}: {frames[-1].problem}"
    if on_damaged_record == "stop":
        raise UserError(f"{place}; copy or build it again")
    logger.warning("damaged data: %s; the examples from there on are lost", place)
    return len(frames)


def _opened(file: str) -> BinaryIO:
    # TensorFlow's reader costs several times as much a call, and there is one for every record.
    return tf.io.gfile.GFile(file, "rb") if is_remote(file) else open(file, "rb")
