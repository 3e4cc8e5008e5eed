"""The shards of a pre-training data set, whoever built it, and the vocabulary they were built with.

Everything is read through `tf.io.gfile`, so a data set may lie on any filesystem that TensorFlow reads.
"""

import contextlib
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.config.schema import DataConfig, RunConfig
from electra_tf.data.batch import INPUT_IDS, Batch
from electra_tf.data.masking import MaskingVocabulary
from electra_tf.data.record_frames import read_frames
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
        parse: [B] string of serialized records -> the tensors of `TEXT_TENSORS`. Fails with a
            `tf.errors.InvalidArgumentError` if one is no such record or holds an id outside the vocabulary.
        padding: a serialized record that parses to a row without a token.
        on_damaged_record: whether a record that cannot be read stops the run or counts as padding.
    """

    files: tuple[str, ...]
    num_examples: tuple[int, ...]
    parse: Callable[[tf.Tensor], Batch]
    padding: bytes
    on_damaged_record: Literal["stop", "skip"]

    @property
    def total_examples(self) -> int:
        return sum(self.num_examples)


@dataclass(frozen=True)
class PretrainingData:
    """A data directory that fits a run: its vocabulary, its training split, and its held-out split if it has one.

    Attributes:
        directory: its path or URL.
        identity: equal for all copies of one data set and for no others: a hash of the manifest, which has the
            checksums of the shards, or of the names of the authors' files.
        tokenizer: the content of the vocabulary's file, and whether text was lower-cased and stripped of accents.
        token_counts: how often each vocabulary entry occurs in the training split, [V] int64; None if the builder did
            not count.
    """

    directory: str
    identity: str
    vocabulary: Vocabulary
    tokenizer: tuple[bytes, bool, bool]
    train: Corpus
    held_out: Corpus | None
    token_counts: np.ndarray | None

    @property
    def masking_vocabulary(self) -> MaskingVocabulary:
        vocabulary = self.vocabulary
        return MaskingVocabulary(
            vocabulary.cls_id,
            vocabulary.sep_id,
            vocabulary.mask_id,
            vocabulary.size,
            is_continuation=np.array([token.startswith(CONTINUATION_PREFIX) for token in vocabulary.tokens]),
            token_counts=self.token_counts,
            unigram_losses=None if self.token_counts is None else self._unigram_losses(),
        )

    def _unigram_losses(self) -> np.ndarray:
        """[V] float32, nats. What the text does not have counts as if it had been seen once, so that all are finite."""
        counts = self.text_token_counts("the unigram loss").astype(np.float64)
        return (np.log(counts.sum()) - np.log(np.maximum(counts, 1.0))).astype(np.float32)

    def text_token_counts(self, purpose: str) -> np.ndarray:
        """How often each vocabulary entry occurs in the text of the training split: [V] int64.

        The builder adds [CLS] and [SEP], so they count as 0, and so do [PAD] and [MASK].

        Args:
            purpose: the setting that needs them, for messages.
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
    """Opens the output of `build_pretraining_dataset.py` or of the authors' builder.

    Args:
        data_dir: a directory, or a URL that TensorFlow reads, such as `gs://`.
    Raises: UserError: if there is none, if vocabulary, sequence length or schema do not fit the run, or if the run's
        masking needs what the data set does not tell.
    """
    directory = str(data_dir)
    _require_directory(directory)
    vocab_file = config.data.vocab_file or os.path.join(directory, VOCAB_FILE)
    if config.data.vocab_file is None and not tf.io.gfile.exists(vocab_file):
        raise UserError(f"{directory} holds no {VOCAB_FILE}; give the vocabulary with --set data.vocab_file=PATH")
    content = _read(vocab_file)
    vocabulary = Vocabulary.from_bytes(content, vocab_file)
    if vocabulary.size != config.encoder.vocab_size:
        raise UserError(
            f"the data set's vocabulary has {vocabulary.size} entries, encoder.vocab_size is "
            f"{config.encoder.vocab_size}; give --set encoder.vocab_size={vocabulary.size} or use data built with "
            "another vocabulary"
        )
    has_manifest = tf.io.gfile.exists(os.path.join(directory, MANIFEST_FILE))
    data = (_open_ours if has_manifest else _open_authors)(directory, vocabulary, content, config)
    if config.masking.scheme == "rare_tokens":
        data.text_token_counts("masking.scheme rare_tokens")
    return data


def _require_directory(data_dir: str) -> None:
    try:
        is_directory = tf.io.gfile.stat(data_dir).is_directory  # `isdir` would answer no without a reason
    except tf.errors.NotFoundError:
        is_directory = False
    except tf.errors.OpError as error:
        raise UserError(
            f"cannot reach --data_dir={data_dir}: {first_line(error)}; copy it to a local directory or to gs://"
        ) from None
    if not is_directory:
        raise UserError(f"--data_dir={data_dir} is no directory; build one with build_pretraining_dataset.py")


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Raises: UserError: if the file cannot be read."""
    try:
        yield
    except tf.errors.OpError as error:
        raise UserError(f"cannot read {path}: {first_line(error)}; give a file that can be read") from None


def _read(path: str) -> bytes:
    with _reading(path), tf.io.gfile.GFile(path, "rb") as file:
        return file.read()


def _open_ours(directory: str, vocabulary: Vocabulary, vocab_content: bytes, config: RunConfig) -> PretrainingData:
    """Opens a data set that has a manifest."""
    manifest_file = os.path.join(directory, MANIFEST_FILE)
    content = _read(manifest_file)
    manifest = Manifest.from_bytes(content, manifest_file)
    check_matches(manifest, vocabulary=vocabulary, max_seq_length=config.data.max_seq_length)
    corpora = {}
    for name, split in manifest.splits.items():
        files = [os.path.join(directory, shard.file) for shard in split.shards]
        for file, shard in zip(files, split.shards, strict=True):
            _require_size(file, shard.num_bytes, config.data)
        counts = [shard.num_examples for shard in split.shards]
        if any(counts):
            corpora[name] = _corpus(files, counts, "compact", config)
    if TRAIN_SPLIT not in corpora:
        raise UserError(f"{directory} holds no examples to train on; build the data set from more text")
    return PretrainingData(
        directory,
        identity=hashlib.sha256(content).hexdigest(),
        vocabulary=vocabulary,
        tokenizer=(vocab_content, manifest.lower_case, manifest.strip_accents),
        train=corpora[TRAIN_SPLIT],
        held_out=corpora.get(HELD_OUT_SPLIT),
        token_counts=None if manifest.token_counts is None else np.array(manifest.token_counts, np.int64),
    )


def _require_size(file: str, num_bytes: int, config: DataConfig) -> None:
    """A cheap look at each shard before hours of training; a flipped byte is found when it is read."""
    if not tf.io.gfile.exists(file) or tf.io.gfile.isdir(file):
        raise UserError(f"{file} is in {MANIFEST_FILE} but no file on disk; copy or build the data set again")
    size = tf.io.gfile.stat(file).length
    if size < num_bytes and config.on_damaged_record == "skip":
        logger.warning("damaged data: %s has %d bytes, %s says %d", file, size, MANIFEST_FILE, num_bytes)
    elif size != num_bytes:
        raise UserError(f"{file} has {size} bytes, {MANIFEST_FILE} says {num_bytes}; copy or build the data set again")


def _open_authors(directory: str, vocabulary: Vocabulary, vocab_content: bytes, config: RunConfig) -> PretrainingData:
    """Opens the files of the authors' builder, which come without a manifest."""
    found = sorted(tf.io.gfile.glob(os.path.join(directory, _AUTHORS_FILES)))
    files = [path for path in found if not tf.io.gfile.isdir(path)]
    if not files:
        raise UserError(
            f"{directory} holds neither {MANIFEST_FILE} nor {_AUTHORS_FILES}; build a data set with "
            "build_pretraining_dataset.py"
        )
    inspected = []
    for file in files:
        with _reading(file):
            inspected.append(_inspect(file, config.data))
    counts, layouts = zip(*inspected, strict=True)
    layout = next(filter(None, layouts), None)
    if layout is None:
        raise UserError(
            f"{directory}: none of its {len(files)} record files holds an example; expected the output of one build"
        )
    names = "\n".join(os.path.basename(file) for file in files)
    return PretrainingData(
        directory,
        identity=hashlib.sha256(names.encode()).hexdigest(),
        vocabulary=vocabulary,
        tokenizer=(vocab_content, True, True),  # the defaults of the authors' builder, which records neither
        train=_corpus(files, counts, layout, config),
        held_out=None,
        token_counts=None,
    )


def _inspect(file: str, config: DataConfig) -> tuple[int, records.RecordFormat | None]:
    """The number of records in a file, damaged ones included, and the layout of the first whole one.

    Raises: UserError: if a record is damaged and that is to stop the run, or has another layout or sequence length.
    """
    count, layout, is_reported = 0, None, False
    for frame in read_frames(file):
        if frame.record is None and not is_reported:
            damage, is_reported = f"{file}: record {count} at byte {frame.offset}: {frame.problem}", True
            if config.on_damaged_record == "stop":
                raise UserError(f"{damage}; copy or build it again")
            logger.warning("damaged data: %s", damage)
        elif frame.record is not None and layout is None:
            layout, length = records.record_format(frame.record)
            if layout == "fixed_length" and length != config.max_seq_length:
                raise UserError(
                    f"{file} has sequences of length {length}, data.max_seq_length is {config.max_seq_length}; "
                    "make them equal"
                )
        count += 1
    return count, layout


def _corpus(files: Sequence[str], counts: Sequence[int], layout: records.RecordFormat, config: RunConfig) -> Corpus:
    parser, length, vocab_size = _PARSERS[layout], config.data.max_seq_length, config.encoder.vocab_size

    def parse(serialized: tf.Tensor) -> Batch:
        batch = parser(serialized, length)
        ids = batch[INPUT_IDS]
        # Out-of-range ids would silently read a wrong embedding on accelerators.
        is_known = tf.reduce_all((ids >= 0) & (ids < vocab_size))
        with tf.control_dependencies([tf.debugging.Assert(is_known, ["an id is not in the vocabulary"])]):
            return {**batch, INPUT_IDS: tf.identity(ids)}

    return Corpus(
        files=tuple(file for file, count in zip(files, counts, strict=True) if count),  # an empty shard gives nothing
        num_examples=tuple(filter(None, counts)),
        parse=parse,
        padding=records.padding_example(layout, length),
        on_damaged_record=config.data.on_damaged_record,
    )
