"""The builder's job on other tokenizers: a text file to shuffled TFRecord shards. `benchmarks.builder` runs it.

    python -m benchmarks.builder_peers --tokenizer=hugging_face --input=corpus.txt --vocab_file=vocab.txt \\
        --output_dir=out --num_processes=1

What is not the tokenizer is as lean as it can be: plain reading (no hygiene, no duplicates to find), examples shuffled
in memory, nothing to resume. Segment rule, draws, keys and records are the builder's, so the examples are too.

    hugging_face     tokenizers' WordPiece, in Rust. One process: its own threads on all cores, working on the next
                     batch while Python cuts this one. Several: a tokenizer with one thread in each.
    pure_python      transformers' BertTokenizerLegacy, transformers 4's slow BertTokenizer: the authors' Python code

The output directory is new. Prints one JSON object: examples, tokens and the seconds of each part.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from electra_tf.cli.flags import flag_parser, run_command

Tokenize = Callable[[list[str]], list[list[int]]]

# Enough to fill every core with threads of the tokenizer, little against memory.
BATCH_CHARACTERS = 2**20
# As the builder's, so that both write as many files.
_BYTES_PER_SHARD = 8 * 2**20
_MAX_CHARACTERS_PER_WORD = 200  # a longer word is [UNK]: the authors' WordpieceTokenizer


class PeerExample(NamedTuple):
    """What stands in the TFRecord file of a split at the place of `key`."""

    split: str
    key: int
    record: bytes


class BatchResult(NamedTuple):
    examples: list[PeerExample]
    num_tokens: int


class Job(NamedTuple):
    """What shapes the examples, with the defaults of build_pretraining_dataset.py; picklable."""

    tokenizer: str
    vocab_file: str
    max_seq_length: int = 128
    seed: int = 0
    held_out_fraction: float = 0.005


def read_documents(path: str) -> Iterator[list[str]]:
    """Documents as lists of lines: a blank line ends one."""
    lines: list[str] = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line := line.strip():
                lines.append(line)
            elif lines:
                yield lines
                lines = []
    if lines:
        yield lines


def batches_of(documents: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    """Whole documents, at least `BATCH_CHARACTERS` of them at once."""
    batch: list[list[str]] = []
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


def pure_python_tokenizer(vocab_file: str) -> Tokenize:
    """BERT's uncased tokenizer in Python."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    tokenizer = BertTokenizerLegacy(vocab_file)
    return lambda lines: [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line)) for line in lines]


TOKENIZERS: dict[str, Callable[[str], Tokenize]] = {
    "hugging_face": hugging_face_tokenizer,
    "pure_python": pure_python_tokenizer,
}


class ExampleCutter:
    """Documents and their token ids to serialized examples, by the builder's own rule."""

    def __init__(self, job: Job):
        from data_prep import identity, segments
        from electra_tf.text.records import serialize_example
        from electra_tf.text.vocabulary import Vocabulary

        vocabulary = Vocabulary.load(job.vocab_file)
        self._job = job
        self._cls, self._sep = [vocabulary.cls_id], [vocabulary.sep_id]
        self._identity, self._segments, self._serialize_example = identity, segments, serialize_example

    def examples(self, documents: list[list[str]], ids_of_lines: list[list[int]]) -> BatchResult:
        """
        Args:
            ids_of_lines: of every line of every document, in order.
        """
        found: list[PeerExample] = []
        first_line = 0
        for document in documents:
            end_line = first_line + len(document)
            lines = ids_of_lines[first_line:end_line]
            row_splits = [0, *itertools.accumulate(map(len, lines))]
            if row_splits[-1]:
                found.extend(self._examples_of_document(document, list(itertools.chain(*lines)), row_splits))
            first_line = end_line
        return BatchResult(found, sum(map(len, ids_of_lines)))

    def _examples_of_document(self, document: list[str], ids: list[int], rows: list[int]) -> Iterator[PeerExample]:
        job, identity, segments = self._job, self._identity, self._segments
        digest = identity.document_digest(job.seed, document)
        split = "held_out" if identity.is_held_out(digest, job.held_out_fraction) else "train"
        source = identity.random_source(digest)
        target_length = segments.draw_target_length(job.max_seq_length, source)
        segmenter = segments.Segmenter(job.max_seq_length, source, target_length)
        for index, (first, second) in enumerate(segmenter.split_document(ids, rows)):
            input_ids = [*self._cls, *first, *self._sep, *second, *(self._sep if second else [])]
            lengths = [len(first) + 2, len(second) + 1] if second else [len(first) + 2]
            record = self._serialize_example(input_ids, lengths)
            yield PeerExample(split, identity.sort_key(digest, index), record)


_tokenize: Tokenize | None = None
_cutter: ExampleCutter | None = None


def start_process(job: Job) -> None:
    """Sets up a process that tokenizes and cuts."""
    global _tokenize, _cutter
    _tokenize, _cutter = TOKENIZERS[job.tokenizer](job.vocab_file), ExampleCutter(job)


def tokenize_documents(documents: list[list[str]]) -> list[list[int]]:
    """The ids of every line, in this process."""
    assert _tokenize is not None
    return _tokenize(list(itertools.chain(*documents)))


def cut_documents(documents: list[list[str]]) -> BatchResult:
    """Tokenizes and cuts, in this process."""
    assert _cutter is not None
    return _cutter.examples(documents, tokenize_documents(documents))


def results_with_threads(batches: Iterable[list[list[str]]]) -> Iterator[BatchResult]:
    """The tokenizer, which lets go of Python's lock, works on the next batch while this one is cut."""
    assert _cutter is not None
    with ThreadPoolExecutor(1) as thread:
        for documents, ids in _in_order(thread, tokenize_documents, batches, num_ahead=1):
            yield _cutter.examples(documents, ids)


def results_with_processes(batches: Iterable[list[list[str]]], job: Job, num_processes: int) -> Iterator[BatchResult]:
    """Each process tokenizes with one thread and cuts; batches and records travel through pipes."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, context, start_process, (job,)) as pool:
        for _, result in _in_order(pool, cut_documents, batches, num_ahead=2 * num_processes):
            yield result


def _in_order(executor: Executor, function: Callable, inputs: Iterable, num_ahead: int) -> Iterator[tuple]:
    """Pairs of input and result, with no more than `num_ahead` results waited for beside the one given."""
    waiting: list[tuple[object, Future]] = []
    for value in inputs:
        waiting.append((value, executor.submit(function, value)))
        if len(waiting) > num_ahead:
            first, future = waiting.pop(0)
            yield first, future.result()
    for first, future in waiting:
        yield first, future.result()


def write_shards(examples: list[PeerExample], output_dir: Path) -> None:
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


def build(job: Job, input_file: str, output_dir: Path, num_processes: int) -> dict[str, float]:
    """Runs the job; returns what it counted and timed."""
    start = time.perf_counter()
    batches = batches_of(read_documents(input_file))
    if num_processes == 1:
        start_process(job)
        results = results_with_threads(batches)
    else:
        results = results_with_processes(batches, job, num_processes)
    started = time.perf_counter()
    examples, num_tokens = [], 0
    for result in results:
        examples += result.examples
        num_tokens += result.num_tokens
    cut = time.perf_counter()
    output_dir.mkdir(parents=True)
    write_shards(examples, output_dir)
    return {
        "num_examples": len(examples),
        "num_tokens": num_tokens,
        "seconds_to_start": started - start,
        "seconds_to_cut": cut - started,
        "seconds_to_write": time.perf_counter() - cut,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--tokenizer", required=True, choices=TOKENIZERS, help="whose")
    parser.add_argument("--input", required=True, metavar="FILE", help="plain text, a blank line ends a document")
    parser.add_argument("--vocab_file", required=True, help="BERT's vocab.txt")
    parser.add_argument("--output_dir", required=True, type=Path, help="directory to make")
    parser.add_argument("--num_processes", type=int, default=1, help="1: threads of the tokenizer")
    flags: argparse.Namespace = parser.parse_args(arguments)
    job = Job(flags.tokenizer, os.path.abspath(flags.vocab_file))
    os.environ.pop("TOKENIZERS_PARALLELISM", None)  # a user's own setting must not slow a peer down
    return run_command(lambda: print(json.dumps(build(job, flags.input, flags.output_dir, flags.num_processes))))


if __name__ == "__main__":
    sys.exit(main())
