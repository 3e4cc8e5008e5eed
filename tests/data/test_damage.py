import itertools
import logging
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import MaskingConfig
from electra_tf.data.corpus import PretrainingData, open_data
from electra_tf.data.damage import RecordReader, damaged_data_reported, unreadable
from electra_tf.data.pretraining_input import evaluation_batches, training_batches
from electra_tf.data.record_frames import masked_crc32c, read_frames
from electra_tf.text import records
from electra_tf.text.manifest import Manifest

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


def train(data: PretrainingData, count: int, first_step: int = 0, batch_size: int = 4) -> list[dict[str, np.ndarray]]:
    batches = training_batches(
        data.train, MaskingConfig(), data.masking_vocabulary, seed=3, batch_size=batch_size, first_step=first_step
    )
    with damaged_data_reported():
        return list(itertools.islice(batches.as_numpy_iterator(), count))


def evaluation(data: PretrainingData) -> list[dict[str, np.ndarray]]:
    batches = evaluation_batches(data.held_out, MaskingConfig(), data.masking_vocabulary, seed=3, batch_size=4, max_batches=9)
    with damaged_data_reported():
        return list(batches.as_numpy_iterator())


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x20
    path.write_bytes(content)


def replace_record(path: Path, number: int, record: bytes) -> None:
    """Writes another record, with the right checksums, in the place of one."""
    frames = read_frames(path.read_bytes())
    with tf.io.TFRecordWriter(str(path)) as writer:
        for index, frame in enumerate(frames):
            writer.write(record if index == number else frame.record)


def offset_of(path: Path, number: int) -> int:
    return read_frames(path.read_bytes())[number].offset


def compact(ids: list[int]) -> bytes:
    return records.serialize_example(ids, [len(ids)])


def flip_data(path: Path) -> None:
    flip(path, offset_of(path, 1) + 14)


def flip_length(path: Path) -> None:
    flip(path, offset_of(path, 1) + 1)


def flip_checksum_of_length(path: Path) -> None:
    flip(path, offset_of(path, 1) + 9)


def truncate(path: Path) -> None:
    os.truncate(path, offset_of(path, 1) + 20)


def truncate_between_records(path: Path) -> None:
    os.truncate(path, offset_of(path, 1))


# How the shard is damaged, which of its three records cannot be used, and what is said of the first of them.
DAMAGES = [
    (flip_data, [1], "its checksum does not fit its content"),
    (flip_length, [1, 2], "its length is damaged"),
    (flip_checksum_of_length, [1, 2], "its length is damaged"),
    (truncate, [1, 2], "the file ends inside it"),
    (truncate_between_records, [1, 2], "records too early"),
    (lambda path: replace_record(path, 1, b"no protocol buffer"), [1], "holds no example that fits this run"),
    (lambda path: replace_record(path, 1, compact([2, 47, 3])), [1], "holds no example that fits this run"),
    (lambda path: replace_record(path, 1, compact([2, -1, 3])), [1], "holds no example that fits this run"),
    (lambda path: replace_record(path, 1, compact([2, *[7] * 9, 3])), [1], "holds no example that fits this run"),
]
NAMES = ["data", "length", "length_checksum", "truncated", "cut", "proto", "id_too_large", "id_negative", "too_long"]
damages = pytest.mark.parametrize(("damage", "lost", "problem"), DAMAGES, ids=NAMES)


@damages
def test_a_damaged_record_stops_the_training_in_one_line(directory, opened, damage, lost, problem):
    data, shard = opened("stop"), directory / SHARD
    offset = offset_of(shard, 1)
    damage(shard)
    with pytest.raises(UserError) as caught:
        train(data, 9)
    message = str(caught.value)
    assert message.startswith(f"{shard}: record 1 at byte {offset}: ")
    assert problem in message
    assert "--set data.on_damaged_record=skip" in message
    assert "\n" not in message


@damages
def test_a_record_that_is_left_out_is_a_row_of_padding_and_no_other_moves(
    directory, opened, whole, caplog, damage, lost, problem
):
    lost_rows = [row_of(5 + number, directory) for number in lost]
    data, offset = opened("skip"), offset_of(directory / SHARD, 1)
    damage(directory / SHARD)
    with caplog.at_level(logging.WARNING):
        found = train(data, 9)
    num_lost = 0
    for batch, expected in zip(found, whole, strict=True):
        for row, ids in enumerate(expected["input_ids"].tolist()):
            is_lost = ids in lost_rows
            num_lost += is_lost
            for name in batch:
                assert batch[name][row].tolist() == (expected[name][row] * (not is_lost)).tolist()
    assert num_lost == 3 * len(lost)  # nine batches of four are three epochs
    (line,) = [record.getMessage() for record in caplog.records if "examples count as padding" in record.getMessage()]
    assert f"{SHARD}: record 1 at byte {offset}: " in line
    assert problem in line
    assert line.endswith(f"; {len(lost)} of its 3 examples count as padding")


def row_of(number: int, directory: Path) -> list[int]:
    """The padded ids of an example of the undamaged set."""
    shards = sorted(directory.glob("train-*.tfrecord"))
    frames = [frame for shard in shards for frame in read_frames(shard.read_bytes())]
    ids = tf.train.Example.FromString(frames[number].record).features.feature["input_ids"].int64_list.value
    return list(ids) + [0] * (10 - len(ids))


@pytest.mark.parametrize("on_damaged_record", ["stop", "skip"])
def test_a_shard_that_is_gone_always_stops_the_training(directory, opened, on_damaged_record):
    data = opened(on_damaged_record)
    (directory / SHARD).unlink()
    with pytest.raises(UserError, match=rf"{SHARD} can no longer be read .*No such file.*; bring it back"):
        train(data, 9)


def test_an_empty_shard_counts_as_padding_from_its_first_record_on(directory, opened, caplog):
    data = opened("skip")
    (directory / SHARD).write_bytes(b"")
    rows = np.concatenate([batch["input_mask"] for batch in train(data, 3)])
    assert (rows.sum(axis=1) == 0).sum() == 3
    assert "record 0 at byte 0: the file ends 3 records too early; 3 of its 3 examples" in caplog.text


def test_a_shard_that_is_too_short_from_the_start_is_let_pass_only_if_damage_is(directory, opened):
    os.truncate(directory / SHARD, 50)
    with pytest.raises(UserError, match="has 50 bytes, manifest.json says"):
        opened("stop")
    assert opened("skip").train.num_examples == COUNTS


@pytest.mark.parametrize("on_damaged_record", ["stop", "skip"])
def test_a_shard_with_more_records_than_the_manifest_says_is_refused(directory, opened, on_damaged_record):
    manifest = Manifest.load(directory)
    split = manifest.splits["train"]
    shards = (split.shards[0].model_copy(update={"num_examples": 4}), *split.shards[1:])
    splits = {**manifest.splits, "train": split.model_copy(update={"shards": shards, "num_examples": 11})}
    (directory / "manifest.json").write_text(manifest.model_copy(update={"splits": splits}).to_json())
    with pytest.raises(UserError, match=r"train-00000-of-00003.tfrecord holds more than the 4 examples"):
        train(opened(on_damaged_record), 9)


def test_a_resumed_run_leaves_out_the_same_records(directory, opened):
    data = opened("skip")
    flip_length(directory / SHARD)
    whole, resumed = train(data, 8, batch_size=5), train(data, 3, first_step=5, batch_size=5)
    for batch, expected in zip(resumed, whole[5:], strict=True):
        assert all(np.array_equal(batch[name], expected[name]) for name in expected)


# One that is found when it is read, one that hides those behind it, and one that is found when it is parsed.
@pytest.mark.parametrize(("damage", "lost", "problem"), [DAMAGES[0], DAMAGES[1], DAMAGES[5]])
def test_damage_in_the_held_out_split_is_named_or_left_out_too(directory, opened, damage, lost, problem):
    shard = directory / "held_out-00000-of-00001.tfrecord"
    stop, skip, offset = opened("stop"), opened("skip"), offset_of(shard, 1)
    whole = evaluation(stop)
    damage(shard)
    with pytest.raises(UserError, match=f"{shard.name}: record 1 at byte {offset}: .*{problem}"):
        evaluation(stop)
    found = evaluation(skip)
    first_lost_to_the_end = list(range(1, 7)) if len(lost) > 1 else [1]
    for name in whole[0]:
        expected = np.concatenate([batch[name] for batch in whole])
        expected[first_lost_to_the_end] = 0
        assert np.array_equal(np.concatenate([batch[name] for batch in found]), expected)


def test_records_of_the_authors_layout_are_left_out_likewise(tmp_path, tiny_config):
    names = ("input_ids", "input_mask", "segment_ids")
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in AUTHORS_VOCABULARY))
    path = tmp_path / "pretrain_data.tfrecord-0-of-1"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(3):
            values = ([2, 7 + number, 3, *[0] * 7], [1] * 3 + [0] * 7, [0] * 10)
            lists = [tf.train.Feature(int64_list=tf.train.Int64List(value=value)) for value in values]
            features = tf.train.Features(feature=dict(zip(names, lists, strict=True)))
            writer.write(tf.train.Example(features=features).SerializeToString())
    flip_data(path)
    data = open_data(tmp_path, tiny_config(data={"on_damaged_record": "skip"}))
    (batch,) = train(data, 1, batch_size=3)
    assert sorted(batch["input_ids"][:, 1].tolist()) == [0, 7, 9]
    assert sorted(batch["masked_lm_weights"].sum(axis=1).tolist()) == [0.0, 1.0, 1.0]


AUTHORS_VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{index}" for index in range(5, 47)))


def test_sound_data_never_takes_the_long_way(opened, monkeypatch):
    monkeypatch.setattr("electra_tf.data.damage.read_frames", lambda content: pytest.fail("read again"))
    assert len(train(opened("stop"), 30)) == 30
    assert len(evaluation(opened("skip"))) == 2


def test_a_shard_that_is_whole_when_it_is_read_again_is_used(opened):
    # The storage may fail for a moment.
    corpus = opened("stop").train
    again = RecordReader(corpus, lambda example: 0)._examined_records(np.int64(1))
    assert list(again) == list(tf.data.TFRecordDataset(corpus.files[1]).as_numpy_iterator())


def test_what_a_parser_refuses_is_found_among_what_it_takes(opened):
    good, bad = compact([2, 7, 3]), b"no protocol buffer"
    parse = opened("stop").train.parse
    assert unreadable([good] * 3, parse) == []
    assert unreadable([bad, good, good, bad, good, bad, bad], parse) == [0, 3, 5, 6]
    assert unreadable([], parse) == []


def test_other_errors_of_tensorflow_pass_unchanged():
    with pytest.raises(tf.errors.InvalidArgumentError), damaged_data_reported():
        tf.debugging.assert_equal(1, 2)


def test_a_length_beyond_the_end_of_the_file_is_not_believed_though_its_checksum_is_right(directory, opened):
    header = struct.pack("<Q", 2**20)
    shard = directory / SHARD
    content = shard.read_bytes()
    offset = offset_of(shard, 1)
    data = opened("stop")
    checksum = int(masked_crc32c([header])[0]).to_bytes(4, "little")
    shard.write_bytes(content[:offset] + header + checksum + content[offset + 12 :])
    with pytest.raises(UserError, match=f"record 1 at byte {offset}: the file ends inside it"):
        train(data, 9)
