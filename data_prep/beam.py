"""The build on Apache Beam: the same data set, byte for byte, on one machine or on a cluster.

The steps call the functions of the local build. Beam's shuffle replaces the spills: the total number of bytes
determines the number of shards, each example goes to the shard of its sort key, and one worker sorts and writes a whole
shard. A file gets its name when it is complete, and a repeated step writes the same bytes.

The runner and its options are Beam's own. Importing this module needs `pip install "electra-tf[beam]"`.
"""

import contextlib
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, WorkerOptions
from apache_beam.pvalue import AsList, AsSingleton, TaggedOutput
from apache_beam.runners.runner import PipelineRunner

from data_prep import processes
from data_prep.build import Build
from data_prep.counts import ReadCounts, total_of
from data_prep.examples import unit_examples
from data_prep.inputs import BuildInputs, require_text
from data_prep.manifest import write_manifest
from data_prep.settings import BuildSettings
from data_prep.store import (
    ENTRY,
    ExampleBatch,
    ShardRange,
    ShardResult,
    shard_index,
    shard_ranges,
    token_dtype,
    write_shard,
)
from data_prep.units import Unit, plan_units
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import TRAIN_SPLIT, Manifest
from electra_tf.files import is_remote
from electra_tf.text.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)

_LOCAL_RUNNERS = ("directrunner", "direct", "fnapirunner")  # names of the runner on this machine
# Duplicate loggers, silenced: they repeat what workers log, and exceptions that are also raised.
_DUPLICATE_LOGGERS = ("apache_beam.runners.portability.local_job_service", "apache_beam.runners.common")

_COUNTS, _TOKEN_COUNTS = "counts", "token_counts"

ExampleFields = tuple[str, bytes, bytes]  # split, entry and token ids of an example, see `ExampleBatch`
ShardKey = tuple[str, int, int]  # the fields of a ShardRange


def run(settings: BuildSettings, beam_arguments: list[str]) -> Manifest:
    """Builds the data set by a Beam pipeline and returns its manifest, which is the last file written.

    After a failure that is not about the input, the same call starts again (with `overwrite` if the output is a URL).

    Args:
        settings: `num_processes` must be 1: the number of processes is an option of the runner. `work_dir` is not
            needed: the runner keeps intermediate data.
        beam_arguments: Beam's options, including `--runner=NAME`, as on a command line.
    Raises: UserError: see `build.build`. Also: Beam has no such option, or the runner's machines cannot reach an input
        or the output.
    """
    options = PipelineOptions(beam_arguments)
    parsers = []
    options.get_all_options(add_extra_args_fn=parsers.append)
    unknown = parsers[0].parse_known_args(beam_arguments)[1]  # about which Beam would only warn
    for name, usual in (("num_processes", 1), ("near_duplicates", 0), ("machine", "")):
        unknown += [f"--{name}={value}"] if (value := getattr(settings, name)) != usual else []
    if unknown:
        raise UserError(
            f"{' '.join(unknown)}: no flags of a build with --runner, nor of Apache Beam; see --help and the runner's"
            " documentation"
        )
    inputs = BuildInputs.find(settings)
    settings = inputs.with_text_settings(settings)
    runner = options.view_as(StandardOptions).runner or "DirectRunner"
    paths = (settings.output_dir, *(file.path for file in inputs.files))
    if "dataflow" in runner.lower() and (local := [path for path in paths if not is_remote(path)]):
        raise UserError(f"{local[0]} is not on the workers of --runner={runner}; give a gs:// URL")
    is_local = runner.lower() in _LOCAL_RUNNERS
    pipeline = beam.Pipeline(runner=_local_runner(options) if is_local else runner, options=options)

    with contextlib.ExitStack() as stack:
        if is_remote(settings.output_dir) and not settings.work_dir:  # for the lock and the configuration
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            settings = settings.model_copy(update={"work_dir": directory})
        build = stack.enter_context(Build.opened(settings, inputs))
        if build.manifest is None:
            _run_pipeline(pipeline, settings, inputs)
            return build.finish()
        return build.manifest


def _run_pipeline(pipeline: beam.Pipeline, settings: BuildSettings, inputs: BuildInputs) -> None:
    """Writes the data set."""
    name = type(pipeline.runner).__name__
    _logger.info("reading %d files, %.1f MB, by Beam's %s", len(inputs.files), inputs.num_bytes / 1e6, name)
    _add_steps(pipeline, settings, inputs)
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        if not (message := _user_message(error, name)):
            raise
        raise UserError(message) from None


def _add_steps(pipeline: beam.Pipeline, settings: BuildSettings, inputs: BuildInputs) -> None:
    vocabulary, unit_bytes = inputs.vocabulary, inputs.unit_bytes
    units = (
        pipeline
        | "Files" >> beam.Create(inputs.files)
        | "ReshuffleFiles" >> beam.Reshuffle()
        | "PlanUnits" >> beam.FlatMap(lambda file: plan_units([file], unit_bytes, settings))
        | "ReshuffleUnits" >> beam.Reshuffle()
    )
    examples, counts_of_units = units | "BuildExamples" >> beam.FlatMap(
        _fields_of_examples, settings, vocabulary
    ).with_outputs(_COUNTS, main="examples")
    total = AsSingleton(counts_of_units | beam.combiners.ToList() | "AddCounts" >> beam.Map(total_of))
    once = pipeline | "Once" >> beam.Create([None])
    no_counts = np.zeros(vocabulary.size, np.int64)
    num_shards = once | "CountShards" >> beam.Map(_num_shards, total, settings, inputs.num_bytes)
    split_copies = []
    if inputs.may_divide_twice(settings):
        of_texts = examples | "Documents" >> beam.FlatMap(_keyed_document) | "GroupByText" >> beam.GroupByKey()
        split_copies = AsList(
            of_texts | "SplitCopies" >> beam.FlatMap(lambda group: [group[0]][: len(set(group[1])) - 1])
        )
    results, counts_of_shards = (
        (
            examples | "ChooseShards" >> beam.Map(_with_shard_key, AsSingleton(num_shards)),
            # Every shard once, without examples, so that shards that stay empty are also written.
            num_shards
            | "AllShards"
            >> beam.FlatMap(lambda each: [((name, i, n), []) for name, n in each.items() for i in range(n)]),
        )
        | "Flatten" >> beam.Flatten()
        | "GroupByShard" >> beam.GroupByKey()
        | "WriteShards"
        >> beam.FlatMap(_write_shard, settings, vocabulary.size, split_copies).with_outputs(
            _TOKEN_COUNTS, main="results"
        )
    )
    add_counts = beam.CombineGlobally(lambda arrays: sum(arrays, start=no_counts))
    token_counts = counts_of_shards | "AddTokenCounts" >> add_counts
    totals = (total, AsList(results), AsSingleton(token_counts))
    once | "WriteManifest" >> beam.Map(lambda _, *given: write_manifest(settings, inputs, *given), *totals)


def _fields_of_examples(
    unit: Unit, settings: BuildSettings, vocabulary: Vocabulary
) -> Iterator[ExampleFields | TaggedOutput[Literal["counts"], ReadCounts]]:
    counts = ReadCounts()
    for portion in unit_examples(unit, settings, vocabulary):
        counts.add(portion.counts)
        for split, batch in portion.batches.items():
            for entry, (token_ids, _) in zip(batch.entries, batch.rows(), strict=True):
                yield split, entry.tobytes(), token_ids.tobytes()
    yield TaggedOutput(_COUNTS, counts)


def _num_shards(_: None, counts: ReadCounts, settings: BuildSettings, num_bytes: int) -> dict[str, int]:
    require_text(settings, counts, num_bytes)
    ranges = shard_ranges(counts.split_record_bytes, settings.num_shards)
    return {shard_range.split: shard_range.num_shards for shard_range in ranges}


def _with_shard_key(example: ExampleFields, num_shards: dict[str, int]) -> tuple[ShardKey, list[ExampleFields]]:
    split, entry, *_ = example
    key = int(np.frombuffer(entry, ENTRY)["key"][0])
    return (split, shard_index(key, num_shards[split]), num_shards[split]), [example]


def _keyed_document(example: ExampleFields) -> Iterator[tuple[bytes, bytes]]:
    """Yields the document of its first example, after the number of its text if its lines are split."""
    (entry,) = np.frombuffer(example[1], ENTRY)
    if entry["is_first"]:
        # Beam has no unsigned integers.
        yield (entry["document"] | np.uint64(1)).tobytes(), entry["document"].tobytes()


def _write_shard(
    element: tuple[ShardKey, Iterable[list[ExampleFields]]],
    settings: BuildSettings,
    vocab_size: int,
    split_copies: list[bytes],
) -> Iterator[ShardResult | TaggedOutput[Literal["token_counts"], np.ndarray]]:
    """Writes the examples of a shard to a file. The second output is the token counts of training shards."""
    from data_prep.tensorflow_setup import restrain_tensorflow

    restrain_tensorflow()
    key, groups = element
    shard_range = ShardRange(*key)
    examples = list(chain.from_iterable(groups))
    entries, token_ids = (b"".join(example[field] for example in examples) for field in (1, 2))
    batch = ExampleBatch.in_order(np.frombuffer(entries, ENTRY), np.frombuffer(token_ids, token_dtype(vocab_size)))
    left_out = np.frombuffer(b"".join(split_copies), np.uint64)
    result, token_counts = write_shard(batch, shard_range, settings, vocab_size, split_copies=left_out)
    yield result
    if shard_range.split == TRAIN_SPLIT:
        yield TaggedOutput(_TOKEN_COUNTS, token_counts)


def _local_runner(options: PipelineOptions) -> PipelineRunner:
    """Beam's portable runner in Python. DirectRunner would first try to download one in Go."""
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle

    # Worker processes share this process's stderr, and Beam also raises the errors that it logs.
    worker_options = options.view_as(WorkerOptions)
    if worker_options.default_sdk_harness_log_level is None:
        worker_options.default_sdk_harness_log_level = "WARNING"
        worker_options.sdk_harness_log_level_overrides = {"data_prep": "INFO", "apache_beam": "CRITICAL"}
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    for name in _DUPLICATE_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    processes.make_importable()
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision_info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return FnApiRunner(provision_info=ExtendedProvisionInfo(provision_info))


def _user_message(error: Exception, runner: str) -> str | None:
    """Finds the message of a worker's UserError, also inside another exception of Beam, or why a remote job failed."""
    messages = [str(error)] if isinstance(error, UserError) else re.findall(r"\b(?:User|Read)Error: (.*)", str(error))
    if messages:
        return re.sub(r" \[while running '.*'\]$", "", messages[-1])
    reason = (str(error).strip() or repr(error)).splitlines()[-1]
    remote = f"the job failed on {runner}: {reason}; see the logs of its machines, then give the same command again"
    return None if runner.lower() in _LOCAL_RUNNERS else remote
