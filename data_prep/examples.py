"""Turns units into examples: documents to sentences, sentences to tokens, tokens to examples.

Both drivers run this, in any number of processes. A hash of the seed and the text of a document determines the split of
the data, the draws for its segments and the positions in the shuffle. Its file, the number of processes, the order of
work and the machine have no influence. So a copy of a document gives the same examples in the same shard, where
duplicates are dropped, and the splits never share a document.
"""

import functools
import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, count, pairwise

import numpy as np

from data_prep.documents import Document, segment_documents
from data_prep.groups import grouped
from data_prep.near_duplicates import SIGNATURES, signatures_of
from data_prep.segments import CUT_DOCUMENT, CutDocument
from data_prep.settings import BuildSettings
from data_prep.store import ENTRY, ExampleBatch, Portion, positions, token_dtype
from data_prep.units import BATCH_CHARACTERS, Unit, read_batches
from electra_tf.data.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT
from electra_tf.text.vocabulary import TextSettings, Vocabulary

# 84 of 44,460 paragraphs of Wikipedia are longer. Chinese without spaces then runs at 6 MB/s, the worst text at 3 MB/s.
_WINDOW_CHARACTERS = 2048

# The language behind the code of a Wikipedia, where sentencex does not know it, as it does of als or be-x-old. For
# Norwegian it has no rules and would take the English ones; most Norwegian abbreviations are also Danish.
_RULES_OF = {"simple": "en", "no": "da", "nb": "da", "nn": "da"}

_OTHER_SPACE = re.compile(r"[^\S ]")


class SentenceSegmenter:
    """Segments paragraphs with the Wikimedia Foundation's sentencex (Rust, abbreviations of many languages).

    Only white space at the ends of sentences is lost. Compared on the 49 hard paragraphs of
    tests/fixtures/hard_sentences.txt (abbreviations, initials, quotations, decimals, ellipses; 22 languages): precision
    and recall of boundaries, and speed on one core with English Wikipedia:

        sentencex 1.0.32                                   0.93  0.96   109 MB/s
        pysbd 0.3.4                                        0.83  0.93   0.3
        blingfire 0.1.8 (no release since 2021)            0.87  0.74    19
        tensorflow_text 2.20.1 StateBasedSentenceBreaker   0.37  0.93   2.6

    Two workarounds are needed. Some text takes quadratic time (opening quotation marks, Chinese and Hindi without
    spaces: 26 s for 262,144 characters), so one call gets at most `_WINDOW_CHARACTERS`. sentencex panics at a
    multi-byte space next to an initial, so it only gets plain spaces (then 400,000 random strings of hard characters
    cause no panic).

    Args of the constructor:
        mode: "line": a line is a sentence. "split": lines are split. "auto": split if the document has paragraphs.
        language: code of a Wikipedia such as "en", "simple", "zh-min-nan" or, as dumps are named, "zh_min_nan", for
            abbreviations and full stops. sentencex applies its English rules to unknown languages.
    """

    def __init__(self, mode: str, language: str) -> None:
        self._mode = mode
        self._language = _RULES_OF.get(language, language.replace("_", "-"))

    def splits(self, document: Document) -> bool:
        """Whether the lines of a document are split."""
        return self._mode == "split" or (self._mode == "auto" and document.has_paragraphs)

    def sentences(self, document: Document) -> list[str]:
        """Returns the sentences of a document, stripped, without blank ones."""
        if not self.splits(document):
            return document.lines
        stripped = (piece.strip() for paragraph in document.lines for piece in self._cut(paragraph))
        return [sentence for sentence in stripped if sentence]

    def _cut(self, paragraph: str) -> list[str]:
        """Cuts a paragraph into pieces whose concatenation is the paragraph."""
        pieces: list[str] = []
        begin = 0
        while len(paragraph) - begin > _WINDOW_CHARACTERS:
            window = paragraph[begin : begin + _WINDOW_CHARACTERS]
            complete = self._segment(window)[:-1]  # the last sentence may continue after the window
            if not complete:
                complete = [window[: window.rfind(" ") + 1] or window]
            pieces += complete
            begin += sum(map(len, complete))
        return pieces + self._segment(paragraph[begin:])

    def _segment(self, text: str) -> list[str]:
        import sentencex

        # " " is the only printable white space.
        plain = text if text.isprintable() else _OTHER_SPACE.sub(" ", text)
        try:
            pieces = sentencex.segment(self._language, plain)
        except BaseException as error:
            # A panic of the library at one paragraph must not end a long build. The exception for a panic in Rust is
            # not an `Exception` and cannot be imported: only its name identifies it.
            if type(error).__name__ != "PanicException":
                raise
            return [text]
        if plain is text:
            return pieces
        return [text[begin:end] for begin, end in pairwise(accumulate(map(len, pieces), initial=0))]


def document_hash(seed: int, lines: Sequence[str]) -> bytes:
    """Hashes a seed and a document's lines (without line ends), the same on every machine."""
    hasher = hashlib.blake2b(f"{seed}\0".encode(), digest_size=32, person=b"document")
    hasher.update("\n".join(lines).encode())
    return hasher.digest()


def place_of(digest: bytes) -> int:
    """Returns the place of a document among all documents, uniform in [0, 2**64): held-out ones are first."""
    return int.from_bytes(digest[:8], "little")


def is_held_out(digest: bytes, held_out_fraction: float) -> bool:
    """Whether a document is held out; true for the fraction `held_out_fraction` of all hashes."""
    return place_of(digest) < held_out_fraction * 2**64


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
    documents: Iterable[tuple[bytes, Sequence[int], bool]],
    token_ids: np.ndarray,
    cut_document: CutDocument,
    max_seq_length: int,
    vocabulary: Vocabulary,
) -> ExampleBatch:
    """Cuts the tokens of documents into examples.

    Args:
        documents: the hash and the row splits of each document, which has tokens, and whether its lines were split;
            see `document_hash` and `segments.carried_segments`.
        token_ids: the ids of all documents, [num_tokens].
        cut_document: one of `CUT_DOCUMENT`.
    """
    cls_range, sep_range = ((len(token_ids) + i, len(token_ids) + i + 1) for i in (0, 1))
    ranges, first_ends, ends = [], [0], [0]  # ends are numbers of ranges
    keys, is_first, of_document = [], [], []
    for digest, row_splits, is_split in documents:
        segments = cut_document(row_splits, max_seq_length, random_source(digest))
        is_first.append(True)
        for (first, second), key in zip(segments, sort_keys(digest), strict=False):
            ranges += (cls_range, *first, sep_range)
            first_ends.append(len(ranges))
            if second:
                ranges += (*second, sep_range)
            ends.append(len(ranges))
            keys.append(key)
        is_first += [False] * (len(keys) - len(is_first))
        of_document += [place_of(digest) & ~1 | is_split] * (len(keys) - len(of_document))
    begins, range_ends = np.fromiter(chain.from_iterable(ranges), np.int64, 2 * len(ranges)).reshape(-1, 2).T
    lengths = range_ends - begins
    num_tokens = np.cumsum(np.append(0, lengths))  # of all ranges before a range
    entries = np.empty(len(keys), ENTRY)
    entries["key"], entries["is_first"], entries["begin"] = keys, is_first, num_tokens[ends[:-1]]
    entries["document"] = of_document
    entries["num_tokens"] = num_tokens[ends[1:]] - num_tokens[ends[:-1]]
    entries["num_first"] = num_tokens[first_ends[1:]] - num_tokens[ends[:-1]]
    with_special = np.append(token_ids, (vocabulary.cls_id, vocabulary.sep_id)).astype(token_dtype(vocabulary.size))
    return ExampleBatch(entries, with_special[positions(begins, lengths)])


@functools.lru_cache(maxsize=1)
def tokenize_function(vocabulary: Vocabulary, settings: TextSettings) -> Callable:
    """Returns `Tokenizer.tokenize`, as a graph if it can be one, once per process: tracing it takes a second."""
    from data_prep.tensorflow_setup import restrain_tensorflow

    tf = restrain_tensorflow()
    from electra_tf.text.kinds import create_tokenizer

    tokenizer = create_tokenizer(vocabulary, settings)
    if not tokenizer.runs_in_graphs:
        return tokenizer.tokenize
    # A graph takes half the time of single ops. Without autograph, which it does not need, tracing takes half the time.
    return tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)


def unit_examples(unit: Unit, settings: BuildSettings, vocabulary: Vocabulary) -> Iterator[Portion]:
    """Yields the examples of a unit's documents, and what was read and left out. Raises: UserError: see `read_unit`."""
    tokenize = tokenize_function(vocabulary, settings.text_settings)
    segmenter = SentenceSegmenter(settings.sentences, settings.language)
    cut_document = CUT_DOCUMENT[settings.examples]
    for documents, counts in read_batches(unit, settings):
        sentences = [segmenter.sentences(document) for document in documents]
        sentences = segment_documents(documents, sentences, settings.segmenter, counts)
        lines = [line for lines in sentences for line in vocabulary.in_context(lines)]
        flat_ids, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        # A single document may be much longer than a batch.
        for some_lines in grouped(lines, len, 2 * BATCH_CHARACTERS):
            ragged = tokenize(some_lines)
            flat_ids.append(ragged.flat_values.numpy())
            lengths.append(ragged.row_lengths().numpy())
        token_ids, row_splits = np.concatenate(flat_ids), np.cumsum(np.concatenate(lengths)).tolist()
        counts.num_tokens_read += len(token_ids)
        counts.num_unknown_tokens += int(np.count_nonzero(token_ids == vocabulary.unk_id))
        by_split: dict[str, list[tuple[bytes, list[int], bool]]] = defaultdict(list)
        ends = accumulate(map(len, sentences), initial=0)
        for document, (begin, end) in zip(documents, pairwise(ends), strict=True):
            rows = row_splits[begin : end + 1]
            if rows[0] == rows[-1]:
                counts.num_documents_without_tokens += 1
                continue
            digest = document_hash(settings.seed, document.lines)
            split = HELD_OUT_SPLIT if is_held_out(digest, settings.held_out_fraction) else TRAIN_SPLIT
            by_split[split].append((digest, rows, segmenter.splits(document)))
        counts.num_tokens_dropped += len(token_ids)
        batches, signatures = {}, []
        for split, of_split in by_split.items():
            batch = cut_documents(of_split, token_ids, cut_document, settings.max_seq_length, vocabulary)
            batches[split] = batch
            counts.split_documents[split] += len(of_split)
            counts.split_record_bytes[split] += batch.num_record_bytes
            counts.num_tokens_dropped -= batch.num_text_tokens
            if settings.near_duplicates:
                numbers = batch.entries["document"][batch.entries["is_first"]].tolist()
                signatures.append(signatures_of(numbers, [token_ids[rows[0] : rows[-1]] for _, rows, _ in of_split]))
        if signatures:
            batches[SIGNATURES] = ExampleBatch.concatenate(signatures)
        yield Portion(batches, counts)
