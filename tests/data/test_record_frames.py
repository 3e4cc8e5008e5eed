import struct

import pytest
import tensorflow as tf

from electra_tf.data.record_frames import masked_crc32c, read_frames

RECORDS = [b"abc", b"", b"defgh" * 30, b"\x00\xff\x00"]
# 16 bytes around each record.
OFFSETS = [0, 19, 35, 201]
CHECKSUM, LENGTH, END = "its checksum does not match", "its length is damaged", "the file ends inside it"


@pytest.fixture
def content(tmp_path) -> bytes:
    with tf.io.TFRecordWriter(str(tmp_path / "file")) as writer:
        for record in RECORDS:
            writer.write(record)
    return (tmp_path / "file").read_bytes()


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x20]) + content[place + 1 :]


def test_the_frames_that_tensorflow_wrote_are_sound(content):
    assert read_frames(content) == [(offset, record, "") for offset, record in zip(OFFSETS, RECORDS, strict=True)]
    assert read_frames(b"") == []


# In the first record's data, in the third's checksum; in the third's length, and in the checksum of that.
@pytest.mark.parametrize(
    ("place", "damaged", "num_frames", "problem"),
    [(13, 0, 4, CHECKSUM), (199, 2, 4, CHECKSUM), (37, 2, 3, LENGTH), (44, 2, 3, LENGTH)],
)
def test_a_flipped_bit_costs_one_record_or_all_behind_a_length(content, place, damaged, num_frames, problem):
    frames = read_frames(flipped(content, place))
    expected = [None if number == damaged else record for number, record in enumerate(RECORDS)][:num_frames]
    assert [frame.record for frame in frames] == expected
    assert frames[damaged].offset == OFFSETS[damaged]
    assert problem in frames[damaged].problem


@pytest.mark.parametrize(("size", "num_frames"), [(219, 4), (202, 4), (200, 3), (40, 3), (5, 1)])
def test_a_file_that_ends_too_early_ends_in_a_damaged_frame(content, size, num_frames):
    frames = read_frames(content[:size])
    assert len(frames) == num_frames
    assert frames[-1] == (OFFSETS[num_frames - 1], None, END)


def test_a_length_beyond_the_end_of_the_file_is_not_believed_though_its_checksum_is_right(content):
    header = struct.pack("<Q", 2**20)
    checksum = masked_crc32c(header).to_bytes(4, "little")
    assert read_frames(content[:19] + header + checksum + content[31:])[1:] == [(19, None, END)]
