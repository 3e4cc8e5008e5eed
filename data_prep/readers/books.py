"""Books: a file is a document; hard-wrapped lines are joined into paragraphs.

Digital novels come in four layouts: hard-wrapped at some 50 to 100 columns or a paragraph a line, each with blank lines
between the paragraphs or without. Blank lines end a paragraph in all four. Where a wrapped book has none, a paragraph
ends at a line that stops early: one that ends a sentence although the next word would have fitted, or a very short one.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.readers.documents import Document, ReaderOptions, ReadReport, Source
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS, LineReader

# 0.90 quantile / 0.75 quantile of the line length: in 97 English novels (1839 to 1929), 1.01 to 1.09 where lines are
# wrapped, 1.4 to 2.7 where a line is a paragraph.
_MAX_WRAPPED_LENGTH_RATIO = 1.3
# Runs of blank lines for each line of text: of the same novels, the wrapped ones have at least 0.05 or under 0.005.
_MIN_SEPARATING_BLANKS = 0.03
# A line under this part of the usual width ends a paragraph whatever it ends with: a heading, a verse, "said he,".
_SHORT_LINE_FRACTION = 0.5

_SENTENCE_END = re.compile(r"""[.!?:;][)\]"'”’_*]*$""")
_HYPHENATED_END = re.compile(r"\w-$")


def read_book(stream: BinaryIO, source: Source, options: ReaderOptions, report: ReadReport) -> Iterator[Document]:
    """The one document of a book; see `TextFormat.documents`. Its lines are paragraphs.

    A file of more than `MAX_DOCUMENT_CHARACTERS` is cut into several such documents.
    """
    lines: list[str] = []
    num_characters = 0
    for line in LineReader(stream, source):
        if line and num_characters and num_characters + len(line) > MAX_DOCUMENT_CHARACTERS:
            yield Document(_paragraphs(lines), has_paragraphs=True)
            report.num_documents_cut += 1
            lines, num_characters = [], 0
        # Of several blank lines one tells as much.
        if line or (lines and lines[-1]):
            lines.append(line)
            num_characters += len(line)
    if paragraphs := _paragraphs(lines):
        yield Document(paragraphs, has_paragraphs=True)


def _paragraphs(lines: list[str]) -> list[str]:
    """Stripped lines, blank ones included, to paragraphs."""
    lengths = sorted(len(line) for line in lines if line)
    if not lengths:
        return []
    usual_width, wide = (lengths[int(quantile * (len(lengths) - 1))] for quantile in (0.75, 0.9))
    if wide > _MAX_WRAPPED_LENGTH_RATIO * usual_width:
        return [line for line in lines if line]
    num_blanks = sum(not line and bool(previous) for previous, line in zip(lines, lines[1:], strict=False))
    has_separating_blanks = num_blanks >= _MIN_SEPARATING_BLANKS * len(lengths)

    paragraphs = []
    pending: list[str] = []
    for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
        if line:
            pending.append(line)
        ends_early = not has_separating_blanks and _ends_early(line, next_line, usual_width)
        if pending and (not next_line or ends_early):
            paragraphs.append(_join(pending))
            pending = []
    return paragraphs


def _ends_early(line: str, next_line: str, usual_width: int) -> bool:
    """Whether a wrapped `line` stops where its writer could have gone on."""
    if len(line) < _SHORT_LINE_FRACTION * usual_width:
        return True
    next_word = next_line.split(maxsplit=1)[0] if next_line else ""
    return len(line) + 1 + len(next_word) <= usual_width and bool(_SENTENCE_END.search(line))


def _join(lines: list[str]) -> str:
    """The lines of a paragraph as one; a word broken at its own hyphen ("dark-" / "haired") becomes whole again."""
    joined = [lines[0]]
    for previous, line in zip(lines, lines[1:], strict=False):
        is_broken_word = _HYPHENATED_END.search(previous) and line[0].islower()
        joined.append(line if is_broken_word else " " + line)
    return "".join(joined)
