"""Where streams of text may be cut: at boundaries between documents that depend on the text before them alone."""

from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, Protocol

from data_prep.readers.lines import line_blocks

_SCAN_BYTES = 2**16


class Boundaries(Protocol):
    """Goes through the lines of a stream, from the beginning of a document, and knows where others begin."""

    def pass_block(self, block: bytes) -> None:
        """Goes over whole lines of which none is asked for."""

    def lies_before(self, line: bytes) -> bool:
        """Whether a boundary lies before `line`, the next one, which it then goes over. A line has its LF, if any."""
        ...


class LineBoundaries:
    """A document begins at a line that looks like it."""

    def __init__(self, begins_document: Callable[[bytes], bool]):
        self._begins_document = begins_document

    def pass_block(self, block: bytes) -> None:
        pass

    def lies_before(self, line: bytes) -> bool:
        return self._begins_document(line)


class CountBoundaries:
    """A document begins every so many lines."""

    def __init__(self, lines_per_document: int):
        self._lines_per_document = lines_per_document
        self._num_lines = 0
        self._is_in_line = False

    def pass_block(self, block: bytes) -> None:
        self._num_lines += block.count(b"\n")
        self._is_in_line = not block.endswith(b"\n")

    def lies_before(self, line: bytes) -> bool:
        is_boundary = self._num_lines % self._lines_per_document == 0 and not self._is_in_line
        self.pass_block(line)
        return is_boundary


class Piece(NamedTuple):
    """Bytes `begin` to `end` of a stream; `content` is None if they are too many to hold."""

    begin: int
    end: int
    is_end: bool
    content: bytes | None


def next_document(stream: BinaryIO, position: int, boundaries: LineBoundaries) -> int:
    """The first boundary at or after `position` of a file; its end if there is none."""
    stream.seek(position - 1)
    before = stream.read(2)
    if before[:1] == b"\n" or (before[:1] == b"\r" and before != b"\r\n"):
        stream.seek(position)
    else:
        stream.seek(position)
        position = _line_end(stream, position)
        stream.seek(position)
    for block in line_blocks(stream, block_bytes=_SCAN_BYTES):
        for line in block.splitlines(keepends=True):
            if boundaries.lies_before(line):
                return position
            position += len(line)
    return position


def _line_end(stream: BinaryIO, position: int) -> int:
    """Where the line ends that goes on at `position`, at which the stream stands. Pieces of long lines are no lines."""
    for block in line_blocks(stream, block_bytes=_SCAN_BYTES):
        end = block.find(b"\n")
        if end >= 0:
            return position + end + 1
        position += len(block)
    return position


def pieces(stream: BinaryIO, boundaries: Boundaries, piece_bytes: int, max_held_bytes: int) -> Iterator[Piece]:
    """Cuts a stream from its beginning to its end at the first boundary after every `piece_bytes`.

    Args:
        max_held_bytes: what a piece may have to be given its content; a document may be longer.
    """
    recorder = _Recorder(stream)
    begin = position = 0
    for block in line_blocks(recorder):
        if position + len(block) <= begin + piece_bytes:
            boundaries.pass_block(block)
            position += len(block)
        else:
            for line in block.splitlines(keepends=True):
                if position < begin + piece_bytes:
                    boundaries.pass_block(line)
                elif boundaries.lies_before(line):
                    yield Piece(begin, position, False, recorder.take(begin, position))
                    begin = position
                position += len(line)
        if position - begin > max_held_bytes:
            recorder.forget(position)
    if position > begin:
        yield Piece(begin, position, True, recorder.take(begin, position))


class _Recorder:
    """Remembers the last bytes that were read from a stream."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self._begin = 0
        self._content = bytearray()

    def read(self, num_bytes: int) -> bytes:
        content = self._stream.read(num_bytes)
        self._content += content
        return content

    def take(self, begin: int, end: int) -> bytes | None:
        """Bytes `begin` to `end`, which are forgotten with all before; None if they are already."""
        taken = bytes(self._content[begin - self._begin : end - self._begin]) if begin >= self._begin else None
        self.forget(end)
        return taken

    def forget(self, end: int) -> None:
        """Forgets the bytes before `end`."""
        if end > self._begin:
            del self._content[: end - self._begin]
            self._begin = end
