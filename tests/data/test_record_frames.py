import pytest
import tensorflow as tf

from electra_tf.data.record_frames import masked_crc32c, read_frames

RECORDS = [b"abc", b"", b"defgh" * 30, b"\x00\xff\x00"]
# 16 bytes around each record.
OFFSETS = [0, 19, 35, 201]


@pytest.fixture
def content(tmp_path) -> bytes:
    with tf.io.TFRecordWriter(str(tmp_path / "file")) as writer:
        for record in RECORDS:
            writer.write(record)
    return (tmp_path / "file").read_bytes()


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x20]) + content[place + 1 :]


def test_the_checksum_of_the_standard_example_is_the_standards():
    # RFC 3720, B.4: CRC-32C of 32 zeros and of 32 ones; masked as TensorFlow does.
    raw = [0x8A9136AA, 0x62A8AB43]
    masked = [(((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF for crc in raw]
    assert masked_crc32c([bytes(32), b"\xff" * 32]).tolist() == masked


def test_checksums_do_not_depend_on_what_lengths_stand_beside_them():
    records = [b"x" * length for length in (3, 0, 7, 3, 12)]
    assert masked_crc32c(records).tolist() == [masked_crc32c([record])[0] for record in records]
    assert masked_crc32c([]).tolist() == []


def test_the_frames_that_tensorflow_wrote_are_sound(content):
    frames = read_frames(content)
    assert [frame.record for frame in frames] == RECORDS
    assert [frame.offset for frame in frames] == OFFSETS
    assert not any(frame.problem for frame in frames)


# In the first record's data, and in the third's checksum.
@pytest.mark.parametrize(("place", "damaged"), [(13, 0), (199, 2)])
def test_damaged_data_costs_one_record(content, place, damaged):
    frames = read_frames(flipped(content, place))
    assert [frame.record for frame in frames] == [None if n == damaged else r for n, r in enumerate(RECORDS)]
    assert frames[damaged].problem == "its checksum does not fit its content"


# In the third record's length, and in the checksum of that.
@pytest.mark.parametrize("place", [35, 37, 44])
def test_behind_a_damaged_length_nothing_is_read(content, place):
    frames = read_frames(flipped(content, place))
    assert [frame.record for frame in frames] == [b"abc", b"", None]
    assert frames[2].offset == 35
    assert "its length is damaged" in frames[2].problem


@pytest.mark.parametrize(("size", "num_frames"), [(219, 4), (202, 4), (200, 3), (40, 3), (5, 1)])
def test_a_file_that_ends_too_early_ends_in_a_damaged_frame(content, size, num_frames):
    frames = read_frames(content[:size])
    assert len(frames) == num_frames
    assert frames[-1] == (OFFSETS[num_frames - 1], None, "the file ends inside it")


def test_an_empty_file_has_no_frames():
    assert read_frames(b"") == []
