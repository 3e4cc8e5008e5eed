"""What the tests of the readers share."""

import io
from collections.abc import Callable

import pytest

from data_prep.readers import FORMATS
from data_prep.readers.documents import ReaderOptions, ReadReport, Source


@pytest.fixture(scope="session")
def read() -> Callable[..., list[list[str]]]:
    """`read(format, content, report)`: the lines of the documents of a file `file.txt`, three lines to a document."""

    def lines_of_documents(
        format_name: str, content: str | bytes, report: ReadReport | None = None, offset: int = 0, is_end: bool = True
    ) -> list[list[str]]:
        stream = io.BytesIO(content.encode() if isinstance(content, str) else content)
        options = ReaderOptions(text_field="text", lines_per_document=3, keep_disambiguation_pages=False)
        source = Source("file.txt", offset, is_end)
        documents = FORMATS[format_name].documents(stream, source, options, report or ReadReport())
        return [document.lines for document in documents]

    return lines_of_documents
