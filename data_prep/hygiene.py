"""What is mended in a document before anything is drawn from it: control characters, Unicode form, length.

Control characters are dropped as BERT's own normalisation drops them, which leaves every token id as it is; done here,
they neither hide the end of a sentence nor keep two equal documents apart. Characters of format (category Cf) stay: the
joiners among them spell words in Persian, Hindi and others. BERT's normalisation drops them too, other users of the
text need not.

Normalising to NFC ("e" + combining acute to "é") changes no id where accents are stripped; where they are kept, it
makes one spelling of several.

Cost: 315 MB/s on a core for 252 MB of English Wikipedia, 398 MB/s for novels, 920 MB/s for Chinese: a line that needs
no mending is looked at by three functions in C.
"""

import re
import unicodedata
from dataclasses import dataclass

from data_prep.readers.documents import Document
from electra_tf.config.errors import UserError

NFC, NO_NORMALIZATION = UNICODE_NORMALIZATIONS = ("NFC", "none")

REPLACEMENT_CHARACTER = "\ufffd"  # what stands for bytes that some earlier program could not decode
# Category Cc but for tab, line feed and carriage return, which BERT takes for white space; and, as in BERT, U+FFFD.
_DROPPED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")
_WHITE_SPACE_CONTROLS = re.compile("[\t\n\r]")


@dataclass(frozen=True)
class HygieneOptions:
    """What to mend; the flags of the scripts.

    Attributes:
        unicode_normalization: "NFC" or "none".
        drop_control_characters: see the module; U+FFFD is one of them.
        min_document_characters: a document with fewer, after the mending, is left out. One without any always is.
    Raises: UserError: a value out of range.
    """

    unicode_normalization: str
    drop_control_characters: bool
    min_document_characters: int

    def __post_init__(self) -> None:
        if self.unicode_normalization not in UNICODE_NORMALIZATIONS:
            raise UserError(
                f"--unicode_normalization={self.unicode_normalization}; expected one of"
                f" {', '.join(UNICODE_NORMALIZATIONS)}"
            )
        if self.min_document_characters < 0:
            raise UserError(f"--min_document_characters={self.min_document_characters}; expected at least 0")


@dataclass
class HygieneCounts:
    """What was found.

    Attributes:
        num_documents_normalized: those that NFC changed.
        num_documents_too_short: those left out, the ones without any character included.
    """

    num_documents_read: int = 0
    num_documents_normalized: int = 0
    num_control_characters_dropped: int = 0
    num_documents_too_short: int = 0


def clean_document(document: Document, options: HygieneOptions, counts: HygieneCounts) -> Document | None:
    """Mends a document.

    Returns: the document, the same object if there was nothing to mend; None if it is too short.
    """
    counts.num_documents_read += 1
    lines = document.lines
    if options.drop_control_characters:
        lines = _without_control_characters(lines, counts)
    if options.unicode_normalization == NFC:
        lines = _normalized(lines, counts)
    if sum(map(len, lines)) < max(1, options.min_document_characters):
        counts.num_documents_too_short += 1
        return None
    return document if lines is document.lines else Document(lines, document.has_paragraphs)


def _without_control_characters(lines: list[str], counts: HygieneCounts) -> list[str]:
    """Also turns the control characters that are white space into spaces, so that a line is one line."""
    # Far faster than the search for a set of characters: a printable string holds no control character.
    if all(line.isprintable() and REPLACEMENT_CHARACTER not in line for line in lines):
        return lines
    cleaned = []
    has_changed = False
    for line in lines:
        if not line.isprintable() or REPLACEMENT_CHARACTER in line:
            kept, num_dropped = _DROPPED.subn("", line)
            kept = _WHITE_SPACE_CONTROLS.sub(" ", kept).strip()
            counts.num_control_characters_dropped += num_dropped
            has_changed |= kept != line
            line = kept
        if line:
            cleaned.append(line)
    return cleaned if has_changed else lines


def _normalized(lines: list[str], counts: HygieneCounts) -> list[str]:
    is_normalized = unicodedata.is_normalized
    if all(line.isascii() or is_normalized(NFC, line) for line in lines):
        return lines
    counts.num_documents_normalized += 1
    return [unicodedata.normalize(NFC, line) for line in lines]
