"""What all readers share: documents, the origin of their text, and the counts of what was read."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from electra_tf.config.errors import UserError
from electra_tf.text.manifest import DatasetSettings

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """One document: its lines, stripped, none blank.

    Attributes:
        has_paragraphs: each line is a paragraph, which may be split into sentences; otherwise it is a sentence.
    """

    lines: list[str]
    has_paragraphs: bool


@dataclass(frozen=True)
class Origin:
    """The origin of a stream of bytes.

    Attributes:
        path: the file, for messages; ARCHIVE/MEMBER for a member of an archive.
        offset: where the stream begins in the file, in decompressed bytes (in rows for a table).
    """

    path: str
    offset: int


@dataclass
class ReadCounts:
    """Totals of a work unit or of the whole build, before duplicates are dropped; see also `manifest.Counts`.

    Attributes:
        num_bytes: of the input files as stored.
        num_documents_too_short: documents without any character included.
        num_documents_without_tokens: the tokenizer drops all their characters.
        split_documents, split_record_bytes: by split, duplicates included.
    """

    num_bytes: int = 0
    num_documents_skipped: Counter[str] = field(default_factory=Counter)
    num_documents_cut: int = 0
    num_documents_read: int = 0
    num_documents_normalized: int = 0
    num_control_characters_dropped: int = 0
    num_documents_too_short: int = 0
    num_documents_without_tokens: int = 0
    num_tokens_read: int = 0
    num_unknown_tokens: int = 0
    split_documents: Counter[str] = field(default_factory=Counter)
    split_record_bytes: Counter[str] = field(default_factory=Counter)

    def add(self, other: "ReadCounts") -> None:
        """Adds `other`, field by field."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @classmethod
    def from_json(cls, fields: dict) -> "ReadCounts":
        """Reads `vars(counts)` back from JSON."""
        return cls(**{name: Counter(value) if isinstance(value, dict) else value for name, value in fields.items()})


@dataclass(frozen=True)
class TextFormat:
    """How files of one format become documents.

    Attributes:
        documents: (stream, origin, settings, counts) -> documents. The stream is a file, or a part of one that begins
            and ends at document boundaries. Readers go through it in pieces of bounded size.
        begins_document: (line) -> whether a document begins at this line. It is called for millions of lines and sees
            only the line. None: a file is one document, or cannot be split by lines.
    """

    documents: Callable[[BinaryIO, Origin, DatasetSettings, ReadCounts], Iterator[Document]]
    begins_document: Callable[[bytes], bool] | None


def decode(content: bytes, path: str, offset: int) -> str:
    """Decodes UTF-8. Raises: UserError: not UTF-8; names the file and the byte, of which the first is at `offset`."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: byte 0x{content[error.start]:02x} at offset {offset + error.start}; convert the"
            " file, for example with iconv -f LATIN1 -t UTF-8"
        ) from None
