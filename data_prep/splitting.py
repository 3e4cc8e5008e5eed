"""Finds the places where a stream of text may be split: document boundaries that depend on the preceding text alone."""

import math
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from data_prep.readers.documents import BYTE_ORDER_MARK
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS, line_blocks

_SCAN_BYTES = 2**16

BeginsDocument = Callable[[bytes], bool]


class LineBoundaries:
    """Finds lines that begin a document, going through the lines of a stream from the beginning of a document."""

    is_cut = False  # the last boundary found is not in the text: a document is too long

    def __init__(self, begins_document: BeginsDocument):
        self.begins_document = begins_document
        self._is_in_line = False  # after a piece of a long line, which has no LF

    def pass_block(self, block: bytes) -> None:
        """Goes past whole lines, or a piece of a long one."""
        self._is_in_line = not block.endswith(b"\n")

    def lies_before(self, line: bytes) -> bool:
        """Whether a boundary lies before the next line, or piece of one, with its LF if it has one; goes past it."""
        is_boundary = not self._is_in_line and self.begins_document(line)
        self.pass_block(line)
        return is_boundary


class LengthBoundaries(LineBoundaries):
    """As `LineBoundaries`; also finds where `collect_documents` cuts a document of over `MAX_DOCUMENT_CHARACTERS`.

    It has to decode every line: for text that may have few boundaries, or none.
    """

    def __init__(self, begins_document: BeginsDocument):
        super().__init__(begins_document)
        self._num_characters = 0

    def pass_block(self, block: bytes) -> None:
        for line in block.splitlines(keepends=True):
            self.lies_before(line)

    def lies_before(self, line: bytes) -> bool:
        # The reader reports what it cannot decode. It drops the byte order mark, as it does white space.
        num_characters = len(line.removeprefix(BYTE_ORDER_MARK).decode("utf-8", errors="replace").strip())
        begins_document = self.begins_document(line)
        num_together = self._num_characters + num_characters
        self.is_cut = bool(
            not begins_document and self._num_characters and num_characters and num_together > MAX_DOCUMENT_CHARACTERS
        )
        self._num_characters = num_characters if begins_document or self.is_cut else num_together
        return begins_document or self.is_cut


class CountBoundaries(LineBoundaries):
    """A document begins every `lines_per_document` lines."""

    def __init__(self, lines_per_document: int):
        super().__init__(lambda line: self._num_lines % lines_per_document == 0)
        self._num_lines = 0

    def pass_block(self, block: bytes) -> None:
        super().pass_block(block)
        self._num_lines += block.count(b"\n")


class Piece(NamedTuple):
    """Bytes `begin` to `end` of a stream; `is_cut`: a document that is too long continues after the piece."""

    begin: int
    end: int
    is_cut: bool
    content: bytes


def next_document(
    stream: BinaryIO, position: int, begins_document: BeginsDocument, max_scanned_bytes: int | None
) -> int | None:
    """The first boundary at or after `position` of a file, or the end of the file.

    Returns: None if there is no boundary in about `max_scanned_bytes` (None: no limit).
    """
    max_position = math.inf if max_scanned_bytes is None else position + max_scanned_bytes
    stream.seek(position - 1)
    before = stream.read(2)
    is_in_line = not (before[:1] == b"\n" or (before[:1] == b"\r" and before != b"\r\n"))
    stream.seek(position)
    for block in line_blocks(stream, block_bytes=_SCAN_BYTES):
        if position > max_position:
            return None
        for line in block.splitlines(keepends=True):
            if not is_in_line and begins_document(line):
                return position
            # A piece of a long line has no LF: only the last piece ends the line.
            is_in_line = is_in_line and not line.endswith(b"\n")
            position += len(line)
    return position


def pieces(stream: BinaryIO, boundaries: LineBoundaries, piece_bytes: int) -> Iterator[Piece]:
    """Splits a stream at the first boundary after every `piece_bytes`. Memory holds one piece."""
    recorder = _Recorder(stream)
    begin = position = 0
    for block in line_blocks(recorder):
        if position + len(block) <= begin + piece_bytes:
            boundaries.pass_block(block)
            position += len(block)
            continue
        for line in block.splitlines(keepends=True):
            if position < begin + piece_bytes:
                boundaries.pass_block(line)
            elif boundaries.lies_before(line):
                yield Piece(begin, position, boundaries.is_cut, recorder.take(position - begin))
                begin = position
            position += len(line)
    if position > begin:
        yield Piece(begin, position, False, recorder.take(position - begin))


class _Recorder:
    """Keeps the bytes that were read from a stream, with their original line ends, until they are taken."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self._content = bytearray()

    def read(self, num_bytes: int) -> bytes:
        content = self._stream.read(num_bytes)
        self._content += content
        return content

    def take(self, num_bytes: int) -> bytes:
        taken = bytes(self._content[:num_bytes])
        del self._content[:num_bytes]
        return taken
