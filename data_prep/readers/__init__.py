"""Readers turn files into documents. A format is a function and a line in `FORMATS`."""

from data_prep.documents import Document, TextFormat
from data_prep.readers.tables import read_rows
from data_prep.readers.text import (
    begins_json_line,
    begins_plain_text_document,
    read_book,
    read_json_lines,
    read_plain_text,
    read_sentences,
    read_whole_text,
)
from data_prep.readers.wikiextractor import begins_wikiextractor_article, is_json_layout, read_wikiextractor
from data_prep.readers.wikipedia import begins_page, read_wikipedia
from data_prep.wikitext.names import header_of

__all__ = ["FORMATS", "Document", "TextFormat"]

FORMATS: dict[str, TextFormat] = {
    "text": TextFormat(read_plain_text, begins_plain_text_document),
    "sentences": TextFormat(read_sentences, begins_document=None),
    "book": TextFormat(read_book, begins_document=None),
    "wikiextractor": TextFormat(
        read_wikiextractor, begins_wikiextractor_article, lambda begin: b"{" * is_json_layout(begin)
    ),
    "wikipedia": TextFormat(read_wikipedia, begins_page, header_of),
    "jsonl": TextFormat(read_json_lines, begins_json_line),
    "openwebtext": TextFormat(read_whole_text, begins_document=None),
    "parquet": TextFormat(read_rows, begins_document=None),
    "arrow": TextFormat(read_rows, begins_document=None),
}
