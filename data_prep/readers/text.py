"""Text in six layouts: documents between blank lines, a sentence or a document a line or a file, books, JSON lines.

Digital books are either wrapped at 50 to 100 columns or have one paragraph per line, both with or without blank lines
between paragraphs. A blank line always ends a paragraph. In a wrapped book without blank lines, a paragraph also ends
at a very short line, and at a line that ends a sentence although the next word would have fitted.
"""

import json
import re
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any, BinaryIO

from data_prep.counts import ReadCounts
from data_prep.documents import Document, Origin, RecordFault, read_or_skip
from data_prep.readers.lines import (
    MAX_DOCUMENT_CHARACTERS,
    MAX_RECORD_BYTES,
    LineReader,
    collect_documents,
    documents_of_texts,
)
from electra_tf.data.manifest import DatasetSettings

# 0.90 quantile / 0.75 quantile of the line length. In 97 English novels (1839 to 1929) it is 1.01 to 1.09 where lines
# are wrapped and 1.4 to 2.7 where a line is a paragraph.
_MAX_WRAPPED_LENGTH_RATIO = 1.3
# Runs of blank lines per line of text. In the wrapped novels it is either at least 0.05 or below 0.005.
_MIN_SEPARATING_BLANKS = 0.03
# A line shorter than this fraction of the usual width always ends a paragraph: a heading, a verse.
_SHORT_LINE_FRACTION = 0.5

_SENTENCE_END = re.compile(r"""[.!?:;][)\]"'”’_*]*$""")
_HYPHENATED_END = re.compile(r"\w-$")


def read_plain_text(stream: BinaryIO, origin: Origin, settings: DatasetSettings) -> Iterator[Document | ReadCounts]:
    """Documents of plain text, one sentence or paragraph per line; a blank line ends a document."""
    keeps = settings.layout == "keep"
    lines = map(str.rstrip if keeps else str.strip, LineReader(stream, origin).decoded_lines())
    pairs = pairwise(chain([""], lines, [""]))
    documents = (("\n" if keeps and before else "") + line if line else None for before, line in pairs)
    return collect_documents(documents, has_paragraphs=False)


def is_blank(line: bytes) -> bool:
    """Whether `line` is blank: plain text may be split before it."""
    # A file that cannot be decoded is left out later.
    return not line.strip() or not line.decode("utf-8", errors="replace").strip()


def read_sentences(stream: BinaryIO, origin: Origin, settings: DatasetSettings) -> Iterator[Document | ReadCounts]:
    """Documents of `settings.lines_per_document` lines, blank ones included.

    The stream begins at a multiple of that number of lines.
    """
    return _documents_of_lines(stream, origin, settings.lines_per_document, has_paragraphs=False)


def read_documents(stream: BinaryIO, origin: Origin, settings: DatasetSettings) -> Iterator[Document | ReadCounts]:
    """Documents of one line each; blank lines are left out."""
    return _documents_of_lines(stream, origin, 1, has_paragraphs=settings.layout != "keep")


def _documents_of_lines(
    stream: BinaryIO, origin: Origin, lines_per_document: int, has_paragraphs: bool
) -> Iterator[Document | ReadCounts]:
    def lines() -> Iterator[str | None]:
        num_lines = 0
        reader = LineReader(stream, origin)
        for block in reader.blocks():
            *whole_lines, unfinished = block.decode().split("\n")
            for line in whole_lines:
                yield line.strip()
                num_lines += 1
                if num_lines % lines_per_document == 0:
                    yield None
            yield unfinished.strip()
        yield None

    return collect_documents(lines(), has_paragraphs)


def read_whole_text(stream: BinaryIO, origin: Origin, settings: DatasetSettings) -> Iterator[Document | ReadCounts]:
    """The document of a file of OpenWebText, with one paragraph per line."""
    return collect_documents(chain(LineReader(stream, origin), [None]), has_paragraphs=True)


def read_book(stream: BinaryIO, origin: Origin, settings: DatasetSettings) -> Iterator[Document | ReadCounts]:
    """The document of a book; several documents if it exceeds `MAX_DOCUMENT_CHARACTERS`."""
    lines: list[str] = []
    num_characters = 0
    for line in LineReader(stream, origin):
        if line and num_characters and num_characters + len(line) > MAX_DOCUMENT_CHARACTERS:
            yield Document(_paragraphs(lines), has_paragraphs=True)
            yield ReadCounts(num_documents_cut=1)
            lines, num_characters = [], 0
        # Consecutive blank lines are kept as one.
        if line or (lines and lines[-1]):
            lines.append(line)
            num_characters += len(line)
    if paragraphs := _paragraphs(lines):
        yield Document(paragraphs, has_paragraphs=True)


def _paragraphs(lines: list[str]) -> list[str]:
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
        is_end = not next_line
        if line and next_line and not has_separating_blanks:
            would_fit = len(line) + 1 + len(next_line.split(maxsplit=1)[0]) <= usual_width
            is_end = len(line) < _SHORT_LINE_FRACTION * usual_width or would_fit and bool(_SENTENCE_END.search(line))
        if pending and is_end:
            # A word broken at its hyphen ("dark-" / "haired") becomes one word again.
            are_broken = [_HYPHENATED_END.search(one) and other[0].islower() for one, other in pairwise(pending)]
            rest = (("" if broken else " ") + line for broken, line in zip(are_broken, pending[1:], strict=True))
            paragraphs.append(pending[0] + "".join(rest))
            pending = []
    return paragraphs


def read_json_lines(
    stream: BinaryIO,
    origin: Origin,
    settings: DatasetSettings,
    text_of: Callable[[bytes], str | ReadCounts] | None = None,
) -> Iterator[Document | ReadCounts]:
    """Documents of JSON lines: the lines of the field `settings.text_field` are paragraphs.

    A line with null or white space in this field is counted as skipped, and so is one that is no JSON object with a
    string or null in it.

    Args:
        text_of: returns the text of a line, or the counts of a line that is left out, if it is not the field's.
    """
    read = text_of or (lambda line: text_in(parsed_json(line), settings.text_field, line))

    def texts() -> Iterator[str | ReadCounts]:
        for offset, line in LineReader(stream, origin, MAX_RECORD_BYTES).raw_lines():
            if not line or line.isspace():
                continue
            text = read_or_skip(read, line, Origin(origin.path, offset))
            # An escape such as "\ud800" gives half of a surrogate pair, which UTF-8 cannot represent.
            yield text if isinstance(text, ReadCounts) else text.encode("utf-8", "ignore").decode("utf-8")

    return documents_of_texts(texts(), settings.layout)


def parsed_json(line: bytes) -> Any:
    """What a line of JSON holds. Raises: RecordFault: it is not JSON."""
    try:
        return json.loads(line.decode())
    except json.JSONDecodeError as error:
        raise RecordFault("lines that are not JSON", str(error)) from None


def text_in(fields: Any, text_field: str, line: bytes) -> str:
    """The text in the fields of a line of JSON, "" for null. Raises: RecordFault: they have no string of this name."""
    text = fields.get(text_field, ...) if isinstance(fields, dict) else ...
    if text is not None and not isinstance(text, str):
        raise RecordFault(f"lines without a string in text_field={text_field}", line.decode().strip()[:100])
    return text or ""
