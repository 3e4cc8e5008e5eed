"""What every reader gives: documents, each a list of lines with its place in the file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from electra_tf.config.errors import UserError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """One document: `lines` are sentences or paragraphs, stripped, none blank; `offset` is the byte it begins at."""

    offset: int
    lines: list[str]


@dataclass(frozen=True)
class TextFormat:
    """How files of one format become documents.

    Attributes:
        documents: (content, path, offset) -> documents. `content` is the file's bytes from `offset` on: the whole file
            or a part that begins and ends at document boundaries. `path` is for error messages.
        next_document: (file, position) -> the first boundary between documents at or after `position`, at most the
            file's size; a file is cut there into parts for several processes. None: a file is one document.
    """

    documents: Callable[[bytes, str, int], Iterator[Document]]
    next_document: Callable[[BinaryIO, int], int] | None


def decode(content: bytes, path: str, offset: int) -> str:
    """Decodes UTF-8.

    Args:
        path, offset: where `content` comes from, for the message.
    Raises: UserError: naming the file and the byte.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: byte 0x{content[error.start]:02x} at offset {offset + error.start}"
            f" ({error.reason}); convert the file, for example with iconv -f LATIN1 -t UTF-8"
        ) from None


def seek_line(file: BinaryIO, position: int) -> int:
    """Moves to the first line that begins at or after `position` and returns where that is."""
    if position == 0:
        file.seek(0)
        return 0
    file.seek(position - 1)
    file.readline()
    return file.tell()


def without_byte_order_mark(content: bytes, offset: int) -> tuple[bytes, int]:
    """Drops a UTF-8 byte order mark at the beginning of a file; returns the rest and its offset."""
    if offset == 0 and content.startswith(BYTE_ORDER_MARK):
        return content[len(BYTE_ORDER_MARK) :], len(BYTE_ORDER_MARK)
    return content, offset
