"""Finds the positions where a stream of text may be cut into ranges: the boundaries between documents."""

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

from data_prep.readers.lines import line_blocks

_SCAN_BYTES = 2**16

BeginsDocument = Callable[[bytes], bool]


class LineBoundaries:
    """Finds the lines of a stream that begin a document. The stream must begin at a document."""

    are_anywhere = False  # whether a boundary may lie within a line

    def __init__(self, begins_document: BeginsDocument):
        self.begins_document = begins_document
        self._is_in_line = False  # after a piece of a long line, which has no LF

    def lines(self, block: bytes) -> list[bytes]:
        """Cuts a block where boundaries may lie."""
        return block.splitlines(keepends=True)

    def pass_block(self, block: bytes) -> None:
        """Moves past whole lines, or a piece of a long line, without looking for boundaries."""
        self._is_in_line = not block.endswith(b"\n")

    def lies_before(self, line: bytes) -> bool:
        """Moves past the next line, or piece of a long line; returns whether a boundary lies before it."""
        is_boundary = (self.are_anywhere or not self._is_in_line) and self.begins_document(line)
        self.pass_block(line)
        return is_boundary


class TagBoundaries(LineBoundaries):
    """Finds a tag that begins a document, anywhere in a line."""

    are_anywhere = True

    def __init__(self, tag: re.Pattern[bytes]):
        super().__init__(lambda content: tag.match(content) is not None)
        self._before_tag = re.compile(rb"(?=%b)" % tag.pattern)

    def lines(self, block: bytes) -> list[bytes]:
        return self._before_tag.split(block)


class CountBoundaries(LineBoundaries):
    """Finds the boundaries of text in which every `lines_per_document` lines are a document."""

    def __init__(self, lines_per_document: int):
        super().__init__(lambda line: self._num_lines % lines_per_document == 0)
        self._num_lines = 0

    def pass_block(self, block: bytes) -> None:
        super().pass_block(block)
        self._num_lines += block.count(b"\n")


def next_boundary(stream: BinaryIO, position: int, boundaries: LineBoundaries) -> int:
    """Finds the first boundary at or after `position` of a file; the end of the file is one."""
    stream.seek(position - 1)
    before = stream.read(2)
    if not (before[:1] == b"\n" or (before[:1] == b"\r" and before != b"\r\n")):
        boundaries.pass_block(b" ")  # of a line whose rest follows
    stream.seek(position)
    for block in line_blocks(stream, block_bytes=_SCAN_BYTES):
        for line in boundaries.lines(block):
            if boundaries.lies_before(line):
                return position
            position += len(line)
    return position


def cut_text(stream: BinaryIO, boundaries: LineBoundaries, range_bytes: int) -> Iterator[tuple[int, int]]:
    """Cuts a stream at the first boundary after every `range_bytes`; yields begin and end of the ranges."""
    begin = position = 0
    for block in line_blocks(stream):
        if position + len(block) <= begin + range_bytes:
            boundaries.pass_block(block)
            position += len(block)
            continue
        for line in boundaries.lines(block):
            if position < begin + range_bytes:
                boundaries.pass_block(line)
            elif boundaries.lies_before(line):
                yield begin, position
                begin = position
            position += len(line)
    if position > begin:
        yield begin, position


def text_of_range(blocks: Iterator[bytes | None], boundaries: LineBoundaries, is_first: bool) -> Iterator[bytes]:
    """Yields the documents that begin after the first byte of `blocks`, and not after the mark, which is None.

    Args:
        is_first: whether a document begins at the first byte, and is yielded too.
    """
    recorder = _Recorder(blocks)
    if not is_first:
        boundaries.pass_block(b" ")  # the first byte may lie within a line
    position, is_inside = 0, is_first
    for block in line_blocks(recorder):
        if is_inside and recorder.mark is None:
            boundaries.pass_block(block)
            position += len(block)
            yield recorder.take(len(block))
            continue
        for line in boundaries.lines(block):
            is_boundary = boundaries.lies_before(line) and position > 0
            if recorder.mark is not None and position > recorder.mark and (is_boundary or not is_inside):
                return
            is_inside = is_inside or is_boundary
            position += len(line)
            content = recorder.take(len(line))
            if is_inside:
                yield content


class _Recorder:
    """Reads blocks and keeps the bytes, with their original line ends, until they are taken.

    Attributes:
        mark: the position of None among the blocks, once it was read.
    """

    def __init__(self, blocks: Iterator[bytes | None]):
        self._blocks = blocks
        self._content = bytearray()
        self._num_read = 0
        self.mark: int | None = None

    def read(self, num_bytes: int) -> bytes:
        """Returns a block, which may have another size than `num_bytes`."""
        for block in self._blocks:
            if block is None:
                self.mark = self._num_read
            elif block:
                self._content += block
                self._num_read += len(block)
                return block
        return b""

    def take(self, num_bytes: int) -> bytes:
        content = bytes(self._content[:num_bytes])
        del self._content[:num_bytes]
        return content
