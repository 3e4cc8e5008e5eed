"""The frames of a TFRecord file, for naming and skipping damaged records after TensorFlow's own reader has failed.

TensorFlow reports "corrupted record at 84" without the file, ends without an error where a file is cut off, and reads
nothing behind a damaged record. A frame is the record's length (8 bytes, little endian), a checksum of these bytes (4),
the record, and a checksum of it (4).
Source: the format is described in tensorflow/core/lib/io/record_writer.h.
"""

import struct
from typing import NamedTuple

import google_crc32c

_LENGTH_BYTES, _HEADER_BYTES, _CHECKSUM_BYTES = 8, 12, 4
_MASK_DELTA = 0xA282EAD8


class Frame(NamedTuple):
    """One frame.

    Attributes:
        offset: its first byte in the file.
        record: None if it is damaged.
        problem: what is wrong with it; empty if nothing is.
    """

    offset: int
    record: bytes | None
    problem: str = ""


def read_frames(content: bytes) -> list[Frame]:
    """The frames of an uncompressed TFRecord file; behind a damaged length no further ones can be found."""
    frames: list[Frame] = []
    offset = 0
    while offset < len(content):
        begin = offset + _HEADER_BYTES
        if begin > len(content):
            return [*frames, Frame(offset, None, "the file ends inside it")]
        length, checksum = struct.unpack_from("<QI", content, offset)
        if masked_crc32c(content[offset : offset + _LENGTH_BYTES]) != checksum:
            return [*frames, Frame(offset, None, "its length is damaged, so the records behind it cannot be found")]
        end = begin + length
        if end + _CHECKSUM_BYTES > len(content):
            return [*frames, Frame(offset, None, "the file ends inside it")]
        record = content[begin:end]
        if masked_crc32c(record) == int.from_bytes(content[end : end + _CHECKSUM_BYTES], "little"):
            frames.append(Frame(offset, record))
        else:
            frames.append(Frame(offset, None, "its checksum does not match its content"))
        offset = end + _CHECKSUM_BYTES
    return frames


def first_damage(frames: list[Frame]) -> str:
    """Says which record is the first damaged one, where, and what is wrong with it; empty if none is."""
    damaged = ((number, frame) for number, frame in enumerate(frames) if frame.record is None)
    return next((f"record {number} at byte {frame.offset}: {frame.problem}" for number, frame in damaged), "")


def masked_crc32c(data: bytes) -> int:
    """The CRC-32C of some bytes as TFRecord files store it: rotated and shifted."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF
