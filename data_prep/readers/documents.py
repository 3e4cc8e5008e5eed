"""Documents: their lines, their cleaning, and the counts of what was read.

BERT's normalization drops control characters anyway, so dropping them here changes no token id; but they would hide the
end of a sentence, and make equal documents differ. Format characters (category Cf) stay, because joiners spell words in
Persian, Hindi and other languages. Normalization to NFC ("e" + combining acute to "é") changes no id if accents are
stripped, and unifies spellings if they are kept.
"""

import functools
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

from electra_tf.config.errors import UserError, first_line
from electra_tf.text.manifest import DatasetSettings
from electra_tf.text.vocabulary import MAX_MARKS

_logger = logging.getLogger(__name__)

Content = TypeVar("Content")
Result = TypeVar("Result")

# Why a document was skipped: keys of `ReadCounts.num_documents_skipped`.
UNREADABLE = "unreadable"
WITHOUT_TEXT = "rows without text"
# A build ends if more documents are unreadable than this number and than this fraction.
_MAX_UNREADABLE = 10
_MAX_UNREADABLE_FRACTION = 0.001

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_REPLACEMENT_CHARACTER = "\ufffd"  # some programs write it for bytes that they cannot decode
# As in BERT: category Cc except tab, line feed and carriage return, which are white space; and U+FFFD.
_DROPPED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")
_WHITE_SPACE_CONTROLS = re.compile("[\t\n\r]")
# A run without the marks of Unicode 14 to 15.1, which Python 3.10 does not order and later ones do. They stay where
# they are, so that every Python gives the same text.
_NO_LATER_MARKS = re.compile(
    "[^\u0898-\u089f\u08ca-\u08d2\u0c3c\u1715\u1ac1-\u1ace\u1dfa\U00010efd-\U00010eff\U00010f82-\U00010f85\U00011070"
    "\U00011f41-\U00011f42\U0001e08f\U0001e2ae\U0001e4ec-\U0001e4ef]+"
)


@dataclass(frozen=True)
class Document:
    """One document.

    Attributes:
        lines: stripped lines, none blank.
        has_paragraphs: True if a line is a paragraph, which may be split into sentences; False if it is a sentence.
    """

    lines: list[str]
    has_paragraphs: bool


@dataclass(frozen=True)
class Origin:
    """The origin of a stream of bytes.

    Attributes:
        path: the file, for messages; ARCHIVE/MEMBER for a member of an archive.
        offset: the position in the file where the stream begins, in decompressed bytes (in rows for a table).
        header: of the file, if the stream is a part of it; see `TextFormat.header_of`.
    """

    path: str
    offset: int
    header: bytes = b""


@dataclass
class ReadCounts:
    """Totals of a work unit or of the whole build, before duplicates are dropped; see also `manifest.Counts`.

    Attributes:
        num_bytes: the size of the input files as stored.
        num_documents_too_short: includes documents without any character.
        num_documents_without_tokens: documents whose characters are all dropped by the tokenizer.
        num_tokens_dropped: tokens that exceeded the length of an example (only with `examples="authors"`).
        templates_dropped: unknown templates inside lines of a Wikipedia dump, by name.
        split_documents, split_record_bytes: by split; include duplicates.
        first_unreadable: (file, offset, description) of the first unreadable document; None without one.
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
    num_tokens_dropped: int = 0
    templates_dropped: Counter[str] = field(default_factory=Counter)
    split_documents: Counter[str] = field(default_factory=Counter)
    split_record_bytes: Counter[str] = field(default_factory=Counter)
    first_unreadable: tuple[str, int, str] | None = None

    def add(self, other: "ReadCounts") -> None:
        """Adds `other`, field by field. The order of several calls does not matter."""
        for name, value in vars(other).items():
            if name != "first_unreadable":
                setattr(self, name, getattr(self, name) + value)
        self.first_unreadable = min(filter(None, (self.first_unreadable, other.first_unreadable)), default=None)

    @classmethod
    def from_json(cls, fields: dict) -> "ReadCounts":
        """Creates the counts from `vars(counts)`, read from JSON."""
        types = {dict: Counter, list: tuple}
        return cls(**{name: types.get(type(value), lambda value: value)(value) for name, value in fields.items()})


@dataclass(frozen=True)
class TextFormat:
    """The reader of a file format.

    Attributes:
        documents: (stream, origin, settings, counts) -> documents. The stream is a file, or a part of one that begins
            and ends at document boundaries. Readers read it in pieces of bounded size.
        begins_document: (line) -> whether a document begins at this line, for splitting a file. None if a file is one
            document, or cannot be split by lines.
        header_of: (first bytes of a file) -> what the reader of a part of it has to know of its beginning.
    """

    documents: Callable[[BinaryIO, Origin, DatasetSettings, ReadCounts], Iterator[Document]]
    begins_document: Callable[[bytes], bool] | None
    header_of: Callable[[bytes], bytes] = lambda begin: b""


def read_or_skip(
    convert: Callable[[Content], Result], content: Content, origin: Origin, name: str, counts: ReadCounts
) -> Result | None:
    """Returns `convert(content)`; None, and counts the document as unreadable, if that raises.

    One page of a dump that a parser cannot read must not end a build of hours. See `require_readable`.

    Args:
        convert: converts the content of one document, which is in memory; it must not read files.
        origin: the file and where the document begins in it; `name`: the document's name, or "".
    Raises: UserError: of `convert`; the file is not in its format.
    """
    try:
        return convert(content)
    except (UserError, MemoryError):
        raise
    except Exception as error:  # parsers raise ValueError, RecursionError, IndexError and others
        counts.num_documents_skipped[UNREADABLE] += 1
        description = " ".join(f"{name[:100]} ({type(error).__name__}: {first_line(error)})".split())
        place = (origin.path, origin.offset, description)
        counts.first_unreadable = min(place, counts.first_unreadable or place)
        return None


def require_readable(counts: ReadCounts) -> None:
    """Logs a warning if documents were unreadable.

    Args:
        counts: of the whole input.
    Raises: UserError: these are more than 10, and more than one in a thousand.
    """
    if counts.first_unreadable is None:
        return
    number = counts.num_documents_skipped[UNREADABLE]
    num_documents = counts.num_documents_read + number
    path, offset, description = counts.first_unreadable
    message = (
        f"{number} of {num_documents} documents cannot be read; the first: {path} at offset {offset}, {description}"
    )
    if number > max(_MAX_UNREADABLE, _MAX_UNREADABLE_FRACTION * num_documents):
        raise UserError(f"{message}; more than one in a thousand are too many: correct or remove them")
    _logger.warning("warning: %s; they are left out", message)


def decode(content: bytes, path: str, offset: int) -> str:
    """Decodes UTF-8 bytes that begin at `offset` of a file. Raises: UserError: a byte is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: byte 0x{content[error.start]:02x} at offset {offset + error.start}; convert the"
            " file, for example with iconv -f LATIN1 -t UTF-8"
        ) from None


def clean_document(document: Document, settings: DatasetSettings, counts: ReadCounts) -> Document | None:
    """Cleans a document and counts the changes.

    Returns: the same object if nothing changed; None if the document is empty or shorter than
        `min_document_characters`.
    """
    counts.num_documents_read += 1
    lines = document.lines
    if settings.drop_control_characters:
        lines = _without_control_characters(lines, counts)
    if settings.unicode_normalization == "NFC":
        lines = _normalized(lines, counts)
    if sum(map(len, lines)) < max(1, settings.min_document_characters):
        counts.num_documents_too_short += 1
        return None
    return document if lines is document.lines else Document(lines, document.has_paragraphs)


def _without_control_characters(lines: list[str], counts: ReadCounts) -> list[str]:
    """Drops control characters; turns tabs and line breaks into spaces, so that a line stays one line."""
    # A printable string has no control character; this test is far faster than a regular expression.
    if all(line.isprintable() and _REPLACEMENT_CHARACTER not in line for line in lines):
        return lines
    cleaned = []
    for line in lines:
        kept, num_dropped = _DROPPED.subn("", line)
        counts.num_control_characters_dropped += num_dropped
        cleaned.append(_WHITE_SPACE_CONTROLS.sub(" ", kept).strip())
    return lines if cleaned == lines else [line for line in cleaned if line]


def _normalized(lines: list[str], counts: ReadCounts) -> list[str]:
    is_normalized = unicodedata.is_normalized
    if all(line.isascii() or is_normalized("NFC", line) for line in lines):
        return lines
    excess = _excess_marks()
    lines_without_excess = (excess.sub(r"\1", line) for line in lines)
    normalized = [_NO_LATER_MARKS.sub(_to_nfc, line) for line in lines_without_excess]
    counts.num_documents_normalized += normalized != lines
    return normalized


def _to_nfc(run: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", run[0])


@functools.cache
def _excess_marks() -> re.Pattern:
    """A run of marks that are put in order, with its first ones as a group. Python orders them in quadratic time."""
    characters = filter(_NO_LATER_MARKS.match, map(chr, range(0x300, 0x20000)))
    marks = f"[{''.join(filter(unicodedata.combining, characters))}]"
    return re.compile(f"({marks}{{{MAX_MARKS}}}){marks}+")
