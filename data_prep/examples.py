"""Work units to serialized examples: all of the build that happens to a document on its own.

The local builder and the Beam pipeline both run this, in as many processes as they like.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np

from data_prep import identity
from data_prep.counts import Counts
from data_prep.hygiene import HygieneOptions, clean_document
from data_prep.inputs import WorkUnit, read_unit
from data_prep.readers.documents import Document, ReaderOptions
from data_prep.segments import Segmenter, draw_target_length
from data_prep.sentences import SentenceSplitter
from electra_tf.text.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT
from electra_tf.text.vocabulary import Vocabulary

# Characters that the tokenizer gets at once: the cost of a call vanishes, its intermediate tensors stay in the cache.
_BATCH_CHARACTERS = 2**18


@dataclass(frozen=True)
class ExampleSettings:
    """All that shapes an example, apart from the text.

    Attributes:
        max_seq_length: S, most tokens in an example, [CLS] and [SEP] included.
        held_out_fraction: part of the documents, in [0, 1), that goes to the held-out split.
        sentences, language: see `SentenceSplitter`.
    """

    vocabulary: Vocabulary
    lower_case: bool
    strip_accents: bool
    max_seq_length: int
    seed: int
    held_out_fraction: float
    reader: ReaderOptions
    hygiene: HygieneOptions
    sentences: str
    language: str


class Example(NamedTuple):
    """One example on its way to a shard.

    Attributes:
        split: "train" or "held_out".
        key: its place in the global shuffle, uniform in [0, 2**64).
        record: a serialized tf.train.Example.
        num_tokens: with [CLS] and [SEP]; `num_text_tokens` without.
        is_first: of its document: so many there are, so many documents.
    """

    split: str
    key: int
    record: bytes
    num_tokens: int
    num_text_tokens: int
    is_first: bool


class ExampleBuilder:
    """Reads work units and gives their examples; one for each process, as it holds a tokenizer."""

    def __init__(self, settings: ExampleSettings):
        tf = restrained_tensorflow()
        from electra_tf.text.records import serialize_example
        from electra_tf.text.tokenizer import BertTokenizer

        self.settings = settings
        self._sentence_splitter = SentenceSplitter(settings.sentences, settings.language)
        self._tokenizer = BertTokenizer(settings.vocabulary, settings.lower_case, settings.strip_accents)
        # A graph: op by op, Python's part in the calls costs as much as the tokens. Autograph has nothing to convert
        # here; without it the graph is made in half the time.
        signature = [tf.TensorSpec([None], tf.string)]
        self._tokenize = tf.function(self._tokenizer.tokenize, input_signature=signature, autograph=False)
        self._serialize_example = serialize_example

    def examples(self, unit: WorkUnit, counts: Counts) -> Iterator[Example]:
        """The examples of a unit's documents, in order.

        Args:
            counts: what is read and left out is added here, except `num_bytes`.
        Raises: UserError: a file cannot be read, or is not what its format says.
        """
        settings = self.settings
        documents = read_unit(unit, settings.reader, counts.reading)
        cleaned = (clean_document(document, settings.hygiene, counts.hygiene) for document in documents)
        for batch in _batches(document for document in cleaned if document is not None):
            yield from self._examples_of_batch(batch, counts)

    def _examples_of_batch(self, documents: list[Document], counts: Counts) -> Iterator[Example]:
        sentences = [self._sentence_splitter.sentences(document) for document in documents]
        token_ids, row_splits = self._token_ids([line for lines in sentences for line in lines])
        counts.num_tokens_read += len(token_ids)
        counts.num_unknown_tokens += int(np.count_nonzero(token_ids == self.settings.vocabulary.unk_id))
        ids = token_ids.tolist()
        first_line = 0
        for document, lines in zip(documents, sentences, strict=True):
            end_line = first_line + len(lines)
            rows = row_splits[first_line : end_line + 1]
            if rows[0] < rows[-1]:
                yield from self._examples_of_document(document, ids, rows)
            else:
                counts.num_documents_without_tokens += 1
            first_line = end_line

    def _token_ids(self, lines: list[str]) -> tuple[np.ndarray, list[int]]:
        """All lines' ids in one, and where each line's begin. The tokenizer gets no more than it needs at once."""
        flat_ids, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        for some_lines in _in_pieces(lines):
            ragged = self._tokenize(some_lines)
            flat_ids.append(ragged.flat_values.numpy())
            lengths.append(ragged.row_lengths().numpy())
        return np.concatenate(flat_ids), np.cumsum(np.concatenate(lengths)).tolist()

    def _examples_of_document(self, document: Document, ids: list[int], rows: list[int]) -> Iterator[Example]:
        settings = self.settings
        cls, sep = [settings.vocabulary.cls_id], [settings.vocabulary.sep_id]
        digest = identity.document_digest(settings.seed, document.lines)
        split = HELD_OUT_SPLIT if identity.is_held_out(digest, settings.held_out_fraction) else TRAIN_SPLIT
        source = identity.random_source(digest)
        segmenter = Segmenter(settings.max_seq_length, source, draw_target_length(settings.max_seq_length, source))
        for i, (first, second) in enumerate(segmenter.split_document(ids, rows)):
            if second:
                input_ids = cls + first + sep + second + sep
                segment_lengths = [len(first) + 2, len(second) + 1]
            else:
                input_ids = cls + first + sep
                segment_lengths = [len(first) + 2]
            record = self._serialize_example(input_ids, segment_lengths)
            num_text_tokens = len(first) + len(second)
            yield Example(split, identity.sort_key(digest, i), record, len(input_ids), num_text_tokens, i == 0)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Whole documents in batches of at least `_BATCH_CHARACTERS`, as far as there are so many."""
    batch: list[Document] = []
    num_characters = 0
    for document in documents:
        batch.append(document)
        num_characters += sum(map(len, document.lines))
        if num_characters >= _BATCH_CHARACTERS:
            yield batch
            batch, num_characters = [], 0
    if batch:
        yield batch


def _in_pieces(lines: list[str]) -> Iterator[list[str]]:
    """The lines in lists of about `_BATCH_CHARACTERS`: one document may be much longer."""
    begin = num_characters = 0
    for i, line in enumerate(lines):
        num_characters += len(line)
        if num_characters >= 2 * _BATCH_CHARACTERS:
            yield lines[begin : i + 1]
            begin, num_characters = i + 1, 0
    if begin < len(lines):
        yield lines[begin:]


def restrained_tensorflow() -> ModuleType:
    """Imports TensorFlow with one thread, since the processes share the cores, and away from accelerators."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from data_prep.preloaded import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        pass  # a caller in this process has used TensorFlow before us and keeps its own settings
    return tf
