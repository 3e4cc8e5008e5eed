"""The build as an Apache Beam pipeline: work units to examples, examples to shards, and the manifest last of all.

The steps are those of the local builder, and so are the functions that do them. Beam shuffles instead of spills: the
number of shards follows from the bytes of all records, each example goes to the shard of its sort key, and a shard is
sorted and written whole. A file appears under its name when it is complete, and is the same whenever it is written, so
a runner may try any step again.
"""

import logging
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput
from apache_beam.utils.shared import Shared

from data_prep import storage
from data_prep.assembly import Phase1, assemble_manifest, require_documents, write_manifest
from data_prep.counts import Counts
from data_prep.examples import Example, ExampleBuilder, ExampleSettings, restrained_tensorflow
from data_prep.inputs import SourceFile, WorkUnit, plan_units, unit_num_bytes
from data_prep.progress import thousands
from data_prep.readers.documents import ReaderOptions
from data_prep.settings import BuildSettings
from data_prep.shards import ShardRange, ShardResult, count_tokens, shard_index, shard_ranges, write_shard
from data_prep.spills import SPLITS, SpillSummary, index_of
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import TRAIN_SPLIT
from electra_tf.text.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)

# Text in a work unit, which passes through the runner whole if its file is compressed: some limit the size of that.
_UNIT_BYTES = 4 * 2**20

_SUMMARIES, _TOKEN_COUNTS = "summaries", "token_counts"
_METRICS = "electra_tf"
_SECONDS_BETWEEN_LINES = 10.0

# An example on its way: as `Example`, but the key as 8 bytes, big end first, since Beam's integers are signed.
ExampleFields = tuple[str, bytes, bytes, int, int, bool]
ShardKey = tuple[str, int, int]  # the fields of a ShardRange
_KEY_BYTES = 8


class BuildDataset(beam.PTransform):
    """Source files to a finished data set in `settings.output_dir`.

    Args:
        files: all that is to be read, for the manifest.
        vocabulary_content: of its file, which the workers need not reach.
    """

    def __init__(
        self, settings: BuildSettings, files: list[SourceFile], vocabulary: Vocabulary, vocabulary_content: bytes
    ):
        super().__init__()
        self._settings = settings
        self._files = files
        self._vocabulary = vocabulary
        self._vocabulary_content = vocabulary_content

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        settings = self._settings
        units = (
            pipeline
            | "Files" >> beam.Create(self._files)
            | "ReshuffleFiles" >> beam.Reshuffle()
            | "PlanUnits" >> beam.FlatMap(_plan_units, settings.reader)
            | "ReshuffleUnits" >> beam.Reshuffle()
        )
        examples, summaries = units | "BuildExamples" >> beam.ParDo(
            _BuildExamples(settings.example_settings(self._vocabulary))
        ).with_outputs(_SUMMARIES, main="examples")
        total = AsSingleton(summaries | "AddUp" >> beam.CombineGlobally(_add_up))
        once = pipeline | "Once" >> beam.Create([None])
        num_shards = once | "CountShards" >> beam.Map(_num_shards, total, settings)
        results, counts_of_shards = (
            (
                examples | "ChooseShards" >> beam.Map(_in_its_shard, AsSingleton(num_shards)),
                num_shards | "AllShards" >> beam.FlatMap(_empty_shards),
            )
            | "Flatten" >> beam.Flatten()
            | "GroupByShard" >> beam.GroupByKey()
            | "WriteShards"
            >> beam.ParDo(
                _WriteShard(settings.output_dir, settings.drop_duplicates, self._vocabulary.size)
            ).with_outputs(_TOKEN_COUNTS, main="results")
        )
        token_counts = counts_of_shards | "AddUpTokens" >> beam.CombineGlobally(_AddUpTokens(self._vocabulary.size))
        return once | "WriteManifest" >> beam.ParDo(
            _WriteManifest(settings, self._files, self._vocabulary, self._vocabulary_content),
            total,
            AsList(results),
            AsSingleton(token_counts),
        )


def _plan_units(file: SourceFile, options: ReaderOptions) -> Iterator[WorkUnit]:
    return plan_units([file], _UNIT_BYTES, options)


class _BuildExamples(beam.DoFn):
    """A work unit to its examples and, as a second output, a summary of them."""

    def __init__(self, settings: ExampleSettings):
        self._settings = settings
        self._shared = Shared()
        self._num_examples = Metrics.counter(_METRICS, "examples")
        self._num_documents_read = Metrics.counter(_METRICS, "documents_read")
        self._num_tokens_read = Metrics.counter(_METRICS, "tokens_read")

    def setup(self) -> None:
        # The threads of a process share the tokenizer, which holds no state.
        self._builder = self._shared.acquire(lambda: ExampleBuilder(self._settings))

    def process(self, unit: WorkUnit) -> Iterator[ExampleFields | TaggedOutput[Literal["summaries"], SpillSummary]]:
        counts = Counts(num_bytes=unit_num_bytes(unit))
        summary = SpillSummary(counts, dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0))
        num_examples = 0
        for example in self._builder.examples(unit, counts):
            summary.num_documents[example.split] += example.is_first
            summary.num_record_bytes[example.split] += len(example.record)
            num_examples += 1
            yield (example.split, example.key.to_bytes(_KEY_BYTES, "big"), *example[2:])
        self._num_examples.inc(num_examples)
        self._num_documents_read.inc(counts.hygiene.num_documents_read)
        self._num_tokens_read.inc(counts.num_tokens_read)
        _progress.add(counts)
        yield TaggedOutput(_SUMMARIES, summary)


class _WorkerProgress:
    """Logs, every few seconds, what this process has read: no worker knows of the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin = self._last_line = time.monotonic()
        self._counts = Counts()

    def add(self, counts: Counts) -> None:
        with self._lock:
            self._counts.add(counts)
            now = time.monotonic()
            if now - self._last_line < _SECONDS_BETWEEN_LINES:
                return
            self._last_line = now
            _logger.info(
                "this worker: %.1f MB read | %s tokens/s",
                self._counts.num_bytes / 1e6,
                thousands(self._counts.num_tokens_read / (now - self._begin)),
            )


_progress = _WorkerProgress()


def _add_up(summaries: Iterable[SpillSummary]) -> SpillSummary:
    total = SpillSummary(Counts(), dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0))
    for summary in summaries:
        total.counts.add(summary.counts)
        for split in SPLITS:
            total.num_documents[split] += summary.num_documents[split]
            total.num_record_bytes[split] += summary.num_record_bytes[split]
    return total


class _AddUpTokens(beam.CombineFn):
    """The counts of shards to their sum, a few at a time."""

    def __init__(self, vocab_size: int):
        self._vocab_size = vocab_size

    def create_accumulator(self) -> np.ndarray:
        return np.zeros(self._vocab_size, np.int64)

    def add_input(self, accumulator: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return accumulator + counts

    def merge_accumulators(self, accumulators: Iterable[np.ndarray]) -> np.ndarray:
        return sum(accumulators, start=self.create_accumulator())

    def extract_output(self, accumulator: np.ndarray) -> np.ndarray:
        return accumulator


def _num_shards(_: None, total: SpillSummary, settings: BuildSettings) -> dict[str, int]:
    """By split. Raises: UserError: no document is left to train on."""
    phase_1 = Phase1()
    phase_1.add(total)
    require_documents(settings, phase_1)
    ranges = shard_ranges(phase_1.num_record_bytes, settings.num_shards)
    return {shard_range.split: shard_range.num_shards for shard_range in ranges}


def _in_its_shard(example: ExampleFields, num_shards: dict[str, int]) -> tuple[ShardKey, list[ExampleFields]]:
    split, key = example[:2]
    return (split, shard_index(int.from_bytes(key, "big"), num_shards[split]), num_shards[split]), [example]


def _empty_shards(num_shards: dict[str, int]) -> Iterator[tuple[ShardKey, list[ExampleFields]]]:
    """Every shard once, so that one which gets no example is written too."""
    for split, number in num_shards.items():
        for index in range(number):
            yield (split, index, number), []


def _example(fields: ExampleFields) -> Example:
    split, key, *rest = fields
    return Example(split, int.from_bytes(key, "big"), *rest)


class _WriteShard(beam.DoFn):
    """A shard's key and its examples to a finished file and, as a second output, the training split's token counts."""

    def __init__(self, output_dir: str, drop_duplicates: bool, vocab_size: int):
        self._output_dir = output_dir
        self._drop_duplicates = drop_duplicates
        self._vocab_size = vocab_size
        self._num_shards_written = Metrics.counter(_METRICS, "shards_written")

    def setup(self) -> None:
        restrained_tensorflow()

    def process(
        self, element: tuple[ShardKey, Iterable[list[ExampleFields]]]
    ) -> Iterator[ShardResult | TaggedOutput[Literal["token_counts"], np.ndarray]]:
        key, groups = element
        shard_range = ShardRange(*key)
        examples = [_example(fields) for group in groups for fields in group]
        try:
            result, token_counts = self._write(examples, shard_range)
        except OSError as error:
            raise UserError(
                f"cannot write {storage.join(self._output_dir, shard_range.file_name)}: {error.strerror or error}; free"
                " some space, or give another --output_dir that every worker can write to"
            ) from error
        self._num_shards_written.inc()
        yield result
        if shard_range.split == TRAIN_SPLIT:
            yield TaggedOutput(_TOKEN_COUNTS, token_counts)

    def _write(self, examples: list[Example], shard_range: ShardRange) -> tuple[ShardResult, np.ndarray]:
        path = storage.join(self._output_dir, shard_range.file_name)
        index, records = index_of(examples), [example.record for example in examples]
        if not storage.is_remote(path):
            result = write_shard(index, records, shard_range, Path(path), self._drop_duplicates)
            return result, count_tokens(Path(path), self._vocab_size)
        with tempfile.TemporaryDirectory() as directory:
            local_path = Path(directory) / shard_range.file_name
            result = write_shard(index, records, shard_range, local_path, self._drop_duplicates)
            token_counts = count_tokens(local_path, self._vocab_size)
            storage.publish(local_path, path)
        return result, token_counts


class _WriteManifest(beam.DoFn):
    """What all units and shards tell to the vocabulary and the manifest in the output directory."""

    def __init__(
        self, settings: BuildSettings, files: list[SourceFile], vocabulary: Vocabulary, vocabulary_content: bytes
    ):
        self._settings = settings
        self._files = files
        self._vocabulary = vocabulary
        self._vocabulary_content = vocabulary_content

    def process(self, _: None, total: SpillSummary, results: list[ShardResult], token_counts: np.ndarray) -> None:
        phase_1 = Phase1(
            counts=total.counts, num_documents=total.num_documents, num_record_bytes=total.num_record_bytes
        )
        manifest = assemble_manifest(self._settings, self._files, self._vocabulary, phase_1, results, token_counts)
        write_manifest(manifest, self._settings, self._vocabulary_content)
