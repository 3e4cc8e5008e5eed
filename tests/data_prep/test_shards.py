import numpy as np
import pytest
import tensorflow as tf

from data_prep.shards import Buckets, Counts, Spill, spill_path, write_shard

BUCKETS = Buckets({"train": 3, "held_out": 2})


def records_of(path) -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


def write_spills(directory, *units: list[tuple[int, int, bytes, int]]) -> list:
    """Spills of (bucket, key, record, num_tokens) lists, one for each unit."""
    paths = [spill_path(directory, i) for i in range(len(units))]
    for path, examples in zip(paths, units, strict=True):
        spill = Spill(BUCKETS.size)
        for example in examples:
            spill.append(*example)
        spill.write(path, Counts())
    return paths


@pytest.mark.parametrize(
    ("split", "key", "bucket"),
    [
        ("train", 0, 0),
        ("train", 2**64 // 3, 0),
        ("train", 2**64 // 3 + 1, 1),
        ("train", 2**64 - 1, 2),
        ("held_out", 0, 3),
        ("held_out", 2**63, 4),
    ],
)
def test_a_bucket_is_an_equal_range_of_keys(split, key, bucket):
    assert BUCKETS.bucket(split, key) == bucket


def test_a_shard_gathers_its_bucket_of_all_units_sorted_by_key(tmp_path):
    spills = write_spills(
        tmp_path,
        [(0, 9, b"nine", 4), (1, 5, b"other", 8), (0, 2**64 - 1, b"last", 2)],
        [(4, 1, b"held out", 16)],
        [(0, 7, b"seven", 1)],
    )
    shard, num_tokens = write_shard(spills, 0, tmp_path / "a.tfrecord")
    assert records_of(tmp_path / "a.tfrecord") == [b"seven", b"nine", b"last"]
    assert (shard.file, shard.num_examples, num_tokens) == ("a.tfrecord", 3, 7)


def test_equal_keys_keep_the_order_of_the_input(tmp_path):
    # Many of them: few items are put in order by insertion, whatever sort was asked for.
    records = [str(i).encode() for i in range(200)]
    spills = write_spills(
        tmp_path,
        [(i % 2, 5, records[i], 1) for i in range(120)],
        [*((0, 5, records[i], 1) for i in range(120, 200)), (0, 3, b"first", 1)],
    )
    write_shard(spills, 0, tmp_path / "a.tfrecord")
    assert records_of(tmp_path / "a.tfrecord") == [b"first", *records[0:120:2], *records[120:]]


def test_a_bucket_without_examples_is_an_empty_shard(tmp_path):
    spills = write_spills(tmp_path, [(0, 5, b"a", 1)], [])
    shard, num_tokens = write_shard(spills, 2, tmp_path / "a.tfrecord")
    assert (shard.num_examples, num_tokens, records_of(tmp_path / "a.tfrecord")) == (0, 0, [])


def test_what_is_written_has_its_final_name_and_nothing_partial_stays(tmp_path):
    write_shard(write_spills(tmp_path, [(0, 5, b"a", 1)]), 0, tmp_path / "a.tfrecord")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tfrecord", "unit-000000"]


def test_counts_add_up_by_split():
    totals = Counts({"train": 2}, num_bytes=10, num_tokens_read=7)
    totals.add(Counts({"train": 1, "held_out": 4}, num_bytes=5, num_tokens_kept=3, num_unknown_tokens=2))
    assert totals == Counts({"train": 3, "held_out": 4}, 15, 7, 3, 2)


def test_keys_beyond_the_signed_range_are_sorted_as_unsigned(tmp_path):
    keys = [2**63 + 1, 1, 2**63 - 1]
    spills = write_spills(tmp_path, [(0, key, str(key).encode(), 1) for key in keys])
    write_shard(spills, 0, tmp_path / "a.tfrecord")
    assert [int(record) for record in records_of(tmp_path / "a.tfrecord")] == np.sort(np.uint64(keys)).tolist()
