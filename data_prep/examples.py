"""Turns work units into examples.

The local builder and the Beam pipeline both run this, in any number of processes. A hash of the seed and the text of a
document determines the split, the draws for its segments and the positions in the shuffle. Its file, the number of
processes, the order of work and the machine have no influence. So a copy of a document gives the same examples in the
same shard, where duplicates are dropped, and the splits never share a document.
"""

import functools
import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, count, pairwise
from typing import TypeVar

import numpy as np

from data_prep.counts import ReadCounts
from data_prep.example_batch import ENTRY, ExampleBatch, positions, token_dtype
from data_prep.readers.documents import Document, clean_document
from data_prep.segments import SPLIT_DOCUMENT, SplitDocument
from data_prep.sentences import SentenceSplitter
from data_prep.settings import BuildSettings
from data_prep.units import Unit, read_unit
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


def sort_keys(digest: bytes) -> Iterator[int]:
    """Yields the positions of a document's examples in the global shuffle: uniform in [0, 2**64)."""
    of_document = hashlib.blake2b(digest, digest_size=8, person=b"example")
    for example_index in count():
        hasher = of_document.copy()
        hasher.update(example_index.to_bytes(8, "little"))
        yield int.from_bytes(hasher.digest(), "little")


def cut_documents(
    documents: Iterable[tuple[bytes, Sequence[int]]],
    token_ids: np.ndarray,
    split_document: SplitDocument,
    max_seq_length: int,
    vocabulary: Vocabulary,
) -> ExampleBatch:
    """Cuts the tokens of documents into examples.

    Args:
        documents: the hash and the row splits of each document, which has tokens; see `document_hash` and
            `segments.carried_segments`.
        token_ids: the ids of all documents, [num_tokens].
        split_document: one of `SPLIT_DOCUMENT`.
    """
    cls_range, sep_range = ((len(token_ids) + i, len(token_ids) + i + 1) for i in (0, 1))
    ranges, first_ends, ends = [], [0], [0]  # ends are numbers of ranges
    keys, is_first = [], []
    for digest, row_splits in documents:
        segments = split_document(row_splits, max_seq_length, random_source(digest))
        is_first.append(True)
        for (first, second), key in zip(segments, sort_keys(digest), strict=False):
            ranges += (cls_range, *first, sep_range)
            first_ends.append(len(ranges))
            if second:
                ranges += (*second, sep_range)
            ends.append(len(ranges))
            keys.append(key)
        is_first += [False] * (len(keys) - len(is_first))
    begins, range_ends = np.fromiter(chain.from_iterable(ranges), np.int64, 2 * len(ranges)).reshape(-1, 2).T
    lengths = range_ends - begins
    num_tokens = np.cumsum(np.append(0, lengths))  # of all ranges before a range
    entries = np.empty(len(keys), ENTRY)
    entries["key"], entries["is_first"], entries["begin"] = keys, is_first, num_tokens[ends[:-1]]
    entries["num_tokens"] = num_tokens[ends[1:]] - num_tokens[ends[:-1]]
    entries["num_first"] = num_tokens[first_ends[1:]] - num_tokens[ends[:-1]]
    with_special = np.append(token_ids, (vocabulary.cls_id, vocabulary.sep_id)).astype(token_dtype(vocabulary.size))
    return ExampleBatch(entries, with_special[positions(begins, lengths)])


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
        from electra_tf.text.records import num_serialized_bytes

        self._num_serialized_bytes = num_serialized_bytes

    def examples(self, unit: Unit, counts: ReadCounts) -> Iterator[tuple[str, ExampleBatch]]:
        """Yields the examples of a unit's documents, each batch with its split.

        What was read and left out is added to `counts`. Raises: UserError: see `read_unit`.
        """
        documents = read_unit(unit, self.settings, counts)
        cleaned = (clean_document(document, self.settings, counts) for document in documents)
        for batch in _grouped(filter(None, cleaned), lambda document: sum(map(len, document.lines)), _BATCH_CHARACTERS):
            yield from self._examples_of_batch(batch, counts)

    def _examples_of_batch(self, documents: list[Document], counts: ReadCounts) -> Iterator[tuple[str, ExampleBatch]]:
        settings = self.settings
        sentences = [self._sentence_splitter.sentences(document) for document in documents]
        token_ids, row_splits = self._token_ids([line for lines in sentences for line in lines])
        counts.num_tokens_read += len(token_ids)
        counts.num_unknown_tokens += int(np.count_nonzero(token_ids == self.vocabulary.unk_id))
        by_split: dict[str, list[tuple[bytes, list[int]]]] = defaultdict(list)
        ends = accumulate(map(len, sentences), initial=0)
        for document, (begin, end) in zip(documents, pairwise(ends), strict=True):
            rows = row_splits[begin : end + 1]
            if rows[0] == rows[-1]:
                counts.num_documents_without_tokens += 1
                continue
            digest = document_hash(settings.seed, document.lines)
            split = HELD_OUT_SPLIT if is_held_out(digest, settings.held_out_fraction) else TRAIN_SPLIT
            by_split[split].append((digest, rows))
        counts.num_tokens_dropped += len(token_ids)
        for split, of_split in by_split.items():
            split_document = SPLIT_DOCUMENT[settings.examples]
            batch = cut_documents(of_split, token_ids, split_document, settings.max_seq_length, self.vocabulary)
            entries = batch.entries
            num_bytes = self._num_serialized_bytes(batch.token_ids, entries["num_tokens"], entries["num_first"])
            counts.split_documents[split] += len(of_split)
            counts.split_record_bytes[split] += num_bytes
            counts.num_tokens_dropped -= batch.num_text_tokens
            yield split, batch

    def _token_ids(self, lines: list[str]) -> tuple[np.ndarray, list[int]]:
        """Returns the ids of all lines, concatenated, [num_tokens] int32, and their row splits."""
        flat_ids, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        # A single document may be much longer than a batch.
        for some_lines in _grouped(lines, len, 2 * _BATCH_CHARACTERS):
            ragged = self._tokenize(some_lines)
            flat_ids.append(ragged.flat_values.numpy())
            lengths.append(ragged.row_lengths().numpy())
        return np.concatenate(flat_ids), np.cumsum(np.concatenate(lengths)).tolist()


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
