"""Work units to serialized examples: the part of the build that handles each document on its own.

The local builder and the Beam pipeline both run it, in any number of processes. A document is identified by the hash of
its text and the seed. Its split, its segments and the positions of its examples in the shuffle follow from this hash
alone: not from its file, the number of processes, the order of work, or the machine. So a copy of a document gives the
same examples in the same shard, where one of each is dropped, and never stands in both splits.
"""

import functools
import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from data_prep.readers.documents import Document, ReadCounts, clean_document
from data_prep.segments import Segmenter, draw_target_length
from data_prep.sentences import SentenceSplitter
from data_prep.work_units import WorkUnit, read_unit
from electra_tf.text.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT, DatasetSettings
from electra_tf.text.vocabulary import Vocabulary

Item = TypeVar("Item")

# Characters that the tokenizer gets at once: many enough to hide the cost of a call, few enough for the cache.
_BATCH_CHARACTERS = 2**18


def document_hash(seed: int, lines: Sequence[str]) -> bytes:
    """A stable hash of a seed and a document's text.

    Args:
        lines: without line ends. Equal lines give equal hashes; the same text split elsewhere does not.
    """
    hasher = hashlib.blake2b(f"{seed}\0".encode(), digest_size=32, person=b"document")
    hasher.update("\n".join(lines).encode())
    return hasher.digest()


def is_held_out(digest: bytes, held_out_fraction: float) -> bool:
    """Whether a document is held out, which has the probability `held_out_fraction`."""
    return int.from_bytes(digest[:8], "little") < held_out_fraction * 2**64


def random_source(digest: bytes) -> random.Random:
    """The generator of all random draws for a document's segments."""
    return random.Random(int.from_bytes(digest[8:24], "little"))


def sort_key(digest: bytes, example_index: int) -> int:
    """The position of a document's example in the global shuffle: uniform in [0, 2**64)."""
    key = hashlib.blake2b(digest + example_index.to_bytes(8, "little"), digest_size=8, person=b"example").digest()
    return int.from_bytes(key, "little")


class Example(NamedTuple):
    """One example on its way to a shard.

    Attributes:
        split: "train" or "held_out".
        key: its position in the global shuffle, uniform in [0, 2**64).
        record: a serialized tf.train.Example.
        num_tokens: with [CLS] and [SEP]; `num_text_tokens` without.
        is_first: it is the first example of its document; counting these counts documents.
    """

    split: str
    key: int
    record: bytes
    num_tokens: int
    num_text_tokens: int
    is_first: bool


@functools.lru_cache(maxsize=1)
def _tokenize_function(vocabulary: Vocabulary, lower_case: bool, strip_accents: bool) -> Callable:
    """`BertTokenizer.tokenize` as a graph. It takes a second to make: the builds and threads of a process share it."""
    from data_prep.tensorflow_setup import restrained_tensorflow

    tf = restrained_tensorflow()
    from electra_tf.text.tokenizer import BertTokenizer

    tokenizer = BertTokenizer(vocabulary, lower_case, strip_accents)
    # Called op by op, Python's overhead would double the time. Without autograph, which has nothing to convert here,
    # tracing takes half the time.
    return tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)


class ExampleBuilder:
    """Turns work units into examples."""

    def __init__(self, settings: DatasetSettings, vocabulary: Vocabulary):
        self._settings = settings
        self._vocabulary = vocabulary
        self._sentence_splitter = SentenceSplitter(settings.sentences, settings.language)
        self._tokenize = _tokenize_function(vocabulary, settings.lower_case, settings.strip_accents)
        from electra_tf.text.records import serialize_example

        self._serialize_example = serialize_example

    def examples(self, unit: WorkUnit, counts: ReadCounts) -> Iterator[Example]:
        """The examples of a unit's documents, in order; what is read and left out is added to `counts`.

        Raises: UserError: see `read_unit`.
        """
        documents = read_unit(unit, self._settings, counts)
        cleaned = (clean_document(document, self._settings, counts) for document in documents)
        for batch in _grouped(filter(None, cleaned), lambda document: sum(map(len, document.lines)), _BATCH_CHARACTERS):
            yield from self._examples_of_batch(batch, counts)

    def _examples_of_batch(self, documents: list[Document], counts: ReadCounts) -> Iterator[Example]:
        sentences = [self._sentence_splitter.sentences(document) for document in documents]
        token_ids, row_splits = self._token_ids([line for lines in sentences for line in lines])
        counts.num_tokens_read += len(token_ids)
        counts.num_unknown_tokens += int(np.count_nonzero(token_ids == self._vocabulary.unk_id))
        ids = token_ids.tolist()
        ends = itertools.accumulate(map(len, sentences), initial=0)
        for document, (begin, end) in zip(documents, itertools.pairwise(ends), strict=True):
            rows = row_splits[begin : end + 1]
            if rows[0] < rows[-1]:
                yield from self._examples_of_document(document, ids, rows, counts)
            else:
                counts.num_documents_without_tokens += 1

    def _token_ids(self, lines: list[str]) -> tuple[np.ndarray, list[int]]:
        """The ids of all lines, concatenated, and their row splits."""
        flat_ids, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        # One document may be much longer than a batch.
        for some_lines in _grouped(lines, len, 2 * _BATCH_CHARACTERS):
            ragged = self._tokenize(some_lines)
            flat_ids.append(ragged.flat_values.numpy())
            lengths.append(ragged.row_lengths().numpy())
        return np.concatenate(flat_ids), np.cumsum(np.concatenate(lengths)).tolist()

    def _examples_of_document(
        self, document: Document, ids: list[int], rows: list[int], counts: ReadCounts
    ) -> Iterator[Example]:
        settings = self._settings
        cls, sep = [self._vocabulary.cls_id], [self._vocabulary.sep_id]
        digest = document_hash(settings.seed, document.lines)
        split = HELD_OUT_SPLIT if is_held_out(digest, settings.held_out_fraction) else TRAIN_SPLIT
        source = random_source(digest)
        segmenter = Segmenter(settings.max_seq_length, source, draw_target_length(settings.max_seq_length, source))
        for i, (first, second) in enumerate(segmenter.split_document(ids, rows)):
            input_ids = cls + first + sep + (second + sep if second else [])
            segment_lengths = [len(first) + 2, len(second) + 1] if second else [len(first) + 2]
            record = self._serialize_example(input_ids, segment_lengths)
            num_text_tokens = len(first) + len(second)
            counts.split_documents[split] += i == 0
            counts.split_record_bytes[split] += len(record)
            yield Example(split, sort_key(digest, i), record, len(input_ids), num_text_tokens, i == 0)


def _grouped(items: Iterable[Item], num_characters_of: Callable[[Item], int], enough: int) -> Iterator[list[Item]]:
    """Lists of items that have at least `enough` characters together; the last list may have fewer."""
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
