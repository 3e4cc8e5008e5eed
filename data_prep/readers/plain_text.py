"""Plain text in its three layouts: documents between blank lines, sentences without documents, a text a file."""

from collections.abc import Iterator
from typing import BinaryIO

from data_prep.readers.documents import Document, ReaderOptions, ReadReport, Source
from data_prep.readers.lines import DocumentCollector, LineReader


def read_plain_text(stream: BinaryIO, source: Source, options: ReaderOptions, report: ReadReport) -> Iterator[Document]:
    """Documents of plain text, a sentence or paragraph a line; a line of white space alone ends one.

    See `TextFormat.documents`.
    """
    collector = DocumentCollector(has_paragraphs=False, report=report)
    for line in LineReader(stream, source):
        if document := (collector.add(line) if line else collector.end()):
            yield document
    if last := collector.end():
        yield last


def begins_plain_text_document(line: bytes) -> bool:
    """Whether a document ends before `line`, which is blank then: what follows blank lines is cut there too."""
    # An undecodable line is reported by the reader, whichever part it falls into.
    return not line.strip() or not line.decode("utf-8", errors="replace").strip()


def read_sentences(stream: BinaryIO, source: Source, options: ReaderOptions, report: ReadReport) -> Iterator[Document]:
    """Documents of files with a sentence a line and no mark between documents: each `options.lines_per_document` lines.

    See `TextFormat.documents`; the stream begins at a multiple of so many lines. Blank lines count, being lines.
    """
    collector = DocumentCollector(has_paragraphs=False, report=report)
    num_lines = 0
    reader = LineReader(stream, source)
    for block in reader.blocks():
        *lines, unfinished = reader.decoded(block).split("\n")
        for line in lines:
            if (line := line.strip()) and (document := collector.add(line)):
                yield document
            num_lines += 1
            if num_lines % options.lines_per_document == 0 and (document := collector.end()):
                yield document
        if (unfinished := unfinished.strip()) and (document := collector.add(unfinished)):
            yield document
    if last := collector.end():
        yield last


def read_whole_text(stream: BinaryIO, source: Source, options: ReaderOptions, report: ReadReport) -> Iterator[Document]:
    """The one document of a file, a paragraph a line, as OpenWebText has them; see `TextFormat.documents`."""
    collector = DocumentCollector(has_paragraphs=True, report=report)
    for line in LineReader(stream, source):
        if line and (document := collector.add(line)):
            yield document
    if last := collector.end():
        yield last
