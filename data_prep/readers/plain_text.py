"""Plain text: a sentence or paragraph a line, a blank line ends a document."""

from collections.abc import Iterator
from typing import BinaryIO

from data_prep.readers.documents import Document, decode, seek_line, without_byte_order_mark


def read_plain_text(content: bytes, path: str, offset: int) -> Iterator[Document]:
    """Documents of a plain text file; see `TextFormat.documents`. A line of white space alone is blank."""
    content, offset = without_byte_order_mark(content, offset)
    lines: list[str] = []
    document_offset = offset
    for raw_line in content.split(b"\n"):
        line = decode(raw_line, path, offset).strip()
        if line:
            if not lines:
                document_offset = offset
            lines.append(line)
        elif lines:
            yield Document(document_offset, lines)
            lines = []
        offset += len(raw_line) + 1
    if lines:
        yield Document(document_offset, lines)


def next_plain_text_document(file: BinaryIO, position: int) -> int:
    """The end of the first blank line that begins at or after `position`."""
    seek_line(file, position)
    # An undecodable line is reported by the reader, whichever part it falls into.
    while (line := file.readline()) and line.decode("utf-8", errors="replace").strip():
        pass
    return file.tell()
