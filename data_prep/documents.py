"""Documents: their lines and their cleaning.

BERT's normalization drops control characters anyway; but they would hide the end of a sentence, and make equal
documents differ. Those that are white space become a space, where BERT's would join two words. Format characters
(category Cf) stay, because joiners spell words in Persian, Hindi and other languages. Normalization to NFC ("e" +
combining acute to "é") changes no id if accents are stripped, and unifies spellings if they are kept.
"""

import bisect
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import Any, TypeVar

from data_prep.archives import ReadError
from data_prep.counts import DROPPED_CHARACTERS, ReadCounts
from electra_tf.config.errors import UserError, first_line
from electra_tf.data.manifest import DatasetSettings
from electra_tf.text.segment import SegmentFault, segmented

Content = TypeVar("Content")
Result = TypeVar("Result")

# Why a document was skipped: keys of `ReadCounts.num_documents_skipped`.
UNREADABLE = "unreadable"
WITHOUT_TEXT = "rows without text"

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_REPLACEMENT_CHARACTER = "\ufffd"  # some programs write it for bytes that they cannot decode
_LANGUAGE_SAMPLE = 1000  # characters; py3langid reads 4 MB/s
_WHITE_SPACE_CONTROLS, _SEPARATORS = re.compile("[\t-\r\x1c-\x1f\x85]"), re.compile("[\x0b\x0c\r\x1c-\x1f\x85]")
# A run without the marks of Unicode 14 to 15.1, which not every Python orders. They stay where they are, so that every
# Python gives the same text.
_NO_LATER_MARKS = re.compile(
    "[^\u0898-\u089f\u08ca-\u08d2\u0c3c\u1715\u1ac1-\u1ace\u1dfa\U00010efd-\U00010eff\U00010f82-\U00010f85\U00011070"
    "\U00011f41-\U00011f42\U0001e08f\U0001e2ae\U0001e4ec-\U0001e4ef]+"
)


@dataclass(frozen=True)
class Document:
    """One document.

    Attributes:
        lines: stripped lines, none blank; if the layout is kept, each with the white space and line ends before it.
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
        header: of the file; see `readers.TextFormat`.
        is_later: whether the stream is a later part of a file, whose beginning alone shows the format.
    """

    path: str
    offset: int
    header: bytes = b""
    is_later: bool = False


class RecordFault(Exception):
    """`RecordFault(reason, description)`: the fault of a record, which is left out; see `ReadCounts`."""


def read_or_skip(
    convert: Callable[[Content], Result], content: Content, origin: Origin, name: str = ""
) -> Result | ReadCounts:
    """Returns `convert(content)`, or the counts of a document that is left out, if that raises.

    One record that is broken, or that a parser cannot read, must not end a build of hours.

    Args:
        convert: converts the content of one document, which is in memory; it must not read files.
        origin: the file and where the document begins in it; `name`: the document's name, if it is known.
    """
    try:
        return convert(content)
    except MemoryError:
        raise
    except Exception as error:  # parsers raise ValueError, RecursionError, IndexError and others
        is_known = isinstance(error, RecordFault)
        reason, text = error.args if is_known else (UNREADABLE, f"({type(error).__name__}: {first_line(error)})")
        return ReadCounts.of_fault(reason, origin.path, origin.offset, f"{name[:100]} {text}")


def clean_documents(
    items: Iterable[Document | ReadCounts], settings: DatasetSettings
) -> tuple[list[Document], ReadCounts]:
    """Cleans the documents of a reader.

    Returns: the documents that are left, and the counts: of the changes, of what is left out here (a document that is
        empty, shorter than `min_document_characters` or, with `drop_other_languages`, in another language), and those
        among the items.
    """
    counts = ReadCounts()
    documents = []
    for item in items:
        if isinstance(item, ReadCounts):
            counts.add(item)
        elif cleaned := _cleaned(item, settings, counts):
            documents.append(cleaned)
    return documents, counts


def _cleaned(document: Document, settings: DatasetSettings, counts: ReadCounts) -> Document | None:
    counts.num_documents_read += 1
    lines = document.lines
    if settings.fix_mojibake and not all(map(str.isascii, lines)):
        import ftfy  # first, as control characters are half of some mojibake

        fixed = [ftfy.fix_encoding(line) for line in lines]
        fixed = [line if settings.layout == "keep" else line.strip() for line in fixed if line.strip()]
        counts.num_documents_mojibake_fixed += fixed != lines
        lines = fixed
    if settings.drop_control_characters:
        lines = _without_control_characters(lines, settings.layout, counts)
    is_normalized = unicodedata.is_normalized
    if settings.unicode_normalization == "NFC" and not all(
        line.isascii() or is_normalized("NFC", line) for line in lines
    ):
        normalized = [_NO_LATER_MARKS.sub(lambda run: unicodedata.normalize("NFC", run[0]), line) for line in lines]
        counts.num_documents_normalized += normalized != lines
        lines = normalized
    num_characters = sum(map(len, lines))
    if num_characters < max(1, settings.min_document_characters):
        counts.num_documents_too_short += 1
        return None
    if settings.drop_other_languages:
        text = "\n".join(lines)
        begin = max(0, len(text) - _LANGUAGE_SAMPLE) // 2  # texts often begin and end with those of others
        language, _ = language_identifier().classify(text[begin : begin + _LANGUAGE_SAMPLE])
        if language != identified_code(settings.language):
            counts.num_documents_in_other_languages += 1
            return None
    return document if lines is document.lines else Document(lines, document.has_paragraphs)


def segment_documents(
    documents: list[Document], lines: list[list[str]], command: str, counts: ReadCounts
) -> list[list[str]]:
    """Cuts the lines, or sentences, of each document into words.

    A document with a line that the program does not keep one line is counted, and removed from both lists.

    Raises: ReadError: the program does not run, or fails.
    """
    while command:
        texts = list(chain.from_iterable(lines))
        try:
            words = iter(segmented(command, texts))
            return [list(islice(words, len(each))) for each in lines]
        except SegmentFault as fault:
            index = bisect.bisect_right(list(accumulate(map(len, lines))), fault.index)
            counts.add(ReadCounts.of_fault("documents not segmented", command, None, texts[fault.index][:40]))
            counts.num_documents_read -= 1
            del documents[index], lines[index]
        except UserError as error:
            raise ReadError(str(error)) from None
    return lines


def identified_code(language: str) -> str:
    """The code by which py3langid names a language that is given by the code of its Wikipedia."""
    return "en" if language == "simple" else language


@functools.cache
def language_identifier() -> Any:
    """The `LanguageIdentifier` with the model in the package py3langid: 80 MB."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)


def _without_control_characters(lines: list[str], layout: str, counts: ReadCounts) -> list[str]:
    """Drops control characters; turns separators into spaces, and unless the layout is kept tabs and line ends too."""
    # A printable string has no control character; this test is far faster than a regular expression.
    if all(line.isprintable() and _REPLACEMENT_CHARACTER not in line for line in lines):
        return lines
    cleaned, into_spaces = [], _SEPARATORS if layout == "keep" else _WHITE_SPACE_CONTROLS
    for line in lines:
        kept, num_dropped = DROPPED_CHARACTERS.subn("", line)
        counts.num_control_characters_dropped += num_dropped
        kept = into_spaces.sub(" ", kept)
        cleaned.append(kept if layout == "keep" else kept.strip())
    return lines if cleaned == lines else [line for line in cleaned if line.strip()]
