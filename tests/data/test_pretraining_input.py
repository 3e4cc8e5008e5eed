import contextlib
import hashlib
import itertools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import MaskingConfig
from electra_tf.data import corpus
from electra_tf.data.corpus import damaged_data_reported, open_data
from electra_tf.data.pretraining_input import (
    evaluation_batches,
    num_evaluation_batches,
    shuffled_records,
    training_batches,
)
from electra_tf.data.records import ExampleSerializer

MASKING = MaskingConfig(masked_fraction=0.3, mask_token_fraction=0.5, random_token_fraction=0.3)


@pytest.fixture(scope="module")
def data(tmp_path_factory, write_data, tiny_config):
    """Three training shards of 5, 3 and 4 examples, one held-out shard of 7."""
    return open_data(write_data(tmp_path_factory.mktemp("data") / "set"), tiny_config())


def train(
    data, first_step: int, count: int, *, seed=3, batch_size=4, context=None, masking=MASKING
) -> list[dict[str, np.ndarray]]:
    settings = {"seed": seed, "batch_size": batch_size, "first_step": first_step, "num_steps": 8}
    batches = training_batches(data, masking, **settings, input_context=context)
    return list(itertools.islice(batches.as_numpy_iterator(), count))


def evaluation(data, *, batch_size=4, max_batches=9, context=None) -> list[dict[str, np.ndarray]]:
    settings = {"seed": 3, "batch_size": batch_size, "max_batches": max_batches, "input_context": context}
    return list(evaluation_batches(data, MASKING, **settings).as_numpy_iterator())


def same(first: list[dict], second: list[dict]) -> bool:
    return len(first) == len(second) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)
        for a, b in zip(first, second, strict=True)
    )


def contexts(num_pipelines: int, num_replicas: int) -> list[tf.distribute.InputContext]:
    return [tf.distribute.InputContext(num_pipelines, index, num_replicas) for index in range(num_pipelines)]


def records_of(data, count: int, first: int = 0) -> list[bytes]:
    return list(shuffled_records(data.train, 3, first).take(count).as_numpy_iterator())


@pytest.fixture(scope="module")
def stream(data) -> list[bytes]:
    """The records of four epochs."""
    return records_of(data, 48)


def test_every_epoch_visits_every_example_exactly_once(data, stream):
    on_disk = Counter(tf.data.TFRecordDataset(list(data.train.files)).as_numpy_iterator())
    assert len(on_disk) == 12
    assert all(Counter(stream[start : start + 12]) == on_disk for start in range(0, 48, 12))


@pytest.mark.parametrize("first", [1, 12, 35])
def test_reading_can_start_at_any_example(data, stream, first):
    assert records_of(data, 8, first=first) == stream[first : first + 8]


def test_the_masked_fraction_goes_from_the_first_number_to_the_second_over_the_steps(data):
    # Of 4 to 9 tokens, two of them special: no product is half of an odd number.
    masking = MaskingConfig(masked_fraction=(0.93, 0.13))
    batches = train(data, 0, 10, masking=masking)
    for step, batch in enumerate(batches):
        fraction = 0.93 - 0.1 * min(step, 8)
        lengths = batch["input_mask"].sum(axis=1)
        expected = [min(max(1, round(fraction * length)), length - 2) for length in lengths.tolist()]
        assert batch["masked_lm_weights"].sum(axis=1).tolist() == expected
        assert batch["masked_lm_positions"].shape == (4, 9)
    assert same(train(data, 5, 3, masking=masking), batches[5:8])  # a batch does not depend on the first step


def test_replicas_get_consecutive_slices_of_a_batch(data):
    """Two pipelines with two replicas each."""
    parts = [train(data, 2, 3 * 2, batch_size=8, context=context) for context in contexts(2, 4)]
    assert parts[0][0]["input_ids"].shape == (2, 10)
    for step, whole in enumerate(train(data, 2, 3, batch_size=8)):
        replicas = [pipeline[2 * step + index] for pipeline in parts for index in range(2)]
        joined = {name: np.concatenate([replica[name] for replica in replicas]) for name in whole}
        assert same([joined], [whole])


def test_evaluation_reads_in_the_order_on_disk_and_ends_with_padding_rows(data, numbered_examples):
    batches = evaluation(data)
    assert len(batches) == num_evaluation_batches(data, batch_size=4, max_batches=9)
    assert [len(batch["input_ids"]) for batch in batches] == [4, 4]
    rows = np.concatenate([batch["input_ids"] for batch in batches]).tolist()
    assert rows == [ids + [0] * (10 - len(ids)) for ids in numbered_examples(12, 7)] + [[0] * 10]
    assert not any(batches[1][name][3].any() for name in batches[1])
    assert all(batches[1]["masked_lm_weights"][row].any() for row in range(3))
    assert len(evaluation(data, batch_size=2, max_batches=3)) == num_evaluation_batches(data, 2, 3) == 3


def test_workers_get_consecutive_slices_of_an_evaluation_batch(data):
    whole = evaluation(data)
    parts = [evaluation(data, context=context) for context in contexts(2, 2)]
    joined = [{name: np.concatenate([part[step][name] for part in parts]) for name in whole[0]} for step in range(2)]
    assert same(joined, whole)


def test_the_first_twenty_batches_are_those_of_earlier_versions(data):
    """A resumed run must read the same batches as before, also with a newer version."""
    digest, only_reported = hashlib.sha256(), {"mask_token_weights", "unigram_losses"}
    for batch in train(data, 0, 20, batch_size=5):
        for name in sorted(batch.keys() - only_reported):
            digest.update(batch[name].tobytes())
    assert digest.hexdigest() == "9bd171144ca7191d51dabf91a7f87ad63df026f471cf87a91c8d6390054b5d8a"


SHARD = "train-00001-of-00003.tfrecord"  # three examples


def flip_a_bit(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x20
    path.write_bytes(content)


def write(path, records) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


@pytest.mark.parametrize(
    ("num_records", "problem", "split"),
    [
        (None, "corrupted record", "train"),
        (2, "2 records, expected 3", "train"),
        (6, "6 records, expected 3", "held_out"),
    ],
)
def test_a_shard_damaged_in_a_run_is_named_in_one_line(tmp_path, write_data, tiny_config, num_records, problem, split):
    directory = write_data(tmp_path / "set", train=(5, 3, 4), held_out=(3,))
    data = open_data(directory, tiny_config())
    name = SHARD if split == "train" else "held_out-00000-of-00001.tfrecord"
    if num_records:
        both = list(tf.data.TFRecordDataset([str(directory / name)] * 2).as_numpy_iterator())
        write(directory / name, both[:num_records])
    else:
        flip_a_bit(directory / name)
    with pytest.raises(UserError, match=f"{name}.*{problem}") as caught, damaged_data_reported():
        train(data, 0, 9) if split == "train" else evaluation(data)
    assert "\n" not in str(caught.value)


def test_a_shard_that_cannot_be_read_for_a_moment_is_read_again(tmp_path, write_data, tiny_config, caplog, monkeypatch):
    directory = write_data(tmp_path / "set", train=(5, 3, 4))
    data, path = open_data(directory, tiny_config()), directory / SHARD
    expected, content = train(data, 0, 3), path.read_bytes()
    flip_a_bit(path)

    @contextlib.contextmanager
    def reading_again(place, problem):
        path.write_bytes(content)
        yield

    monkeypatch.setattr(corpus, "store_errors", reading_again)
    for batch, other in zip(train(data, 0, 3), expected, strict=True):
        assert all((batch[name] == other[name]).all() for name in other)
    assert any(str(path) in message for message in caplog.messages)


@pytest.mark.parametrize("ids", [(2, 47, 3), (2, -1, 3)])  # the first is a row of the word table without a token
def test_an_id_outside_the_vocabulary_is_an_error_that_names_the_data_set(tmp_path, write_data, tiny_config, ids):
    directory = write_data(tmp_path / "set", train=(5, 3, 4))
    data = open_data(directory, tiny_config(encoder={"vocab_size": 48}))
    write(directory / SHARD, [ExampleSerializer()(ids, [3])] * 3)
    with pytest.raises(UserError, match=f"^{directory}: a token id is not in the vocabulary$"), damaged_data_reported():
        train(data, 0, 9)
