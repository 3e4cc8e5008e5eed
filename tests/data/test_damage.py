import itertools
import logging
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import MaskingConfig
from electra_tf.data.corpus import PretrainingData, open_data
from electra_tf.data.damage import DamagedData, RecordReader, damaged_data_reported, unreadable
from electra_tf.data.pretraining_input import evaluation_batches, training_batches
from electra_tf.data.record_frames import read_frames
from electra_tf.text import records

COUNTS = (5, 3, 4)
SHARD = "train-00001-of-00003.tfrecord"  # examples 5, 6 and 7 of the set


@pytest.fixture
def directory(tmp_path, write_data) -> Path:
    return write_data(tmp_path / "set", train=COUNTS)


@pytest.fixture
def opened(directory, tiny_config):
    """`opened("skip")`: the data set as a run with that setting sees it."""

    def build(on_damaged_record: str) -> PretrainingData:
        return open_data(directory, tiny_config(data={"on_damaged_record": on_damaged_record}))

    return build


@pytest.fixture(scope="module")
def whole(tmp_path_factory, write_data, tiny_config) -> list[dict[str, np.ndarray]]:
    """The first nine batches, three epochs, of the undamaged set."""
    directory = write_data(tmp_path_factory.mktemp("whole") / "set", train=COUNTS)
    return train(open_data(directory, tiny_config()), 9)


def train(data: PretrainingData, count: int, first_step: int = 0) -> list[dict[str, np.ndarray]]:
    settings = {"seed": 3, "batch_size": 4, "first_step": first_step}
    batches = training_batches(data.train, MaskingConfig(), data.masking_vocabulary, **settings)
    with damaged_data_reported():
        return list(itertools.islice(batches.as_numpy_iterator(), count))


def evaluation(data: PretrainingData) -> dict[str, np.ndarray]:
    settings = {"seed": 3, "batch_size": 4, "max_batches": 9}
    batches = evaluation_batches(data.held_out, MaskingConfig(), data.masking_vocabulary, **settings)
    with damaged_data_reported():
        found = list(batches.as_numpy_iterator())
    return {name: np.concatenate([batch[name] for batch in found]) for name in found[0]}


def examined(data: PretrainingData, shard: int = 1) -> list[bytes]:
    return list(RecordReader(data.train, lambda example: 0).examine(np.int64(shard)))


def offset_of(path: Path, number: int) -> int:
    return read_frames(path.read_bytes())[number].offset


def flip(place: int):
    """Flips a bit of the second record, at a place of its frame."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[offset_of(path, 1) + place] ^= 0x20
        path.write_bytes(content)

    return damage


def cut(place: int):
    """Ends the file at a place of the second record's frame."""
    return lambda path: os.truncate(path, offset_of(path, 1) + place)


def replace(record: bytes):
    """Writes another record, with the right checksums, in the place of the second one."""

    def damage(path: Path) -> None:
        frames = read_frames(path.read_bytes())
        with tf.io.TFRecordWriter(str(path)) as writer:
            for number, frame in enumerate(frames):
                writer.write(record if number == 1 else frame.record)

    return damage


def compact(*ids: int) -> bytes:
    return records.serialize_example(ids, [len(ids)])


LENGTH, UNFIT = "its length is damaged", "holds no example that fits this run"
# How the shard is damaged, which of its three records cannot be used, and what is said of the second.
DAMAGES = {
    "data": (flip(14), [1], "its checksum does not match its content"),
    "length": (flip(1), [1, 2], LENGTH),
    "length_checksum": (flip(9), [1, 2], LENGTH),
    "truncated": (cut(20), [1, 2], "the file ends inside it"),
    "cut_between_records": (cut(0), [1, 2], "the file ends 2 records too early"),
    "no_example": (replace(b"no protocol buffer"), [1], UNFIT),
    "id_too_large": (replace(compact(2, 47, 3)), [1], UNFIT),
    "id_negative": (replace(compact(2, -1, 3)), [1], UNFIT),
    "too_long": (replace(compact(2, *[7] * 9, 3)), [1], UNFIT),
}
# One that is found when it is read, and one when it is parsed.
in_a_run = pytest.mark.parametrize("name", ["length", "id_too_large"])


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_record_is_named_in_one_line_or_replaced_by_padding(directory, opened, caplog, name):
    damage, lost, problem = DAMAGES[name]
    stop, skip, shard = opened("stop"), opened("skip"), directory / SHARD
    offset, sound = offset_of(shard, 1), examined(stop)
    damage(shard)
    with pytest.raises(DamagedData) as caught:
        examined(stop)
    message = str(caught.value)
    assert message.startswith(f"{shard}: record 1 at byte {offset}: ")
    assert problem in message
    assert message.endswith("with --set data.on_damaged_record=skip")
    assert "\n" not in message

    reader = RecordReader(skip.train, lambda example: 0)
    with caplog.at_level(logging.WARNING):
        found = [list(reader.examine(np.int64(1))) for _ in range(2)]
    padding = skip.train.padding
    assert found == [[padding if number in lost else sound[number] for number in range(3)]] * 2
    (line,) = [record.getMessage() for record in caplog.records]  # once, however often the shard is read
    assert f"{SHARD}: record 1 at byte {offset}: " in line
    assert line.endswith(f"; {len(lost)} of its 3 examples count as padding")


@in_a_run
def test_a_damaged_record_stops_the_training_in_one_line(directory, opened, name):
    damage, _, problem = DAMAGES[name]
    data, shard = opened("stop"), directory / SHARD
    offset = offset_of(shard, 1)
    damage(shard)
    with pytest.raises(UserError) as caught:
        train(data, 9)
    message = str(caught.value)
    assert message.startswith(f"{shard}: record 1 at byte {offset}: ")
    assert problem in message
    assert "\n" not in message


@in_a_run
def test_a_record_that_is_left_out_is_a_row_of_padding_and_no_other_moves(
    directory, opened, whole, numbered_examples, name
):
    damage, lost, _ = DAMAGES[name]
    examples = [ids + [0] * (10 - len(ids)) for ids in numbered_examples(5, 3)]
    data = opened("skip")
    damage(directory / SHARD)
    found, resumed = train(data, 9), train(data, 2, first_step=7)
    num_lost = 0
    for batch, expected in zip(found + resumed, whole + whole[7:], strict=True):
        is_kept = np.array([ids not in [examples[number] for number in lost] for ids in expected["input_ids"].tolist()])
        num_lost += (~is_kept).sum()
        assert all(np.array_equal(batch[name], expected[name] * is_kept[:, np.newaxis]) for name in batch)
    assert num_lost >= 3 * len(lost)  # nine batches of four are three epochs


@pytest.mark.parametrize("on_damaged_record", ["stop", "skip"])
def test_a_shard_that_is_gone_always_stops_the_training(directory, opened, on_damaged_record):
    data = opened(on_damaged_record)
    (directory / SHARD).unlink()
    with pytest.raises(DamagedData, match=rf"{SHARD} can no longer be read .*No such file.*; bring it back"):
        examined(data)


def test_an_empty_shard_counts_as_padding_from_its_first_record_on(directory, opened, caplog):
    data = opened("skip")
    (directory / SHARD).write_bytes(b"")
    assert examined(data) == [data.train.padding] * 3
    assert "record 0 at byte 0: the file ends 3 records too early; 3 of its 3 examples" in caplog.text


def test_a_shard_that_is_too_short_from_the_start_is_let_pass_only_if_damage_is(directory, opened):
    os.truncate(directory / SHARD, 50)
    with pytest.raises(UserError, match="has 50 bytes, manifest.json says"):
        opened("stop")
    assert opened("skip").train.num_examples == COUNTS


def test_a_shard_with_more_records_than_the_manifest_says_is_refused(directory, opened):
    data = opened("skip")
    with tf.io.TFRecordWriter(str(directory / SHARD)) as writer:
        for number in range(4):
            writer.write(compact(2, 7 + number, 3))
    with pytest.raises(UserError, match=rf"{SHARD} holds more than the 3 examples"):
        train(data, 9)


def test_damage_in_the_held_out_split_is_named_or_left_out_too(directory, opened):
    shard = directory / "held_out-00000-of-00001.tfrecord"
    stop, skip, offset = opened("stop"), opened("skip"), offset_of(shard, 1)
    expected = evaluation(stop)
    DAMAGES["no_example"][0](shard)
    with pytest.raises(UserError, match=f"{shard.name}: record 1 at byte {offset}: .*{UNFIT}"):
        evaluation(stop)
    flip(1)(shard)
    found = evaluation(skip)
    for name, values in expected.items():
        values[1:7] = 0
        assert np.array_equal(found[name], values)


def test_padding_of_the_authors_layout_is_a_row_without_a_token(directory, tiny_config):
    feature = {"input_ids": [2, 7, 3, *[0] * 7], "input_mask": [1] * 3 + [0] * 7, "segment_ids": [0] * 10}
    example = tf.train.Example()
    for name, values in feature.items():
        example.features.feature[name].int64_list.value.extend(values)
    (directory / "manifest.json").unlink()
    path = directory / "pretrain_data.tfrecord-0-of-1"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(3):
            writer.write(example.SerializeToString())
    flip(14)(path)
    data = open_data(directory, tiny_config(data={"on_damaged_record": "skip"}))
    batch = data.train.parse(tf.constant(examined(data, shard=0)))
    assert batch["input_ids"].numpy()[:, 1].tolist() == [7, 0, 7]
    assert batch["input_mask"].numpy().sum(axis=1).tolist() == [3, 0, 3]


def test_sound_data_is_read_by_tensorflow_alone(opened, monkeypatch):
    monkeypatch.setattr("electra_tf.data.damage.read_frames", lambda content: pytest.fail("read again"))
    assert len(train(opened("stop"), 9)) == 9


def test_a_shard_that_is_whole_when_it_is_read_again_is_used(opened):
    """The storage may fail for a moment."""
    data = opened("stop")
    assert examined(data) == list(tf.data.TFRecordDataset(data.train.files[1]).as_numpy_iterator())


def test_what_a_parser_refuses_is_found_among_what_it_takes(opened):
    good, bad = compact(2, 7, 3), b"no protocol buffer"
    parse = opened("stop").train.parse
    assert unreadable([good] * 3, parse) == []
    assert unreadable([bad, good, good, bad, good, bad, bad], parse) == [0, 3, 5, 6]
    assert unreadable([], parse) == []


def test_other_errors_of_tensorflow_pass_unchanged():
    with pytest.raises(tf.errors.InvalidArgumentError), damaged_data_reported():
        tf.debugging.assert_equal(1, 2)
