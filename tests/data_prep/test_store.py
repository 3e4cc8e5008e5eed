from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from data_prep.counts import ReadCounts
from data_prep.store import (
    ENTRY,
    ExampleBatch,
    Portion,
    ShardRange,
    gather,
    runs_of,
    shard_index,
    shard_ranges,
    write_shard,
    write_spill,
)
from electra_tf.data.records import ExampleSerializer

ONLY = ShardRange("train", 0, 1)


def example(key: int, first: bytes, second=b"", *, split="train", is_first=True, is_split=False):
    """The split, and an example whose token ids are the bytes of two segments, of a document that was split."""
    entry = (key, 0, len(first + second), len(first), is_first, key & ~1 | is_split)
    return split, ExampleBatch(np.array([entry], ENTRY), np.frombuffer(first + second, np.uint8))


def write_spills(directory, *units: list[tuple[str, ExampleBatch]]) -> list:
    """A spill for each unit."""
    paths = [(directory / f"unit-{i}") for i in range(len(units))]
    for path, examples in zip(paths, units, strict=True):
        write_spill(path, [Portion({split: batch}, ReadCounts()) for split, batch in examples])
    return paths


def write(directory, spills, shard_range=ONLY, drop_duplicates=True):
    """Writes a shard; gives its result, the token ids in it, as bytes, and its token counts."""
    settings = SimpleNamespace(output_dir=str(directory), drop_duplicates=drop_duplicates, examples="carry")
    result, token_counts = write_shard(gather(runs_of(spills), shard_range, 256), shard_range, settings, 256)
    records = tf.data.TFRecordDataset(str(directory / shard_range.file_name)).as_numpy_iterator()
    features = [tf.train.Example.FromString(record).features.feature for record in records]
    return result, [bytes(each["input_ids"].int64_list.value) for each in features], token_counts


@pytest.mark.parametrize(
    ("key", "index"), [(0, 0), (2**64 // 3, 0), (2**64 // 3 + 1, 1), (2**65 // 3, 1), (2**64 - 1, 2)]
)
def test_a_shard_is_an_equal_range_of_keys(key, index):
    found = [ShardRange("train", i, 3).within(np.array([key], np.uint64)) for i in range(3)]
    assert [each.stop - each.start for each in found] == [i == index for i in range(3)]
    assert shard_index(key, 3) == index


def test_a_split_gets_a_shard_for_every_8_mib_of_records_and_an_empty_one_none():
    ranges = shard_ranges({"train": 2**24 + 1, "held_out": 5}, num_train_shards=0)
    trained = [f"train-0000{i}-of-00003.tfrecord" for i in range(3)]
    assert [shard.file_name for shard in ranges] == [*trained, "held_out-00000-of-00001.tfrecord"]
    assert shard_ranges({"train": 1, "held_out": 0}, 0) == [ONLY]


@pytest.mark.parametrize("run_bytes", [1, 50, 2**25])
def test_a_shard_has_its_keys_from_all_units_and_runs_in_order(tmp_path, monkeypatch, run_bytes):
    monkeypatch.setattr("data_prep.store._RUN_BYTES", run_bytes)
    spills = write_spills(
        tmp_path,
        [example(9, b"nine"), example(2**63, b"other half"), example(2**63 - 1, b"last"), example(2**63 + 1, b"more")],
        [example(1, b"held out", split="held_out")],
        [example(7, b"\2seven\3")],
    )
    result, records, _ = write(tmp_path, spills, ShardRange("train", 0, 2))
    assert records == [b"\2seven\3", b"nine", b"last"]
    assert (result.num_tokens, result.num_text_tokens, result.num_documents) == (15, 9, 3)
    assert write(tmp_path, spills, ShardRange("train", 1, 2))[1] == [b"other half", b"more"]  # keys are unsigned


def test_kept_duplicates_are_counted_as_documents_and_tokens(tmp_path):
    spills = write_spills(tmp_path, [example(1, b"\2\5\5\3")] * 2 + [example(2, b"\2\7\3")])
    result, records, token_counts = write(tmp_path, spills, drop_duplicates=False)
    assert len(records) == 3
    assert (result.num_documents, result.num_duplicate_documents) == (3, 0)
    assert token_counts[:9].tolist() == [0, 0, 3, 3, 0, 4, 0, 1, 0]
    _, _, token_counts = write(tmp_path, spills)
    assert token_counts[:9].tolist() == [0, 0, 2, 2, 0, 2, 0, 1, 0]


def test_a_spill_that_another_process_wrote_first_is_kept(tmp_path):
    (first,) = write_spills(tmp_path, [example(5, b"a")])
    write_spills(tmp_path, [example(5, b"a")])
    assert sorted(path.name for path in tmp_path.iterdir()) == [first.name]


def test_a_spill_is_complete_or_absent_on_a_full_disk(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_spills(tmp_path, [example(5, b"a")])
    assert not list(tmp_path.iterdir())


# 2 is [CLS], 3 [SEP].
NINE = example(9, b"\2\5\6\3", b"\7\3")
FOUR = example(4, b"\2\x08\3")
SPLIT_FOUR = example(4, b"\2\4\t\3", b"\t\t\3", is_split=True)


def batch(*examples) -> ExampleBatch:
    return ExampleBatch.concatenate([each for _, each in examples])


def described(examples: ExampleBatch) -> list[tuple[int, int, bytes, list[int]]]:
    """Key, whether lines were split, token ids and lengths of segments of each example."""
    pairs = zip(examples.entries, examples.rows(), strict=True)
    return [(int(entry["key"]), int(entry["document"]) % 2, bytes(row), lengths) for entry, (row, lengths) in pairs]


@pytest.mark.parametrize("order", permutations([NINE, FOUR, SPLIT_FOUR, FOUR]))
def test_examples_are_sorted_by_key_and_those_of_equal_keys_do_not_depend_on_their_order(order):
    four, nine = (4, 0, b"\2\x08\3", [3]), (9, 0, b"\2\5\6\3\7\3", [4, 2])
    split_four = (4, 1, b"\2\4\t\3\t\t\3", [4, 3])
    examples = batch(*order).sort()
    assert described(examples) == [four, four, split_four, nine]
    assert described(examples.without_copies()) == [four, split_four, nine]


def test_the_tokens_of_the_examples_are_counted(monkeypatch):
    monkeypatch.setattr("data_prep.store._EXAMPLES_PER_COUNT", 2)
    examples = batch(NINE, SPLIT_FOUR, FOUR, FOUR).take(np.array([2, 3, 0]))
    assert examples.token_counts(10).tolist() == [0, 0, 3, 4, 0, 1, 1, 1, 2, 0]


@pytest.mark.parametrize(("token_ids", "num_first"), [([2, *[9000] * 125, 3], 60), ([2, 700, 3], 3)])
def test_the_size_of_records_is_known_without_serializing_them(token_ids, num_first):
    segments = [num_first, len(token_ids) - num_first][: 1 + (num_first < len(token_ids))]
    entries = np.array([(7, 0, len(token_ids), num_first, True, 7)], ENTRY)
    examples = ExampleBatch(entries, np.array(token_ids, np.uint16))
    assert examples.num_record_bytes == pytest.approx(len(ExampleSerializer()(token_ids, segments)), rel=0.1)
