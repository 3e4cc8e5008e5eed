"""Lines of text from streams of any length, in bounded memory.

A line ends with LF, CR LF or CR. A line of more than `MAX_LINE_BYTES` is cut at white space. Both depend only on the
bytes since the beginning of the line, so that the parts of a file give the same lines as the whole file.
"""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from data_prep.archives import error_of
from data_prep.counts import ReadCounts
from data_prep.documents import BYTE_ORDER_MARK, WITHOUT_TEXT, Document, Origin

# A longer document is cut. A worker holds a few documents of this size in memory; no article is that long.
MAX_DOCUMENT_CHARACTERS = 2**22
MAX_LINE_BYTES = MAX_DOCUMENT_CHARACTERS

# A line of JSON or a row of CSV is parsed in one piece, which takes a multiple of its size in memory. A longer one is
# left out.
MAX_RECORD_BYTES = 2**26

_LINE_WITH_SPACE = re.compile(r"\s*\S(?:[^\n]*\S)?")

BLOCK_BYTES = 2**18  # of one read; small enough for the processor's cache


def line_blocks(
    stream: BinaryIO, max_line_bytes: int = MAX_LINE_BYTES, block_bytes: int = BLOCK_BYTES
) -> Iterator[bytes]:
    """The stream in blocks of whole lines. CR LF becomes space LF, and CR becomes LF, so that offsets stay the same.

    A block without LF at its end is a piece of a line of more than `max_line_bytes`, or the last line of the stream. A
    line that a fault of the stream cuts is left out.
    """
    pending: list[bytes] = []  # the incomplete line at the end of the last block
    num_pending = 0
    # Within a block of this size, no line can be too long.
    for block in _normalized_blocks(stream, min(block_bytes, max_line_bytes)):
        if num_pending + _first_line_length(block) > max_line_bytes:
            block = b"".join([*pending, block])
            pending, num_pending = [], 0
            while _first_line_length(block) > max_line_bytes:
                cut = _cut_position(block, max_line_bytes)
                yield block[:cut]
                block = block[cut:]
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join([*pending, block[:end]])
            pending, num_pending = [], 0
        pending.append(block[end:])
        num_pending += len(block) - end
    if num_pending and not error_of(stream):
        yield b"".join(pending)


def _normalized_blocks(stream: BinaryIO, block_bytes: int) -> Iterator[bytes]:
    carriage_return = b""
    while block := stream.read(block_bytes):
        block = carriage_return + block
        carriage_return = b""
        if b"\r" in block:
            if block.endswith(b"\r"):  # the next block shows whether an LF follows
                block, carriage_return = block[:-1], b"\r"
            block = block.replace(b"\r\n", b" \n").replace(b"\r", b"\n")
        yield block
    if carriage_return:
        yield b"\n"


def _first_line_length(block: bytes) -> int:
    end = block.find(b"\n")
    return end if end >= 0 else len(block)


def _cut_position(line: bytes, max_line_bytes: int) -> int:
    """The position after the last space in the second half of the first `max_line_bytes`, else about their end."""
    for white_space in (b" ", b"\t"):
        position = line.rfind(white_space, max_line_bytes // 2, max_line_bytes)
        if position >= 0:
            return position + 1
    position = max_line_bytes
    # Not within a character of UTF-8, which has at most three continuation bytes, 10xxxxxx.
    while position > max_line_bytes - 4 and line[position] & 0xC0 == 0x80:
        position -= 1
    return max(position, 1)


class LineReader:
    """Decodes the lines of a stream of UTF-8.

    Attributes:
        offset: the position in the file, in bytes, of the end of the last block.
    """

    def __init__(self, stream: BinaryIO, origin: Origin, max_line_bytes: int = MAX_LINE_BYTES):
        self._stream = stream
        self._max_line_bytes = max_line_bytes
        self._is_begin = not origin.is_later
        self.offset = origin.offset

    def blocks(self) -> Iterator[bytes]:
        """The `line_blocks` of the stream, without a byte order mark."""
        for block in line_blocks(self._stream, self._max_line_bytes):
            self.offset += len(block)
            yield block.removeprefix(BYTE_ORDER_MARK) if self._is_begin else block
            self._is_begin = False

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """The position in the file and the bytes of each line, without its end."""
        for block in self.blocks():
            offset = self.offset - len(block)
            for line in block.removesuffix(b"\n").split(b"\n"):
                yield offset, line
                offset += len(line) + 1

    def __iter__(self) -> Iterator[str]:
        """The lines, stripped."""
        return map(str.strip, self.decoded_lines())

    def decoded_lines(self) -> Iterator[str]:
        """The lines, without their ends."""
        for block in self.blocks():
            yield from block.decode().removesuffix("\n").split("\n")


def collect_documents(
    lines: Iterable[str | ReadCounts | None], has_paragraphs: bool
) -> Iterator[Document | ReadCounts]:
    """Gathers lines into documents, and cuts documents longer than `MAX_DOCUMENT_CHARACTERS`.

    Args:
        lines: stripped lines, or see `split_lines`; blank ones are left out. None ends a document; lines after the last
            None are dropped. Counts are yielded as they are.
    """
    document: list[str] = []
    num_characters = 0
    for line in lines:
        if isinstance(line, ReadCounts):
            yield line
            continue
        if document and (line is None or num_characters + len(line) > MAX_DOCUMENT_CHARACTERS):
            if line is not None:
                yield ReadCounts(num_documents_cut=1)
            yield Document(document, has_paragraphs)
            document, num_characters = [], 0
        if line:
            document.append(line)
            num_characters += len(line)


def documents_of_texts(texts: Iterable[str | None | ReadCounts], layout: str) -> Iterator[Document | ReadCounts]:
    """The documents of texts whose lines are paragraphs. One without text is counted as skipped."""

    def lines() -> Iterator[str | ReadCounts | None]:
        for text in texts:
            if isinstance(text, ReadCounts):
                yield text
            elif not text or text.isspace():
                yield ReadCounts.skipped(WITHOUT_TEXT)
            else:
                yield from split_lines(text, layout)
                yield None

    return collect_documents(lines(), has_paragraphs=layout != "keep")


def split_lines(text: str, layout: str) -> Iterable[str]:
    """The stripped lines of a text, none blank; to keep its layout, each with the white space before it."""
    if layout == "keep":
        return _LINE_WITH_SPACE.findall(text.rstrip().replace("\r\n", "\n").replace("\r", "\n"))
    # CR LF becomes two line ends; the empty line between them is dropped like all blank lines.
    return filter(None, map(str.strip, text.replace("\r", "\n").split("\n")))
