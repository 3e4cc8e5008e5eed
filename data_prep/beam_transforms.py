"""The build as an Apache Beam pipeline: work units to examples, examples to shards, and at the end the manifest.

The steps call the functions of the local builder. Beam's shuffle replaces the spills: the total number of bytes
determines the number of shards, each example goes to the shard of its sort key, and one worker sorts and writes a whole
shard. A file gets its name when it is complete, and a repeated step writes the same bytes.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput

from data_prep.assembly import BuildInputs, require_text, write_manifest
from data_prep.counts import ReadCounts, is_sound, total_of
from data_prep.example_batch import ENTRY, ExampleBatch, token_dtype
from data_prep.examples import ExampleBuilder
from data_prep.settings import BuildSettings
from data_prep.shards import ShardRange, ShardResult, shard_index, shard_ranges, write_shard
from data_prep.units import Unit, plan_units
from electra_tf.text.manifest import TRAIN_SPLIT
from electra_tf.text.vocabulary import Vocabulary

# Text in a work unit: small, as the text of compressed files passes through the runner, which may limit its elements.
_UNIT_BYTES = 4 * 2**20

_COUNTS, _TOKEN_COUNTS = "counts", "token_counts"
_METRICS = "electra_tf"

# Split, entry and token ids of an example, see `ExampleBatch`; and the sources of its unit.
ExampleFields = tuple[str, bytes, bytes, tuple[str, ...]]
ShardKey = tuple[str, int, int]  # the fields of a ShardRange


class BuildDataset(beam.PTransform):
    """Builds the data set of `settings` and `inputs` in `settings.output_dir`."""

    def __init__(self, settings: BuildSettings, inputs: BuildInputs):
        super().__init__()
        self._settings = settings
        self._inputs = inputs

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        settings, inputs, vocabulary = self._settings, self._inputs, self._inputs.vocabulary
        units = (
            pipeline
            | "Files" >> beam.Create(inputs.files)
            | "ReshuffleFiles" >> beam.Reshuffle()
            | "PlanUnits" >> beam.FlatMap(lambda file: plan_units([file], _UNIT_BYTES, settings))
            | "ReshuffleUnits" >> beam.Reshuffle()
        )
        examples, counts_of_units = units | "BuildExamples" >> beam.ParDo(
            _BuildExamples(settings, vocabulary)
        ).with_outputs(_COUNTS, main="examples")
        counts = counts_of_units | "GatherCounts" >> beam.CombineGlobally(_concatenated)
        total = AsSingleton(counts | "AddCounts" >> beam.Map(total_of))
        once = pipeline | "Once" >> beam.Create([None])
        num_shards = once | "CountShards" >> beam.Map(_num_shards, total, settings, inputs.num_bytes)
        examples = examples | "DropFaulty" >> beam.Filter(lambda example, total: is_sound(example[3], total), total)
        results, counts_of_shards = (
            (
                examples | "ChooseShards" >> beam.Map(_with_shard_key, AsSingleton(num_shards)),
                num_shards | "AllShards" >> beam.FlatMap(_empty_shards),
            )
            | "Flatten" >> beam.Flatten()
            | "GroupByShard" >> beam.GroupByKey()
            | "WriteShards"
            >> beam.ParDo(_WriteShard(settings, vocabulary.size)).with_outputs(_TOKEN_COUNTS, main="results")
        )
        token_counts = counts_of_shards | "AddTokenCounts" >> beam.CombineGlobally(_sum_arrays, vocabulary.size)
        totals = (total, AsList(results), AsSingleton(token_counts))
        return once | "WriteManifest" >> beam.Map(lambda _, *given: write_manifest(settings, inputs, *given), *totals)


class _BuildExamples(beam.DoFn):
    """Turns a work unit into its examples and, as a second output, its counts."""

    def __init__(self, settings: BuildSettings, vocabulary: Vocabulary):
        self._settings = settings
        self._vocabulary = vocabulary
        names = ("examples", "documents_read", "tokens_read")
        self._metrics = {name: Metrics.counter(_METRICS, name) for name in names}

    def setup(self) -> None:
        self._builder = ExampleBuilder(self._settings, self._vocabulary)

    def process(self, unit: Unit) -> Iterator[ExampleFields | TaggedOutput[Literal["counts"], list[ReadCounts]]]:
        counts = ReadCounts()
        num_examples = 0
        for split, batch in self._builder.examples(unit, counts):
            num_examples += len(batch.entries)
            for entry, (token_ids, _) in zip(batch.entries, batch.rows(), strict=True):
                yield split, entry.tobytes(), token_ids.tobytes(), counts.sources
        self._metrics["examples"].inc(num_examples)
        self._metrics["documents_read"].inc(counts.num_documents_read)
        self._metrics["tokens_read"].inc(counts.num_tokens_read)
        yield TaggedOutput(_COUNTS, [counts])


def _concatenated(lists: Iterable[list[ReadCounts]]) -> list[ReadCounts]:
    return list(chain.from_iterable(lists))


def _sum_arrays(arrays: Iterable[np.ndarray], size: int) -> np.ndarray:
    return sum(arrays, start=np.zeros(size, np.int64))


def _num_shards(_: None, counts: ReadCounts, settings: BuildSettings, num_bytes: int) -> dict[str, int]:
    """Computes the number of shards by split. Raises: UserError: see `require_text`."""
    require_text(settings, counts, num_bytes)
    ranges = shard_ranges(counts.split_record_bytes, settings.num_shards)
    return {shard_range.split: shard_range.num_shards for shard_range in ranges}


def _with_shard_key(example: ExampleFields, num_shards: dict[str, int]) -> tuple[ShardKey, list[ExampleFields]]:
    split, entry, *_ = example
    key = int(np.frombuffer(entry, ENTRY)["key"][0])
    return (split, shard_index(key, num_shards[split]), num_shards[split]), [example]


def _empty_shards(num_shards: dict[str, int]) -> Iterator[tuple[ShardKey, list[ExampleFields]]]:
    """Yields every shard once, without examples, so that shards that stay empty are also written."""
    for split, number in num_shards.items():
        for index in range(number):
            yield (split, index, number), []


class _WriteShard(beam.DoFn):
    """Writes the examples of a shard to a file. Its second output is the token counts of training shards."""

    def __init__(self, settings: BuildSettings, vocab_size: int):
        self._settings = settings
        self._vocab_size = vocab_size
        self._num_shards_written = Metrics.counter(_METRICS, "shards_written")

    def setup(self) -> None:
        from data_prep.tensorflow_setup import restrained_tensorflow

        restrained_tensorflow()

    def process(
        self, element: tuple[ShardKey, Iterable[list[ExampleFields]]]
    ) -> Iterator[ShardResult | TaggedOutput[Literal["token_counts"], np.ndarray]]:
        key, groups = element
        shard_range = ShardRange(*key)
        examples = list(chain.from_iterable(groups))
        entries, token_ids = (b"".join(example[field] for example in examples) for field in (1, 2))
        entries = np.frombuffer(entries, ENTRY).copy()
        entries["begin"] = np.cumsum(entries["num_tokens"], dtype=np.uint64) - entries["num_tokens"]
        batch = ExampleBatch(entries, np.frombuffer(token_ids, token_dtype(self._vocab_size)))
        result, token_counts = write_shard(batch, shard_range, self._settings, self._vocab_size)
        self._num_shards_written.inc()
        yield result
        if shard_range.split == TRAIN_SPLIT:
            yield TaggedOutput(_TOKEN_COUNTS, token_counts)
