"""What every reader takes and gives: bytes of a file in, documents out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from electra_tf.config.errors import UserError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """One document: its lines, stripped, none blank.

    Attributes:
        has_paragraphs: a line is a paragraph, which sentences may be split from; otherwise it is a sentence.
    """

    lines: list[str]
    has_paragraphs: bool


@dataclass(frozen=True)
class Source:
    """Where a stream of bytes comes from.

    Attributes:
        path: of the file, for messages; ARCHIVE/MEMBER in an archive.
        offset: where the stream begins in the file, in bytes, decompressed.
        is_end: the stream ends where the file does: what is unfinished then was cut off.
    """

    path: str
    offset: int
    is_end: bool


@dataclass(frozen=True)
class ReaderOptions:
    """What a user may say of the input's formats; the defaults stand in the flags of the scripts.

    Attributes:
        text_field: the field or column of `jsonl`, `parquet` and `arrow` that holds the text.
        lines_per_document: of `sentences`, whose files do not say where a document ends.
        keep_disambiguation_pages: of `wikipedia`.
    """

    text_field: str
    lines_per_document: int
    keep_disambiguation_pages: bool


@dataclass
class ReadReport:
    """What readers came across, of a work unit.

    Attributes:
        num_documents_skipped: by reason, a plural noun such as "redirects".
        num_documents_cut: cuts in documents longer than a reader holds at once, each of which made one more of them.
        truncations: for each file that is cut off, a message that names it and the byte.
    """

    num_documents_skipped: dict[str, int] = field(default_factory=dict)
    num_documents_cut: int = 0
    truncations: list[str] = field(default_factory=list)

    def skip(self, reason: str) -> None:
        self.num_documents_skipped[reason] = self.num_documents_skipped.get(reason, 0) + 1


@dataclass(frozen=True)
class TextFormat:
    """How files of one format become documents.

    Attributes:
        documents: (stream, source, options, report) -> documents. The stream is a file or a part of one that begins and
            ends at document boundaries; it gives no more than that part. Readers go through it in bounded pieces.
        begins_document: (line) -> whether a boundary between documents lies before this line, which may be one of
            millions: it looks at the line alone. None: a file is one document, or cannot be cut by lines.
    """

    documents: Callable[[BinaryIO, Source, ReaderOptions, ReadReport], Iterator[Document]]
    begins_document: Callable[[bytes], bool] | None


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
