"""The builder's work on Hugging Face's tokenizer: a text file to shuffled TFRecord shards.

    python -m benchmarks.builder_peer --input=corpus.txt --vocab_file=vocab.txt --output_dir=out --num_processes=1

Everything except the tokenizer is as simple as possible: no cleaning, no search for duplicates, no held-out split,
examples shuffled in memory, no resuming. The segment rule, random draws, keys and records are the builder's, so the
examples are equal.

The tokenizer is WordPiece of `tokenizers`, in Rust. With one process its own threads use all cores and tokenize the
next batch while Python cuts this one; with several, each process has a tokenizer with one thread. The output directory
must be new. Prints one JSON object: the numbers of examples and of tokens.
"""

import functools
import itertools
import json
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import tensorflow as tf
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from data_prep.examples import cut_documents, document_hash
from data_prep.segments import carried_segments
from data_prep.store import ExampleBatch
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.data.records import ExampleSerializer
from electra_tf.text.vocabulary import Vocabulary

Documents = list[list[str]]  # each document is a list of lines

_BATCH_CHARACTERS = 2**20  # enough to keep all threads of the tokenizer busy
# The builder's defaults.
_MAX_SEQ_LENGTH, _SEED, _BYTES_PER_SHARD = 128, 0, 8 * 2**20
_MAX_CHARACTERS_PER_WORD = 200  # a longer word is [UNK], as in the authors' WordpieceTokenizer


def batches_of_documents(path: str) -> Iterator[Documents]:
    """Yields: the documents of a file, which blank lines separate, at least `_BATCH_CHARACTERS` at a time."""
    batch: Documents = []
    num_characters = 0
    with open(path, encoding="utf-8") as file:
        for has_text, lines in itertools.groupby(map(str.strip, file), key=bool):
            if has_text:
                batch.append(list(lines))
                num_characters += sum(map(len, batch[-1]))
            if num_characters >= _BATCH_CHARACTERS:
                yield batch
                batch, num_characters = [], 0
    if batch:
        yield batch


@functools.cache  # one in each process
def tokenizer_of(vocab_file: str) -> Tokenizer:
    vocabulary = WordPiece.read_file(vocab_file)
    model = WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=_MAX_CHARACTERS_PER_WORD)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    return tokenizer


def tokenize(vocab_file: str, documents: Documents) -> tuple[Documents, list[list[int]]]:
    """The documents, and the ids of every line of all of them. Releases Python's lock."""
    lines = list(itertools.chain(*documents))
    encoded = tokenizer_of(vocab_file).encode_batch_fast(lines, add_special_tokens=False)
    return documents, [line.ids for line in encoded]


def cut(vocabulary: Vocabulary, documents: Documents, ids: list[list[int]]) -> ExampleBatch:
    """The examples of documents, cut by the builder's own functions."""
    token_ids = np.fromiter(itertools.chain.from_iterable(ids), np.int32)
    row_splits = list(itertools.accumulate(map(len, ids), initial=0))
    line_ends = itertools.accumulate(map(len, documents), initial=0)
    rows = (row_splits[begin : end + 1] for begin, end in itertools.pairwise(line_ends))
    with_tokens = (
        (document_hash(_SEED, document), of_document, False)
        for document, of_document in zip(documents, rows, strict=True)
        if of_document[0] < of_document[-1]
    )
    return cut_documents(with_tokens, token_ids, carried_segments, _MAX_SEQ_LENGTH, vocabulary)


def tokenize_and_cut(vocab_file: str, vocabulary: Vocabulary, documents: Documents) -> ExampleBatch:
    return cut(vocabulary, *tokenize(vocab_file, documents))


def cut_batches(batches: Iterable[Documents], vocab_file: str, num_processes: int) -> Iterator[ExampleBatch]:
    """Yields: the examples of each batch of documents."""
    vocabulary = Vocabulary.load(vocab_file)
    if num_processes > 1:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        with multiprocessing.get_context("spawn").Pool(num_processes) as pool:
            yield from pool.imap(functools.partial(tokenize_and_cut, vocab_file, vocabulary), batches)
        return
    os.environ.pop("TOKENIZERS_PARALLELISM", None)  # a user's own setting must not slow the peer down
    with ThreadPool(1) as thread:
        for documents, ids in thread.imap(functools.partial(tokenize, vocab_file), batches):
            yield cut(vocabulary, documents, ids)


def build(input_file: str, vocab_file: str, output_dir: Path, num_processes: int) -> None:
    """Builds the data set, in files of about equal size, and prints its counts."""
    batches = list(cut_batches(batches_of_documents(input_file), vocab_file, num_processes))
    examples = ExampleBatch.concatenate(batches)
    rows, num_examples = examples.sort().rows(), len(examples.entries)
    serialize_example = ExampleSerializer()
    output_dir.mkdir(parents=True)
    num_shards = -(-examples.num_record_bytes // _BYTES_PER_SHARD)
    for shard in range(num_shards):
        begin, end = (num_examples * (shard + side) // num_shards for side in (0, 1))
        with tf.io.TFRecordWriter(str(output_dir / f"train-{shard:05d}-of-{num_shards:05d}.tfrecord")) as writer:
            for token_ids, segment_lengths in itertools.islice(rows, end - begin):
                writer.write(serialize_example(token_ids.tolist(), segment_lengths))
    print(json.dumps({"num_examples": num_examples, "num_tokens": examples.num_text_tokens}))


def main(arguments: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--input", required=True, metavar="FILE", help="plain text, blank lines between documents")
    parser.add_argument("--vocab_file", required=True, help="BERT's vocab.txt")
    parser.add_argument("--output_dir", required=True, type=Path, help="new directory")
    parser.add_argument("--num_processes", type=int, default=1, help="processes; 1: the threads of the tokenizer")
    flags = parser.parse_args(arguments)
    return run_command(lambda: build(flags.input, flags.vocab_file, flags.output_dir, flags.num_processes))


if __name__ == "__main__":
    sys.exit(main())
