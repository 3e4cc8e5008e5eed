"""The frames of a TFRecord file, for naming and skipping damaged records after TensorFlow's own reader has failed.

TensorFlow reports "corrupted record at 84" without the file, ends without an error where a file is cut off, and reads
nothing behind a damaged record. A frame is the record's length (8 bytes, little endian), a checksum of these bytes (4),
the record, and a checksum of it (4).
Source: the format is described in tensorflow/core/lib/io/record_writer.h.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c
import tensorflow as tf

_LENGTH_BYTES, _HEADER_BYTES, _CHECKSUM_BYTES = 8, 12, 4
_MASK_DELTA = 0xA282EAD8
_CUT_OFF = "the file ends inside it"


class Frame(NamedTuple):
    """One frame: its first byte in the file; the record, None if it is damaged; and what is wrong with it, or ""."""

    offset: int
    record: bytes | None
    problem: str = ""


def read_frames(path: str) -> Iterator[Frame]:
    """The frames of an uncompressed TFRecord file; behind a damaged length no further ones can be found.

    Raises: tf.errors.OpError: if it cannot be read.
    """
    with tf.io.gfile.GFile(path, "rb") as file:
        offset, size = 0, file.size()
        while offset < size:
            header = file.read(_HEADER_BYTES)
            if len(header) < _HEADER_BYTES:
                yield Frame(offset, None, _CUT_OFF)
                return
            length, checksum = struct.unpack("<QI", header)
            if masked_crc32c(header[:_LENGTH_BYTES]) != checksum:
                yield Frame(offset, None, "its length is damaged, so the records behind it cannot be found")
                return
            end = offset + _HEADER_BYTES + length + _CHECKSUM_BYTES
            if end > size:
                yield Frame(offset, None, _CUT_OFF)
                return
            record = file.read(length)
            if masked_crc32c(record) == int.from_bytes(file.read(_CHECKSUM_BYTES), "little"):
                yield Frame(offset, record)
            else:
                yield Frame(offset, None, "its checksum does not match its content")
            offset = end


def masked_crc32c(data: bytes) -> int:
    """The CRC-32C of some bytes as TFRecord files store it: rotated and shifted."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF
