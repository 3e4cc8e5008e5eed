import itertools
import logging
import struct
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import MaskingConfig
from electra_tf.data.corpus import PretrainingData, open_data
from electra_tf.data.damage import DamagedData, RecordReader, damaged_data_reported, unreadable
from electra_tf.data.pretraining_input import evaluation_batches, training_batches
from electra_tf.data.record_frames import masked_crc32c, read_frames
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("electra_tf.data.damage.read_frames", lambda content: pytest.fail("sound data was examined"))
        return train(open_data(directory, tiny_config()), 9)


def train(data: PretrainingData, count: int, first_step: int = 0) -> list[dict[str, np.ndarray]]:
    settings = {"seed": 3, "batch_size": 4, "first_step": first_step}
    batches = training_batches(data, MaskingConfig(), **settings)
    with damaged_data_reported():
        return list(itertools.islice(batches.as_numpy_iterator(), count))


def evaluation(data: PretrainingData) -> dict[str, np.ndarray]:
    settings = {"seed": 3, "batch_size": 4, "max_batches": 9}
    batches = evaluation_batches(data, MaskingConfig(), **settings)
    with damaged_data_reported():
        found = list(batches.as_numpy_iterator())
    return {name: np.concatenate([batch[name] for batch in found]) for name in found[0]}


def examined(data: PretrainingData, shard: int = 1) -> list[bytes]:
    return list(RecordReader(data.train).examine(np.int64(shard)))


def flip(place: int):
    """Flips a bit at a place of the record's frame."""
    return lambda content, begin, end: (
        content[: begin + place] + bytes([content[begin + place] ^ 0x20]) + content[begin + place + 1 :]
    )


def cut(place: int):
    """Ends the file at a place of the record's frame."""
    return lambda content, begin, end: content[: begin + place]


def replace(record: bytes):
    """Puts another record, with the right checksums, in the place of one."""
    return lambda content, begin, end: content[:begin] + header(len(record)) + record + stored(record) + content[end:]


def header(length: int) -> bytes:
    return struct.pack("<Q", length) + stored(struct.pack("<Q", length))


def stored(data: bytes) -> bytes:
    return masked_crc32c(data).to_bytes(4, "little")


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


def damage(path: Path, name: str) -> int:
    """Damages the second record; returns where it begins."""
    begin, end = (frame.offset for frame in list(read_frames(str(path)))[1:3])
    path.write_bytes(DAMAGES[name][0](path.read_bytes(), begin, end))
    return begin


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_record_is_named_in_one_line_or_replaced_by_padding(directory, opened, caplog, name):
    _, lost, problem = DAMAGES[name]
    stop, skip, shard = opened("stop"), opened("skip"), directory / SHARD
    sound = examined(stop)  # a whole shard is given as it is: storage may fail once
    offset = damage(shard, name)
    with pytest.raises(DamagedData) as caught:
        examined(stop)
    message = str(caught.value)
    assert message.startswith(f"{shard}: record 1 at byte {offset}: ")
    assert problem in message
    assert message.endswith("with --set data.on_damaged_record=skip")
    assert "\n" not in message

    reader = RecordReader(skip.train)
    with caplog.at_level(logging.WARNING):
        found = [list(reader.examine(np.int64(1))) for _ in range(2)]
    padding = skip.train.padding
    assert found == [[padding if number in lost else sound[number] for number in range(3)]] * 2
    (line,) = [record.getMessage() for record in caplog.records]  # once, however often the shard is read
    assert f"{SHARD}: record 1 at byte {offset}: " in line
    assert line.endswith(f"; {len(lost)} of its 3 examples count as padding")


# One that is found when it is read, and one when it is parsed.
@pytest.mark.parametrize("name", ["length", "id_too_large"])
def test_in_a_run_damage_stops_or_is_a_row_of_padding_and_no_other_moves(
    directory, opened, whole, numbered_examples, name
):
    _, lost, problem = DAMAGES[name]
    examples = [ids + [0] * (10 - len(ids)) for ids in numbered_examples(5, 3)]
    stop, data = opened("stop"), opened("skip")
    offset = damage(directory / SHARD, name)
    with pytest.raises(UserError, match=rf"{SHARD}: record 1 at byte {offset}: .*{problem}"):
        train(stop, 9)
    found, resumed = train(data, 9), train(data, 2, first_step=7)
    num_lost = 0
    for batch, expected in zip(found + resumed, whole + whole[7:], strict=True):
        is_kept = np.array([ids not in [examples[number] for number in lost] for ids in expected["input_ids"].tolist()])
        num_lost += (~is_kept).sum()
        for name, values in batch.items():
            assert np.array_equal(values, np.where(is_kept[:, np.newaxis], expected[name], 0), equal_nan=True)
    assert num_lost >= 3 * len(lost)  # nine batches of four are three epochs


@pytest.mark.parametrize("on_damaged_record", ["stop", "skip"])
def test_a_shard_that_is_gone_always_stops_the_training(directory, opened, on_damaged_record):
    data = opened(on_damaged_record)
    (directory / SHARD).unlink()
    with pytest.raises(DamagedData, match=rf"{SHARD} can no longer be read .*No such file.*; bring it back"):
        examined(data)


def test_a_shard_with_more_records_than_the_manifest_says_is_refused(directory, opened):
    data = opened("skip")
    with tf.io.TFRecordWriter(str(directory / SHARD)) as writer:
        for number in range(4):
            writer.write(compact(2, 7 + number, 3))
    with pytest.raises(UserError, match=rf"{SHARD} holds more than the 3 examples"):
        train(data, 9)


def test_damage_in_the_held_out_split_is_named_or_left_out_too(directory, opened):
    shard = directory / "held_out-00000-of-00001.tfrecord"
    stop, skip = opened("stop"), opened("skip")
    expected = evaluation(stop)
    offset = damage(shard, "no_example")
    with pytest.raises(UserError, match=f"{shard.name}: record 1 at byte {offset}: .*{UNFIT}"):
        evaluation(stop)
    damage(shard, "length")
    found = evaluation(skip)
    for name, values in expected.items():
        values[1:7] = 0
        assert np.array_equal(found[name], values, equal_nan=True)


def test_what_a_parser_refuses_is_found_among_what_it_takes(opened):
    good, bad = compact(2, 7, 3), b"no protocol buffer"
    parse = opened("stop").train.parse
    assert unreadable([good] * 3, parse) == []
    assert unreadable([bad, good, good, bad, good, bad, bad], parse) == [0, 3, 5, 6]
    assert unreadable([], parse) == []


def test_other_errors_of_tensorflow_pass_unchanged():
    with pytest.raises(tf.errors.InvalidArgumentError), damaged_data_reported():
        tf.debugging.assert_equal(1, 2)


# Four records, with 16 bytes around each.
RECORDS, OFFSETS = [b"abc", b"", b"defgh" * 30, b"\x00\xff\x00"], [0, 19, 35, 201]


@pytest.fixture
def file(tmp_path) -> Path:
    with tf.io.TFRecordWriter(str(tmp_path / "file")) as writer:
        for record in RECORDS:
            writer.write(record)
    return tmp_path / "file"


def test_the_frames_that_tensorflow_wrote_are_sound(file):
    frames = [(offset, record, "") for offset, record in zip(OFFSETS, RECORDS, strict=True)]
    assert list(read_frames(str(file))) == frames
    file.write_bytes(b"")
    assert list(read_frames(str(file))) == []


@pytest.mark.parametrize(("size", "num_frames"), [(219, 4), (202, 4), (200, 3), (40, 3), (5, 1)])
def test_a_file_that_ends_too_early_ends_in_a_damaged_frame(file, size, num_frames):
    file.write_bytes(file.read_bytes()[:size])
    frames = list(read_frames(str(file)))
    assert len(frames) == num_frames
    assert frames[-1] == (OFFSETS[num_frames - 1], None, "the file ends inside it")


def test_a_length_beyond_the_end_of_the_file_is_not_believed_though_its_checksum_is_right(file):
    content = file.read_bytes()
    file.write_bytes(content[:19] + header(2**60) + content[31:])
    assert list(read_frames(str(file)))[1:] == [(19, None, "the file ends inside it")]
