import hashlib
import itertools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.schema import MaskingConfig
from electra_tf.data.corpus import open_data
from electra_tf.data.damage import RecordReader
from electra_tf.data.pretraining_input import (
    EpochOrder,
    evaluation_batches,
    num_evaluation_batches,
    training_batches,
)

MASKING = MaskingConfig(masked_fraction=0.3, mask_token_fraction=0.5, random_token_fraction=0.3)


@pytest.fixture(scope="module")
def data(tmp_path_factory, write_data, tiny_config):
    """Three training shards of 5, 3 and 4 examples, one held-out shard of 7."""
    return open_data(write_data(tmp_path_factory.mktemp("data") / "set"), tiny_config())


def taken(batches, count: int) -> list[dict[str, np.ndarray]]:
    return list(itertools.islice(batches.as_numpy_iterator(), count))


def train(data, first_step: int, count: int, *, seed=3, batch_size=4, context=None) -> list[dict[str, np.ndarray]]:
    batches = training_batches(
        data.train,
        MASKING,
        data.masking_vocabulary,
        seed=seed,
        batch_size=batch_size,
        first_step=first_step,
        input_context=context,
    )
    return taken(batches, count)


def evaluation(data, count: int, *, batch_size=4, max_batches=9, context=None) -> list[dict[str, np.ndarray]]:
    batches = evaluation_batches(
        data.held_out,
        MASKING,
        data.masking_vocabulary,
        seed=3,
        batch_size=batch_size,
        max_batches=max_batches,
        input_context=context,
    )
    return taken(batches, count)


def same(first: list[dict], second: list[dict]) -> bool:
    return len(first) == len(second) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(first, second, strict=True)
    )


def contexts(num_pipelines: int, num_replicas: int) -> list[tf.distribute.InputContext]:
    return [tf.distribute.InputContext(num_pipelines, index, num_replicas) for index in range(num_pipelines)]


def records_of(data, count: int, seed: int = 3, first: int = 0) -> list[bytes]:
    order = EpochOrder(data.train, seed)
    reader = RecordReader(data.train, order.shard_of)
    return list(order.records(reader, first).take(count).as_numpy_iterator())


def test_every_epoch_visits_every_example_exactly_once(data, tmp_path):
    stored = Counter(tf.data.TFRecordDataset(list(data.train.files)).as_numpy_iterator())
    assert len(stored) == 12
    stream = records_of(data, 36)
    assert [Counter(stream[start : start + 12]) for start in (0, 12, 24)] == [stored] * 3


def test_epochs_differ_in_the_order_of_shards_and_of_examples(data):
    stored = [list(tf.data.TFRecordDataset(file).as_numpy_iterator()) for file in data.train.files]
    shard_of = {record: shard for shard, records in enumerate(stored) for record in records}
    place_of = {record: place for records in stored for place, record in enumerate(records)}
    stream = records_of(data, 10 * 12)
    epochs = [stream[start : start + 12] for start in range(0, 120, 12)]
    shard_orders = {tuple(dict.fromkeys(shard_of[record] for record in epoch)) for epoch in epochs}
    example_orders = {tuple(place_of[record] for record in epoch if shard_of[record] == 0) for epoch in epochs}
    # Of 10 draws from 6 and from 120 orders; all alike has a chance of 6^-9.
    assert len(shard_orders) >= 2
    assert len(example_orders) >= 5


def test_seeds_differ_in_order(data):
    assert records_of(data, 12) != records_of(data, 12, seed=4)


@pytest.mark.parametrize("first", [1, 4, 5, 11, 12, 13, 17, 24, 35])
def test_reading_can_start_anywhere(data, first):
    assert records_of(data, 8, first=first) == records_of(data, 43)[first : first + 8]


def test_batch_k_is_the_same_whether_reached_or_started_at(data):
    # Ten batches of five cross the borders of four epochs of twelve, never at a batch's edge but once.
    whole = train(data, 0, 10, batch_size=5)
    for first_step in (1, 2, 5, 7):
        assert same(train(data, first_step, 3, batch_size=5), whole[first_step : first_step + 3])


def test_an_example_read_again_is_masked_differently(data):
    batches = train(data, 0, 12, batch_size=1) + train(data, 12, 12, batch_size=1)
    by_example: dict[bytes, list[bytes]] = {}
    for batch in batches:
        by_example.setdefault(batch["input_ids"].tobytes(), []).append(batch["masked_input_ids"].tobytes())
    assert {len(reads) for reads in by_example.values()} == {2}
    assert sum(len(set(reads)) == 2 for reads in by_example.values()) >= 4


@pytest.mark.parametrize(("num_pipelines", "num_replicas"), [(1, 2), (2, 2), (2, 4), (4, 4)])
def test_the_batches_of_the_replicas_are_the_slices_of_the_whole(data, num_pipelines, num_replicas):
    steps, batch_size = 3, 8
    whole = train(data, 2, steps, batch_size=batch_size)
    per_pipeline = num_replicas // num_pipelines
    parts = [
        train(data, 2, steps * per_pipeline, batch_size=8, context=c) for c in contexts(num_pipelines, num_replicas)
    ]
    assert parts[0][0]["input_ids"].shape == (batch_size // num_replicas, 10)
    for step in range(steps):
        replicas = [pipeline[step * per_pipeline + index] for pipeline in parts for index in range(per_pipeline)]
        joined = {name: np.concatenate([replica[name] for replica in replicas]) for name in replicas[0]}
        assert same([joined], [whole[step]])


def test_one_batch_may_be_larger_than_an_epoch(data):
    (batch,) = train(data, 0, 1, batch_size=30)
    counts = Counter(row.tobytes() for row in batch["input_ids"])
    assert len(counts) == 12
    assert set(counts.values()) == {2, 3}


def test_evaluation_reads_in_the_order_on_disk_and_fills_up_with_rows_that_do_not_count(data, numbered_examples):
    batches = evaluation(data, 9)
    assert [len(batch["input_ids"]) for batch in batches] == [4, 4]
    rows = np.concatenate([batch["input_ids"] for batch in batches]).tolist()
    assert rows == [ids + [0] * (10 - len(ids)) for ids in numbered_examples(12, 7)] + [[0] * 10]
    assert all(not batches[1][name][3].any() for name in batches[1])
    assert all(batches[1]["masked_lm_weights"][row].any() for row in range(3))


def test_evaluation_masks_the_same_way_every_time(data):
    assert same(evaluation(data, 9), evaluation(data, 9))


def test_evaluation_ends_after_the_allowed_number_of_batches(data):
    assert len(evaluation(data, 9, batch_size=2, max_batches=3)) == 3


def test_the_evaluation_batches_of_two_workers_are_the_slices_of_the_whole(data):
    whole = evaluation(data, 9)
    parts = [evaluation(data, 9, context=context) for context in contexts(2, 2)]
    joined = [{name: np.concatenate([part[step][name] for part in parts]) for name in whole[0]} for step in range(2)]
    assert same(joined, whole)


@pytest.mark.parametrize(("batch_size", "max_batches", "steps"), [(4, 9, 2), (7, 9, 1), (2, 3, 3), (8, 9, 1)])
def test_the_announced_number_of_evaluation_batches_is_the_real_one(data, batch_size, max_batches, steps):
    assert num_evaluation_batches(data.held_out, batch_size, max_batches) == steps
    assert len(evaluation(data, 20, batch_size=batch_size, max_batches=max_batches)) == steps


def test_the_first_batches_are_these(data):
    # What a run reads must never change under it: these are the batches of every version so far.
    (first,) = train(data, 0, 1)
    assert first["input_ids"].tolist() == [
        [2, 5, 5, 3, 0, 0, 0, 0, 0, 0],
        [2, 5, 8, 7, 7, 7, 3, 0, 0, 0],
        [2, 5, 7, 7, 7, 3, 0, 0, 0, 0],
        [2, 5, 9, 7, 7, 7, 7, 3, 0, 0],
    ]
    assert first["masked_input_ids"].tolist() == [
        [2, 5, 4, 3, 0, 0, 0, 0, 0, 0],
        [2, 5, 46, 7, 7, 4, 3, 0, 0, 0],
        [2, 5, 4, 4, 7, 3, 0, 0, 0, 0],
        [2, 28, 9, 7, 7, 4, 7, 3, 0, 0],
    ]
    (seventh,) = train(data, 7, 1)
    assert seventh["masked_lm_positions"].tolist() == [[1, 4, 0], [1, 2, 0], [5, 1, 0], [2, 0, 0]]
    digest = hashlib.sha256()
    for batch in train(data, 0, 20, batch_size=5):
        for name in sorted(batch):
            digest.update(batch[name].tobytes())
    assert digest.hexdigest() == "9bd171144ca7191d51dabf91a7f87ad63df026f471cf87a91c8d6390054b5d8a"


def test_step_one_hundred_thousand_is_reached_at_once(data):
    # 33,333 epochs of twelve examples: the batch is that of the examples in their place, read one by one.
    (batch,) = train(data, 100_000, 1)
    records = records_of(data, 4, first=400_000)
    assert batch["input_ids"].tolist() == data.train.parse(tf.constant(records))["input_ids"].numpy().tolist()
    epoch = records_of(data, 12, first=33_333 * 12)
    assert epoch[4:8] == records
