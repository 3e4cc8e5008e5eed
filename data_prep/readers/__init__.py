"""Readers: files of text to documents. A format is one function and one line in `FORMATS`."""

from data_prep.readers.books import read_book
from data_prep.readers.documents import Document, TextFormat
from data_prep.readers.plain_text import next_plain_text_document, read_plain_text
from data_prep.readers.wikiextractor import next_wikiextractor_document, read_wikiextractor

__all__ = ["FORMATS", "Document", "TextFormat"]

FORMATS: dict[str, TextFormat] = {
    "text": TextFormat(read_plain_text, next_plain_text_document),
    "book": TextFormat(read_book, next_document=None),
    "wikiextractor": TextFormat(read_wikiextractor, next_wikiextractor_document),
}
