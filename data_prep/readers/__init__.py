"""Readers turn files into documents. A format is a function and a line in `FORMATS`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from data_prep.counts import ReadCounts
from data_prep.documents import Document, Origin
from data_prep.readers.boundaries import CountBoundaries, LineBoundaries, TagBoundaries
from data_prep.readers.cirrus import read_cirrus
from data_prep.readers.separated import read_separated
from data_prep.readers.tables import read_rows
from data_prep.readers.text import (
    is_blank,
    read_book,
    read_documents,
    read_json_lines,
    read_plain_text,
    read_sentences,
    read_whole_text,
)
from data_prep.readers.wikiextractor import JSON_LAYOUT, begins_article, layout_of, read_wikiextractor
from data_prep.readers.wikipedia import PAGE_BEGIN, read_wikipedia
from data_prep.wikitext.names import header_of
from electra_tf.data.manifest import DatasetSettings


@dataclass(frozen=True)
class TextFormat:
    """The reader of a file format.

    Attributes:
        documents: (stream, origin, settings) -> documents, and counts of what is left out between them. The stream is a
            file, or a part of one that begins and ends at document boundaries. Readers read it in pieces of bounded
            size.
        boundaries: (header, settings) -> what finds the boundaries between documents. None if a file is one document,
            or has to be read from its beginning.
        header_of: (first bytes of a file) -> the header: what the reader of any part has to know of its beginning.
    """

    documents: Callable[[BinaryIO, Origin, DatasetSettings], Iterator[Document | ReadCounts]]
    boundaries: Callable[[bytes, DatasetSettings], LineBoundaries] | None = None
    header_of: Callable[[bytes], bytes] = lambda begin: b""


def _has_text(line: bytes) -> bool:
    return not line.isspace()


FORMATS: dict[str, TextFormat] = {
    "text": TextFormat(read_plain_text, lambda header, settings: LineBoundaries(is_blank)),
    "sentences": TextFormat(read_sentences, lambda header, settings: CountBoundaries(settings.lines_per_document)),
    "documents": TextFormat(read_documents, lambda header, settings: LineBoundaries(_has_text)),
    "book": TextFormat(read_book),
    "wikiextractor": TextFormat(
        read_wikiextractor,
        lambda header, settings: LineBoundaries(_has_text if header == JSON_LAYOUT else begins_article),
        layout_of,
    ),
    "wikipedia": TextFormat(read_wikipedia, lambda header, settings: TagBoundaries(PAGE_BEGIN), header_of),
    # A line with the number of a page is nothing without it, so that any line may begin a range.
    "cirrus": TextFormat(read_cirrus, lambda header, settings: LineBoundaries(_has_text)),
    "jsonl": TextFormat(read_json_lines, lambda header, settings: LineBoundaries(_has_text)),
    "csv": TextFormat(partial(read_separated, delimiters=",;")),
    "tsv": TextFormat(partial(read_separated, delimiters="\t")),
    "openwebtext": TextFormat(read_whole_text),
    "parquet": TextFormat(read_rows),
    "arrow": TextFormat(read_rows),
}
