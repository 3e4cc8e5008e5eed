"""What stands in a TFRecord file, frame by frame, read on the host: where TensorFlow's own reader has failed.

TensorFlow says "corrupted record at 84" and names no file; here every frame is looked at, so that the damaged ones can
be named and the others still be used. A frame is the record's length (8 bytes, little endian), a checksum of these
bytes (4), the record, and a checksum of it (4).
Source: the format as tensorflow/core/lib/io/record_writer.h describes it; CRC-32C as RFC 3720, appendix B.4.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LENGTH_BYTES, HEADER_BYTES, FRAME_BYTES = 8, 12, 16

_REVERSED_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8  # a checksum is stored rotated and shifted, lest a record that holds checksums fool its own


class Frame(NamedTuple):
    """One frame.

    Attributes:
        offset: its first byte in the file.
        record: None where it is damaged.
        problem: what is wrong with it; empty where nothing is.
    """

    offset: int
    record: bytes | None
    problem: str


def read_frames(content: bytes) -> list[Frame]:
    """The frames of a file. Behind a length that cannot be trusted nothing can be told apart: such a frame is the last.

    Args:
        content: of an uncompressed TFRecord file.
    """
    spans, tail = _spans(content)
    records = [content[start + HEADER_BYTES : end - 4] for start, end in spans]
    stored = np.array([int.from_bytes(content[end - 4 : end], "little") for _, end in spans], np.uint32)
    whole = masked_crc32c(records) == stored
    frames = [
        Frame(start, record, "") if is_whole else Frame(start, None, "its checksum does not fit its content")
        for (start, _), record, is_whole in zip(spans, records, whole, strict=True)
    ]
    return frames + tail


def _spans(content: bytes) -> tuple[list[tuple[int, int]], list[Frame]]:
    """Begin and end of each frame whose length is sound, and the frame that is not, if there is one."""
    spans, offset = [], 0
    while offset < len(content):
        header = content[offset : offset + HEADER_BYTES]
        if len(header) < HEADER_BYTES:
            return spans, [Frame(offset, None, "the file ends inside it")]
        length, checksum = struct.unpack("<QI", header)
        if _masked(_crc32c(header[:LENGTH_BYTES])) != checksum:
            return spans, [Frame(offset, None, "its length is damaged, so what follows cannot be told apart")]
        if offset + FRAME_BYTES + length > len(content):
            return spans, [Frame(offset, None, "the file ends inside it")]
        spans.append((offset, offset + FRAME_BYTES + length))
        offset = spans[-1][1]
    return spans, []


def masked_crc32c(records: Sequence[bytes]) -> np.ndarray:
    """[n] uint32: the checksum of each record as TFRecord files store it.

    All records advance together, a byte a round: a shard of 18,000 records takes tenths of a second.
    """
    lengths = np.array([len(record) for record in records], np.int64)
    longest_first = np.argsort(-lengths, kind="stable")
    num_left = np.searchsorted(-lengths[longest_first], -np.arange(lengths.max(initial=0)), side="left")
    content = np.frombuffer(b"".join(records), np.uint8)
    places = (np.cumsum(lengths) - lengths)[longest_first]
    crc = np.full(len(records), 0xFFFFFFFF, np.uint32)
    for place, count in enumerate(num_left):
        active = crc[:count]
        crc[:count] = _TABLE[(active ^ content[places[:count] + place]) & 0xFF] ^ (active >> 8)
    crc = ~crc
    masked = ((crc >> 15) | (crc << 17)) + np.uint32(_MASK_DELTA)
    result = np.empty_like(masked)
    result[longest_first] = masked
    return result


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE_AS_LIST[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_REVERSED_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


_TABLE = _table()
_TABLE_AS_LIST = _TABLE.tolist()
