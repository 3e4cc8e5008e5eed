"""CSV and TSV files with a header: a row is a document, one column holds its text.

Values in quotes may have line ends, so that only reading from the beginning shows where a row begins.
"""

import csv
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.archives import FileFault, raise_error_of
from data_prep.counts import ReadCounts
from data_prep.documents import Document, Origin
from data_prep.readers.lines import MAX_RECORD_BYTES, LineReader, documents_of_texts
from electra_tf.data.manifest import DatasetSettings

# It bounds what a quote without an end takes in; no book is that long.
MAX_VALUE_CHARACTERS = MAX_RECORD_BYTES // 4


def read_separated(
    stream: BinaryIO, origin: Origin, settings: DatasetSettings, delimiters: str
) -> Iterator[Document | ReadCounts]:
    """The documents of the column `settings.text_field`, whose lines are paragraphs.

    A row without text is counted as skipped, and so is one that has another number of columns than the header, also if
    its quotes are ordinary characters.

    Args:
        delimiters: characters of which the first is taken that gives the header this column.
    Raises: FileFault: the header has no such column, or several.
    """
    return documents_of_texts(_texts(stream, origin, settings.text_field, delimiters), settings.layout)


def _texts(stream: BinaryIO, origin: Origin, text_field: str, delimiters: str) -> Iterator[str | ReadCounts]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_VALUE_CHARACTERS))
    source = LineReader(stream, origin, MAX_RECORD_BYTES).raw_lines()
    of_row: list[tuple[int, bytes]] = []  # the lines of a row, with their offsets
    again: list[tuple[int, bytes]] = []  # lines to read once more, the last one first

    def lines() -> Iterator[str]:
        while line := again.pop() if again else next(source, None):
            of_row.append(line)
            yield line[1].decode().rstrip(" ") + "\n"  # without the space for a CR, which would follow a quote
        raise_error_of(stream)  # here, as the error may cut a row

    if (header := next(lines(), None)) is None:
        return
    headers = {each: [name.strip() for name in next(csv.reader([header], delimiter=each))] for each in delimiters}
    delimiter = next((each for each, names in headers.items() if names.count(text_field) == 1), None)
    if delimiter is None:
        raise FileFault(
            f"tables without a column text_field={text_field}",
            f"has no column {text_field!r} in its first line, or several; give text_field; there are"
            f" {', '.join(map(repr, headers[delimiters[0]]))}",
        )
    column, num_columns = headers[delimiter].index(text_field), len(headers[delimiter])
    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    while True:
        of_row.clear()
        try:
            row, problem = next(rows, None), ""
        except csv.Error as error:
            row, problem = [], str(error)
        if row is None:
            return
        # Quotes may be ordinary characters, as in GLUE's files. They are if each line from one to the next is a row:
        # sentences of speech, in files with tabs.
        is_speech = delimiter == "\t" and len(of_row) > 1 and num_columns > 1
        is_speech = is_speech and all(line.count(b"\t") == num_columns - 1 for _, line in of_row)
        if len(row) == num_columns and not is_speech:
            yield row[column]
            continue
        (begin, line), *rest = of_row
        values = line.decode().split(delimiter)
        if len(values) == num_columns:
            yield values[column]
        elif line.strip():
            problem = problem or f"{len(row)} columns instead of {num_columns}"
            yield ReadCounts.of_fault("rows that are not CSV", origin.path, begin, problem)
        again.extend(reversed(rest))  # a quote without an end has taken in the rows in them
        rows = csv.reader(lines(), delimiter=delimiter, strict=True)
