"""Turns work units into serialized examples, one document at a time.

The local builder and the Beam pipeline both run this, in any number of processes. A hash of the seed and a document's
text determines the split, the segments and the positions in the shuffle. Its file, the number of processes, the order
of work and the machine have no influence. So a copy of a document gives the same examples in the same shard, where
duplicates are dropped, and the splits never share a document.
"""

import functools
import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from data_prep.readers.documents import Document, ReadCounts, clean_document
from data_prep.segments import SPLIT_DOCUMENT
from data_prep.sentences import SentenceSplitter
from data_prep.settings import BuildSettings
from data_prep.work_units import WorkUnit, read_unit
from electra_tf.text.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT
from electra_tf.text.vocabulary import TextSettings, Vocabulary

Item = TypeVar("Item")

# Characters in one call of the tokenizer: enough to hide the cost of the call, few enough for the cache.
_BATCH_CHARACTERS = 2**18


def document_hash(seed: int, lines: Sequence[str]) -> bytes:
    """Hashes a seed and a document's lines (without line ends), the same on every machine."""
    hasher = hashlib.blake2b(f"{seed}\0".encode(), digest_size=32, person=b"document")
    hasher.update("\n".join(lines).encode())
    return hasher.digest()


def is_held_out(digest: bytes, held_out_fraction: float) -> bool:
    """Whether a document is held out; true for the fraction `held_out_fraction` of all hashes."""
    return int.from_bytes(digest[:8], "little") < held_out_fraction * 2**64


def random_source(digest: bytes) -> random.Random:
    """Returns the random generator for a document's segments."""
    return random.Random(int.from_bytes(digest[8:24], "little"))


def sort_key(digest: bytes, example_index: int) -> int:
    """Returns the position of a document's example in the global shuffle: uniform in [0, 2**64)."""
    key = hashlib.blake2b(digest + example_index.to_bytes(8, "little"), digest_size=8, person=b"example").digest()
    return int.from_bytes(key, "little")


class Example(NamedTuple):
    """One serialized example.

    Attributes:
        split: "train" or "held_out".
        key: position in the global shuffle, see `sort_key`.
        record: a serialized tf.train.Example.
        is_first: whether this is the first example of its document; the number of these is the number of documents.
    """

    split: str
    key: int
    record: bytes
    is_first: bool


@functools.lru_cache(maxsize=1)
def _tokenize_function(vocabulary: Vocabulary, settings: TextSettings) -> Callable:
    """Returns `Tokenizer.tokenize` as a graph, once per process: tracing it takes a second."""
    from data_prep.tensorflow_setup import restrained_tensorflow

    tf = restrained_tensorflow()
    from electra_tf.text.tokenizer import create_tokenizer

    tokenizer = create_tokenizer(vocabulary, settings)
    # A graph takes half the time of single ops. Without autograph, which it does not need, tracing takes half the time.
    return tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)


class ExampleBuilder:
    """Turns work units into examples."""

    def __init__(self, settings: BuildSettings, vocabulary: Vocabulary):
        self.settings = settings
        self.vocabulary = vocabulary
        self._sentence_splitter = SentenceSplitter(settings.sentences, settings.language)
        self._tokenize = _tokenize_function(vocabulary, settings.text_settings)
        from electra_tf.text.records import ExampleSerializer

        self._serialize_example = ExampleSerializer()

    def examples(self, unit: WorkUnit, counts: ReadCounts) -> Iterator[Example]:
        """Yields the examples of a unit's documents in order, and adds what was read and left out to `counts`.

        Raises: UserError: see `read_unit`.
        """
        documents = read_unit(unit, self.settings, counts)
        cleaned = (clean_document(document, self.settings, counts) for document in documents)
        for batch in _grouped(filter(None, cleaned), lambda document: sum(map(len, document.lines)), _BATCH_CHARACTERS):
            yield from self._examples_of_batch(batch, counts)

    def _examples_of_batch(self, documents: list[Document], counts: ReadCounts) -> Iterator[Example]:
        sentences = [self._sentence_splitter.sentences(document) for document in documents]
        token_ids, row_splits = self._token_ids([line for lines in sentences for line in lines])
        counts.num_tokens_read += len(token_ids)
        counts.num_unknown_tokens += int(np.count_nonzero(token_ids == self.vocabulary.unk_id))
        ids = token_ids.tolist()
        ends = itertools.accumulate(map(len, sentences), initial=0)
        for document, (begin, end) in zip(documents, itertools.pairwise(ends), strict=True):
            rows = row_splits[begin : end + 1]
            if rows[0] < rows[-1]:
                yield from self._examples_of_document(document, ids, rows, counts)
            else:
                counts.num_documents_without_tokens += 1

    def _token_ids(self, lines: list[str]) -> tuple[np.ndarray, list[int]]:
        """Returns the ids of all lines, concatenated, [num_tokens] int32, and their row splits."""
        flat_ids, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        # A single document may be much longer than a batch.
        for some_lines in _grouped(lines, len, 2 * _BATCH_CHARACTERS):
            ragged = self._tokenize(some_lines)
            flat_ids.append(ragged.flat_values.numpy())
            lengths.append(ragged.row_lengths().numpy())
        return np.concatenate(flat_ids), np.cumsum(np.concatenate(lengths)).tolist()

    def _examples_of_document(
        self, document: Document, ids: list[int], rows: list[int], counts: ReadCounts
    ) -> Iterator[Example]:
        settings = self.settings
        cls, sep = [self.vocabulary.cls_id], [self.vocabulary.sep_id]
        digest = document_hash(settings.seed, document.lines)
        split = HELD_OUT_SPLIT if is_held_out(digest, settings.held_out_fraction) else TRAIN_SPLIT
        segments = SPLIT_DOCUMENT[settings.examples](ids, rows, settings.max_seq_length, random_source(digest))
        num_kept = num_bytes = 0
        for i, (first, second) in enumerate(segments):
            input_ids = cls + first + sep + (second + sep if second else [])
            segment_lengths = [len(first) + 2, len(second) + 1] if second else [len(first) + 2]
            record = self._serialize_example(input_ids, segment_lengths)
            num_kept += len(first) + len(second)
            num_bytes += len(record)
            yield Example(split, sort_key(digest, i), record, i == 0)
        counts.num_tokens_dropped += rows[-1] - rows[0] - num_kept
        counts.split_documents[split] += 1
        counts.split_record_bytes[split] += num_bytes


def _grouped(items: Iterable[Item], num_characters_of: Callable[[Item], int], enough: int) -> Iterator[list[Item]]:
    """Groups items into lists of at least `enough` characters; the last list may have fewer."""
    group: list[Item] = []
    num_characters = 0
    for item in items:
        group.append(item)
        num_characters += num_characters_of(item)
        if num_characters >= enough:
            yield group
            group, num_characters = [], 0
    if group:
        yield group
