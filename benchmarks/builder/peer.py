"""The builder's work on Hugging Face's tokenizer: a text file to shuffled TFRecord shards.

    python -m benchmarks.builder.peer --input=corpus.txt --vocab_file=vocab.txt --output_dir=out --num_processes=1

Everything but the tokenizer is as simple as possible: plain reading (no cleaning, no search for duplicates), examples
shuffled in memory, nothing to resume. The segment rule, random draws, keys and records are the builder's, so the
examples are equal.

The tokenizer is WordPiece of `tokenizers`, in Rust. With one process its own threads use all cores and tokenize the
next batch while Python cuts this one; with several, each process has a tokenizer with one thread. The output directory
is new. Prints one JSON object: the numbers of examples and of tokens.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command

Documents = list[list[str]]  # each a list of lines
Tokenize = Callable[[list[str]], list[list[int]]]

BATCH_CHARACTERS = 2**20  # enough to keep all threads of the tokenizer busy
_BYTES_PER_SHARD = 8 * 2**20  # the builder's, so that both write as many files
_MAX_CHARACTERS_PER_WORD = 200  # a longer word is [UNK]: the authors' WordpieceTokenizer


class KeyedRecord(NamedTuple):
    """An example; it is sorted by split and key."""

    split: str
    key: int
    record: bytes


class BuildSettings(NamedTuple):
    """What determines the examples, with the defaults of build_pretraining_dataset.py; picklable."""

    vocab_file: str
    max_seq_length: int = 128
    seed: int = 0
    held_out_fraction: float = 0.005


def read_documents(path: str) -> Iterator[list[str]]:
    """Documents as lists of lines; blank lines separate them."""
    with open(path, encoding="utf-8") as file:
        for has_text, lines in itertools.groupby(map(str.strip, file), key=bool):
            if has_text:
                yield list(lines)


def batches_of(documents: Iterable[list[str]]) -> Iterator[Documents]:
    """Whole documents, at least `BATCH_CHARACTERS` at a time."""
    batch: Documents = []
    num_characters = 0
    for document in documents:
        batch.append(document)
        num_characters += sum(map(len, document))
        if num_characters >= BATCH_CHARACTERS:
            yield batch
            batch, num_characters = [], 0
    if batch:
        yield batch


def hugging_face_tokenizer(vocab_file: str) -> Tokenize:
    """BERT's uncased tokenizer in Rust, ids only, without special tokens and offsets."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    vocabulary = WordPiece.read_file(vocab_file)
    model = WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=_MAX_CHARACTERS_PER_WORD)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return lambda lines: [encoding.ids for encoding in tokenizer.encode_batch_fast(lines, add_special_tokens=False)]


class ExampleCutter:
    """Cuts documents into serialized examples by the builder's own rule. Everything used of data_prep is here."""

    def __init__(self, settings: BuildSettings):
        from data_prep import examples, segments
        from electra_tf.text.records import serialize_example
        from electra_tf.text.vocabulary import Vocabulary

        vocabulary = Vocabulary.load(settings.vocab_file)
        self._settings = settings
        self._cls, self._sep = [vocabulary.cls_id], [vocabulary.sep_id]
        self._examples, self._segments, self._serialize_example = examples, segments, serialize_example

    def examples(self, documents: Documents, ids_of_lines: list[list[int]]) -> Iterator[KeyedRecord]:
        """Yields the examples of documents, given the ids of every line of all of them, in order."""
        lines = iter(ids_of_lines)
        for document in documents:
            rows = list(itertools.islice(lines, len(document)))
            if any(rows):
                yield from self._examples_of_document(document, rows)

    def _examples_of_document(self, document: list[str], rows: list[list[int]]) -> Iterator[KeyedRecord]:
        settings, examples, segments = self._settings, self._examples, self._segments
        digest = examples.document_hash(settings.seed, document)
        split = "held_out" if examples.is_held_out(digest, settings.held_out_fraction) else "train"
        source = examples.random_source(digest)
        target_length = segments.draw_target_length(settings.max_seq_length, source)
        segmenter = segments.Segmenter(settings.max_seq_length, source, target_length)
        row_splits = [0, *itertools.accumulate(map(len, rows))]
        pairs = segmenter.split_document(list(itertools.chain(*rows)), row_splits)
        for index, (first, second) in enumerate(pairs):
            input_ids = [*self._cls, *first, *self._sep, *second, *(self._sep if second else [])]
            lengths = [len(first) + 2, len(second) + 1] if second else [len(first) + 2]
            record = self._serialize_example(input_ids, lengths)
            yield KeyedRecord(split, examples.sort_key(digest, index), record)


_tokenize: Tokenize | None = None
_cutter: ExampleCutter | None = None


def start_process(settings: BuildSettings) -> None:
    """Prepares this process for `tokenize` and `cut`."""
    global _tokenize, _cutter
    _tokenize, _cutter = hugging_face_tokenizer(settings.vocab_file), ExampleCutter(settings)


def tokenize(documents: Documents) -> tuple[Documents, list[list[int]]]:
    """The documents with the ids of every line."""
    assert _tokenize is not None
    return documents, _tokenize(list(itertools.chain(*documents)))


def cut(documents: Documents, ids: list[list[int]]) -> tuple[list[KeyedRecord], int]:
    """The examples of documents, and their number of tokens."""
    assert _cutter is not None
    return list(_cutter.examples(documents, ids)), sum(map(len, ids))


def tokenize_and_cut(documents: Documents) -> tuple[list[KeyedRecord], int]:
    return cut(*tokenize(documents))


def results_with_threads(batches: Iterable[Documents]) -> Iterator[tuple[list[KeyedRecord], int]]:
    """The tokenizer, which releases Python's lock, works on the next batch while this one is cut."""
    with ThreadPool(1) as thread:
        for documents, ids in thread.imap(tokenize, batches):
            yield cut(documents, ids)


def results_with_processes(
    batches: Iterable[Documents], settings: BuildSettings, num_processes: int
) -> Iterator[tuple[list[KeyedRecord], int]]:
    """Each process tokenizes with one thread and cuts; batches and records are sent through pipes."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with multiprocessing.get_context("spawn").Pool(num_processes, start_process, (settings,)) as pool:
        yield from pool.imap(tokenize_and_cut, batches)


def write_shards(examples: list[KeyedRecord], output_dir: Path) -> None:
    """Sorts the examples of each split by key and writes them as TFRecord files of about equal size."""
    import tensorflow as tf

    for split in sorted({example.split for example in examples}):
        of_split = sorted(example for example in examples if example.split == split)
        num_shards = -(-sum(len(example.record) for example in of_split) // _BYTES_PER_SHARD)
        for shard in range(num_shards):
            begin, end = (len(of_split) * (shard + side) // num_shards for side in (0, 1))
            with tf.io.TFRecordWriter(str(output_dir / f"{split}-{shard:05d}-of-{num_shards:05d}.tfrecord")) as writer:
                for example in of_split[begin:end]:
                    writer.write(example.record)


def build(settings: BuildSettings, input_file: str, output_dir: Path, num_processes: int) -> dict[str, int]:
    """Builds the data set; returns its counts."""
    batches = batches_of(read_documents(input_file))
    if num_processes == 1:
        start_process(settings)
        results = results_with_threads(batches)
    else:
        results = results_with_processes(batches, settings, num_processes)
    examples, num_tokens = [], 0
    for of_batch, num_tokens_of_batch in results:
        examples += of_batch
        num_tokens += num_tokens_of_batch
    output_dir.mkdir(parents=True)
    write_shards(examples, output_dir)
    return {"num_examples": len(examples), "num_tokens": num_tokens}


def main(arguments: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--input", required=True, metavar="FILE", help="plain text, blank lines between documents")
    parser.add_argument("--vocab_file", required=True, help="BERT's vocab.txt")
    parser.add_argument("--output_dir", required=True, type=Path, help="new directory")
    parser.add_argument("--num_processes", type=int, default=1, help="1: the tokenizer's own threads")
    flags: argparse.Namespace = parser.parse_args(arguments)
    settings = BuildSettings(os.path.abspath(flags.vocab_file))
    os.environ.pop("TOKENIZERS_PARALLELISM", None)  # a user's own setting must not slow a peer down
    return run_command(lambda: print(json.dumps(build(settings, flags.input, flags.output_dir, flags.num_processes))))


if __name__ == "__main__":
    sys.exit(main())
