"""What a process of the build does: a work unit to a spill, a range of keys to a shard."""

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep import storage
from data_prep.counts import Counts
from data_prep.examples import ExampleBuilder, ExampleSettings
from data_prep.inputs import WorkUnit, unit_num_bytes
from data_prep.shards import ShardRange, ShardResult, count_tokens, gather, write_shard
from data_prep.spills import Spill, SpillSummary, spill_path
from electra_tf.text.manifest import Shard


class UnitTask(NamedTuple):
    """Phase 1: `unit` to the spill directory `spill`."""

    unit: WorkUnit
    spill: Path


class ShardTask(NamedTuple):
    """Phase 2: a range of keys from the first `num_spills` spills in `build_dir` to a shard in `output_dir`."""

    build_dir: Path
    output_dir: str
    num_spills: int
    shard_range: ShardRange
    drop_duplicates: bool
    vocab_size: int

    @property
    def shard_path(self) -> str:
        return storage.join(self.output_dir, self.shard_range.file_name)

    @property
    def result_path(self) -> Path:
        """The result as JSON: a shard that has one is complete."""
        return self.build_dir / f"{self.shard_range.file_name}.json"

    @property
    def token_counts_path(self) -> Path:
        """How often each vocabulary entry stands in the shard, as NumPy's file; it is there before the result is."""
        return self.build_dir / f"{self.shard_range.file_name}.npy"


_example_builder: ExampleBuilder | None = None


def set_up(settings: ExampleSettings) -> None:
    """Readies this process for units. A tokenizer takes a second to make: one serves all builds of equal settings."""
    global _example_builder
    if _example_builder is None or _example_builder.settings != settings:
        _example_builder = ExampleBuilder(settings)


def write_unit(task: UnitTask) -> SpillSummary:
    """Reads, tokenizes and cuts a work unit's documents and spills the examples.

    Raises: UserError: see `ExampleBuilder.examples`. OSError: see `Spill.write`.
    """
    assert _example_builder is not None
    counts = Counts(num_bytes=unit_num_bytes(task.unit))
    spill = Spill()
    for example in _example_builder.examples(task.unit, counts):
        spill.append(example)
    return spill.write(task.spill, counts)


def write_shard_of_spills(task: ShardTask) -> ShardResult:
    """Sorts a range of keys into a TFRecord file, and notes that it is complete.

    Raises: OSError: see `write_shard`.
    """
    spills = [spill_path(task.build_dir, i) for i in range(task.num_spills)]
    index, records = gather(spills, task.shard_range)
    is_remote = storage.is_remote(task.output_dir)
    path = task.build_dir / task.shard_range.file_name if is_remote else Path(task.shard_path)
    result = write_shard(index, records, task.shard_range, path, task.drop_duplicates)
    counts_file = io.BytesIO()
    np.save(counts_file, count_tokens(path, task.vocab_size))
    if is_remote:
        storage.publish(path, task.shard_path)
    storage.write_bytes(task.token_counts_path, counts_file.getvalue())
    content = json.dumps({**asdict(result), "shard": result.shard.model_dump()}).encode()
    storage.write_bytes(task.result_path, content)
    return result


def read_result(task: ShardTask) -> ShardResult | None:
    """The result of a shard that is complete already; None if it is not."""
    try:
        fields = json.loads(task.result_path.read_text())
    except FileNotFoundError:
        return None
    return ShardResult(**{**fields, "shard": Shard.model_validate(fields["shard"])})


def read_token_counts(task: ShardTask) -> np.ndarray:
    """How often each vocabulary entry stands in a shard that is complete: [V] int64."""
    return np.load(task.token_counts_path)
