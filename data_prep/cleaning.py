"""Cleans a document before anything else is derived from it: control characters, Unicode form, minimum length.

Control characters are dropped as BERT's normalization drops them, which leaves every token id as it is. Dropped here,
they neither hide the end of a sentence nor make equal documents differ. Format characters (category Cf) stay: joiners
spell words in Persian, Hindi and others. BERT's normalization drops them later. Normalization to NFC ("e" + combining
acute to "é") changes no id where accents are stripped, and unifies spellings where they are kept.
"""

import re
import unicodedata

from data_prep.readers.documents import Document, ReadCounts
from electra_tf.text.manifest import DatasetSettings

_REPLACEMENT_CHARACTER = "\ufffd"  # written by an earlier program for bytes that it could not decode
# Category Cc but for tab, line feed and carriage return, which BERT takes for white space; and, as in BERT, U+FFFD.
_DROPPED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")
_WHITE_SPACE_CONTROLS = re.compile("[\t\n\r]")


def clean_document(document: Document, settings: DatasetSettings, counts: ReadCounts) -> Document | None:
    """Cleans a document and counts what was changed.

    Returns: the same object if nothing changed; None if the document is shorter than `min_document_characters`, or
        empty.
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
    """Drops control characters and turns those that are white space into spaces, so that a line stays one line."""
    # A printable string holds no control character; this test is far faster than a regular expression.
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
    counts.num_documents_normalized += 1
    return [unicodedata.normalize("NFC", line) for line in lines]
