"""Opens a pre-training data set, of our or of the authors' builder, on any file system that TensorFlow reads."""

import contextlib
import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.data import records
from electra_tf.data.batch import Batch, PretrainingSettings
from electra_tf.data.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, Manifest, check_matches
from electra_tf.data.masking import MaskingVocabulary
from electra_tf.files import names_in, read_bytes, store_errors
from electra_tf.text.vocabulary import (
    VOCABULARY_FILES,
    StoredTokenizer,
    Vocabulary,
    find_vocabulary_file,
    read_vocabulary_file,
)

_logger = logging.getLogger(__name__)

_AUTHORS_FILES = "pretrain_data.tfrecord"  # how the names begin that the authors' builder gives
_RECORDS_AT_ONCE = 1024  # when records are counted
# In languages with spaces, words have 1.1 to 2.7 tokens on average; what is between two spaces of Japanese, Chinese or
# Thai has more than 5, and whole_word would mask little of it, because it skips the words that are too long.
_MAX_TOKENS_PER_WORD = 4


@contextlib.contextmanager
def damaged_data_reported() -> Iterator[None]:
    """Raises a `UserError` of an input pipeline, which TensorFlow wraps in an error of its own, as a `UserError`."""
    try:
        yield
    except tf.errors.OpError as error:
        described = re.search(r"(?:User|Store)Error: (.*?)\]?$", str(error), re.MULTILINE)
        if described is None:
            raise
        raise UserError(described[1].strip()) from None


@dataclass(frozen=True)
class Corpus:
    """One split of a data set.

    Attributes:
        files: the shards, in a fixed order.
        num_examples: the number of examples in each shard.
        layout: that of the records.
        max_seq_length, vocab_size: the bounds of an example's length and ids.
    """

    files: tuple[str, ...]
    num_examples: tuple[int, ...]
    layout: records.RecordFormat
    max_seq_length: int
    vocab_size: int

    @property
    def total_examples(self) -> int:
        return sum(self.num_examples)

    def parse(self, serialized: tf.Tensor) -> Batch:
        """[B] string of serialized records -> the tensors of `TEXT_TENSORS`, of packed examples also `position_ids`.

        Raises: tf.errors.InvalidArgumentError: when run, if a record is too long or has an id outside the vocabulary.
        """
        if self.layout == "fixed_length":
            batch = records.parse_fixed_length_examples(serialized, self.max_seq_length)
        else:
            batch = records.parse_examples(serialized, self.max_seq_length, self.layout == "packed")
        ids = batch[records.INPUT_IDS]
        # Out-of-range ids would silently read a wrong embedding on accelerators.
        is_known = tf.reduce_all((ids >= 0) & (ids < self.vocab_size))
        directories = ", ".join(dict.fromkeys(map(os.path.dirname, self.files)))
        problem = f"UserError: {directories}: a token id is not in the vocabulary"
        with tf.control_dependencies([tf.debugging.Assert(is_known, [problem])]):
            return {**batch, records.INPUT_IDS: tf.identity(ids)}

    def records(self, shard: tf.Tensor) -> tf.Tensor:
        """The serialized records of the shard `files[shard]` in their order on disk, for a pipeline: [n] string.

        Raises: UserError: when run, if the file is damaged or has another number of records.
        """
        counts = tf.constant(self.num_examples, tf.int64)

        def read(shard: tf.Tensor) -> tf.Tensor:
            dataset = tf.data.TFRecordDataset(tf.constant(self.files)[shard])
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(counts[shard]))
            return dataset.batch(counts[shard]).get_single_element()

        def read_again(shard: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.numpy_function(self._read_again, [shard], tf.string), [None])

        # TensorFlow's errors do not name the file. A graph cannot catch one, but a data set can leave the element out.
        # Python only runs for a damaged shard, because an input thread in Python may block the interpreter's exit.
        source = tf.data.Dataset.from_tensors(shard)
        return source.map(read).ignore_errors().concatenate(source.map(read_again)).take(1).get_single_element()

    def _read_again(self, shard: int) -> npt.NDArray[np.object_]:
        """The records of a shard that could not be read: the error may have been of a moment, as of a network."""
        file, expected = self.files[shard], self.num_examples[shard]
        with store_errors(file, "cannot be read"):
            found = list(tf.data.TFRecordDataset(file).as_numpy_iterator())
        if len(found) != expected:
            raise UserError(f"{file} holds {len(found)} records, expected {expected}; copy or build the data set again")
        _logger.warning("%s could not be read, and then it could: its disk or network may fail", file)
        return np.array(found, object)


@dataclass(frozen=True)
class PretrainingData:
    """A data set that fits a run, or several as one.

    Attributes:
        data_hash: a hash that all copies of the data set share: of the manifest, which has the checksums of the shards,
            or of the names of the authors' files.
        held_out: None if the data set has no such split.
        token_counts: how often each vocabulary entry occurs in the training split, [V] int64; None in a data set of
            the authors' builder.
        hold_out: `Manifest.hold_out`; None in a data set of the authors' builder.
        name, share: in a mixture, see `electra_tf.data.mixture`: the name of a source, and its share of the examples.
        parts: the sources of a mixture.
    """

    directory: str
    data_hash: str
    vocabulary: Vocabulary
    tokenizer: StoredTokenizer
    train: Corpus
    held_out: Corpus | None = None
    token_counts: npt.NDArray[np.int64] | None = None
    hold_out: dict[str, Any] | None = None
    name: str = ""
    share: float = 1.0
    parts: tuple["PretrainingData", ...] = ()

    @property
    def is_packed(self) -> bool:
        """Whether an example may have several sequences."""
        return self.train.layout == "packed"

    @property
    def sources(self) -> tuple["PretrainingData", ...]:
        """The data sets that the examples are from: of a data set itself, a mixture of one."""
        return self.parts or (self,)

    @property
    def masking_vocabulary(self) -> MaskingVocabulary:
        vocabulary, unigram_losses = self.vocabulary, None
        if self.token_counts is not None:  # a token that the text lacks counts as seen once: all losses are finite
            counts = self.text_token_counts("the unigram loss").astype(np.float64)
            unigram_losses = (np.log(counts.sum()) - np.log(np.maximum(counts, 1.0))).astype(np.float32)
        return MaskingVocabulary(
            vocabulary.cls_id,
            vocabulary.sep_id,
            vocabulary.mask_id,
            vocabulary.size,
            is_continuation=~np.array(vocabulary.begins_word()),
            token_counts=self.token_counts,
            unigram_losses=unigram_losses,
        )

    def text_token_counts(self, purpose: str) -> npt.NDArray[np.int64]:
        """How often each vocabulary entry occurs in the training split: [V] int64, 0 for [PAD], [CLS], [SEP], [MASK].

        Raises: UserError: the data set has no counts; `purpose` names the setting that needs them.
        """
        if self.token_counts is None:
            raise UserError(
                f"{purpose} needs token counts, and {self.directory} has none; build the data set with "
                "electra-tf build-data"
            )
        vocabulary, counts = self.vocabulary, self.token_counts.copy()
        counts[[vocabulary.pad_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id]] = 0
        return counts

    @property
    def tokens_per_word(self) -> float:
        """The mean in the training split; 1 if the data set has no counts."""
        if self.token_counts is None:
            return 1.0
        counts = self.text_token_counts("the number of tokens per word")
        return float(counts.sum()) / max(int(counts @ np.array(self.vocabulary.begins_word(), np.int64)), 1)


def open_data(data_dir: str | os.PathLike[str], config: PretrainingSettings) -> PretrainingData:
    """Opens the output of `electra-tf build-data` or of the authors' builder, in a directory or at a URL.

    Raises: UserError: there is no data set; its vocabulary, sequence length or schema does not fit the run; or the
        run's masking needs counts of tokens, which the data set lacks, or words, and these are whole clauses.
    """
    directory = str(data_dir)
    vocab_file, content = find_vocabulary_file(directory)
    if config.data.vocab_file:
        vocab_file, content = config.data.vocab_file, read_vocabulary_file(config.data.vocab_file)
    if content is None:
        raise UserError(
            f"data_dir={directory} holds no {' or '.join(VOCABULARY_FILES)}: build a data set, or finish this one, by "
            "electra-tf build-data; for the authors' records give data.vocab_file=PATH; a mixture is "
            "DIR:WEIGHT,DIR:WEIGHT"
        )
    vocabulary = Vocabulary.from_bytes(content, vocab_file)
    if vocabulary.size != (num_rows := config.encoder.vocab_size):
        problem = f"{vocab_file} has {vocabulary.size} entries, encoder.vocab_size is {num_rows}"
        advice = f"give encoder.vocab_size={vocabulary.size}"
        if not vocabulary.fits(num_rows):
            raise UserError(f"{problem}; {advice}")
        problem += f": rows of the word table from {vocabulary.size} on are never read or predicted"
        _logger.warning("%s; unless the model that the run starts from has them, %s", problem, advice)
    manifest, max_seq_length = read_bytes(os.path.join(directory, MANIFEST_FILE)), config.data.max_seq_length
    if manifest is None:
        data = _open_authors(directory, vocabulary, max_seq_length)
    else:
        data = _open_ours(directory, vocabulary, manifest, max_seq_length)
    if config.masking.scheme == "rare_tokens":
        data.text_token_counts("masking.scheme rare_tokens")
    if config.masking.scheme == "whole_word" and (mean := data.tokens_per_word) > _MAX_TOKENS_PER_WORD:
        raise UserError(
            f"masking.scheme is whole_word, but the words of {directory}, all text between two spaces, have {mean:.1f} "
            f"tokens on average, expected at most {_MAX_TOKENS_PER_WORD}; give masking.scheme=span, or uniform"
        )
    return data


def _open_ours(directory: str, vocabulary: Vocabulary, manifest_content: bytes, max_seq_length: int) -> PretrainingData:
    manifest = Manifest.from_bytes(manifest_content, os.path.join(directory, MANIFEST_FILE))
    check_matches(manifest, vocabulary=vocabulary, max_seq_length=max_seq_length)
    corpora: dict[str, Corpus] = {}
    layout: records.RecordFormat = "packed" if manifest.examples == "pack" else "compact"
    for name, split in manifest.splits.items():
        shards = {os.path.join(directory, shard.file): shard for shard in split.shards}
        for file, shard in shards.items():
            # Before training starts; a flipped byte is noticed when the shard is read.
            with store_errors(file, "cannot be read"):
                size = tf.io.gfile.stat(file).length
            if size != shard.num_bytes:
                raise UserError(
                    f"{file} has {size} bytes, {MANIFEST_FILE} has {shard.num_bytes}; copy or build the data set again"
                )
        if counts := {file: shard.num_examples for file, shard in shards.items() if shard.num_examples}:
            corpora[name] = Corpus(tuple(counts), tuple(counts.values()), layout, max_seq_length, vocabulary.size)
    return PretrainingData(
        directory,
        data_hash=hashlib.sha256(manifest_content).hexdigest(),
        vocabulary=vocabulary,
        tokenizer=StoredTokenizer(vocabulary.content, manifest.text_settings),
        train=corpora[TRAIN_SPLIT],
        held_out=corpora.get(HELD_OUT_SPLIT),
        token_counts=np.array(manifest.token_counts, np.int64),
        hold_out=manifest.hold_out,
    )


def _open_authors(directory: str, vocabulary: Vocabulary, max_seq_length: int) -> PretrainingData:
    """Opens the files of the authors' builder, which writes no manifest."""
    names = sorted(name for name in names_in(directory) if name.startswith(_AUTHORS_FILES))
    _require_all_shards(directory, names)
    found = {name: _inspect(os.path.join(directory, name), max_seq_length, vocabulary.mask_id) for name in names}
    filled = {os.path.join(directory, name): count for name, (count, _) in found.items() if count}
    if not filled:
        raise UserError(
            f"{directory} holds neither {MANIFEST_FILE} nor an example in {_AUTHORS_FILES}*; build a data set with "
            "electra-tf build-data"
        )
    if len(filled) < len(found):
        _logger.warning(
            "warning: %s: no records in %s; their builder leaves shards empty of which a process had no text, but an"
            " interrupted copy does, too",
            directory,
            list_briefly(name for name, (count, _) in found.items() if not count),
        )
    layout = next(layout for _, layout in found.values() if layout)
    described = "\n".join(f"{name} {count}" for name, (count, _) in found.items())
    return PretrainingData(
        directory,
        data_hash=hashlib.sha256(described.encode()).hexdigest(),
        vocabulary=vocabulary,
        tokenizer=StoredTokenizer(vocabulary.content),  # the authors' builder does not record its settings
        train=Corpus(tuple(filled), tuple(filled.values()), layout, max_seq_length, vocabulary.size),
    )


def _require_all_shards(directory: str, names: Sequence[str]) -> None:
    """Raises: UserError: of files whose names end in -I-of-N, there are not exactly those from 0 to N - 1."""
    found = Counter(re.sub(r"-0*(\d+)-of-0*(\d+)$", r"-\1-of-\2", name) for name in names)
    parsed = filter(None, (re.fullmatch(r"(.*)-\d+-of-(\d+)", name) for name in found))
    every = (f"{match[1]}-{index}-of-{match[2]}" for match in parsed for index in range(int(match[2])))
    wanted = Counter(dict.fromkeys(every, 1))
    if wanted and (missing := ", ".join(wanted - found)) + (surplus := ", ".join(found - wanted)):
        raise UserError(f"{directory}: shards are missing ({missing:.200}) or surplus ({surplus:.200}); copy it again")


def _inspect(file: str, max_seq_length: int, mask_id: int) -> tuple[int, records.RecordFormat | None]:
    """The number of records in a file, and the layout of the first one; None for an empty file.

    Raises: UserError: the file is damaged, or its records have another layout or sequence length, or are masked.
    """
    with store_errors(file, "cannot be read"):
        count = sum(len(some) for some in tf.data.TFRecordDataset(file).batch(_RECORDS_AT_ONCE))
        if not count:
            return 0, None
        first = next(tf.data.TFRecordDataset(file).as_numpy_iterator())
    layout, length = records.record_format(first, file, mask_id)
    if layout == "fixed_length" and length != max_seq_length:
        raise UserError(
            f"{file} has sequences of length {length}, data.max_seq_length is {max_seq_length}; make them equal"
        )
    return count, layout
