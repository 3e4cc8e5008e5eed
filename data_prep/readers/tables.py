"""Parquet and Arrow files, as data sets of Hugging Face come in: a column holds the text.

A row is a document, whose lines are paragraphs. Where a row is a sentence (`bookcorpus`), the format `sentences` makes
documents of so many rows, as it does with the lines of a text file. Memory holds one record batch, or so many rows of
a row group, at a time.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Protocol

from data_prep.readers.documents import Document, ReaderOptions, ReadReport, Source
from data_prep.readers.lines import DocumentCollector, split_lines
from electra_tf.config.errors import UserError

if TYPE_CHECKING:
    import pyarrow

PEEK_BYTES = 8

_PARQUET_MAGIC = b"PAR1"
_ARROW_FILE_MAGIC = b"ARROW1"
# A stream begins with a message: this mark, then its length, which is some hundreds or thousands of bytes for a schema.
_ARROW_MESSAGE_MARK = b"\xff\xff\xff\xff"

_BATCH_ROWS = 256
_READ_BYTES = 2**20

# To come to a row, those before it in its group are decoded. That costs some ten milliseconds a megabyte, of which the
# tokenizer takes two hundred.
_MAX_PARTS_OF_GROUP = 8


def table_of(begin: bytes) -> str:
    """What a file that begins with these `PEEK_BYTES` is: "parquet", "arrow", or "" if it is no table."""
    if begin.startswith(_PARQUET_MAGIC):
        return "parquet"
    is_stream = begin.startswith(_ARROW_MESSAGE_MARK) and 0 < int.from_bytes(begin[4:8], "little") < 2**28
    return "arrow" if is_stream or begin.startswith(_ARROW_FILE_MAGIC) else ""


def read_table_file(stream: BinaryIO, source: Source, options: ReaderOptions, report: ReadReport) -> Iterator[Document]:
    """Documents of a whole table; see `TextFormat.documents`. A row is one.

    Raises: UserError: the file is no table, or has no column of strings called `options.text_field`.
    """
    return read_table(stream, source, documents_of_rows, options, report)


def documents_of_rows(texts: Iterator[str | None], options: ReaderOptions, report: ReadReport) -> Iterator[Document]:
    """A document a row; its lines are paragraphs. A row without text is counted by `report.skip`."""
    collector = DocumentCollector(has_paragraphs=True, report=report)
    for text in texts:
        if text is None:
            report.skip("rows without text")
        else:
            yield from collector.documents_of_text(text)


def documents_of_sentences(
    texts: Iterator[str | None], options: ReaderOptions, report: ReadReport
) -> Iterator[Document]:
    """A document every `options.lines_per_document` rows, each of which is a sentence."""
    collector = DocumentCollector(has_paragraphs=False, report=report)
    for i, text in enumerate(texts):
        if i % options.lines_per_document == 0 and (document := collector.end()):
            yield document
        for line in split_lines(text or ""):
            if document := collector.add(line):
                yield document
    if last := collector.end():
        yield last


DocumentsOf = Callable[[Iterator[str | None], ReaderOptions, ReadReport], Iterator[Document]]


def read_table(
    stream: BinaryIO, source: Source, documents_of: DocumentsOf, options: ReaderOptions, report: ReadReport
) -> Iterator[Document]:
    """The documents of a table that can only be read once through: it is copied to a temporary file first."""
    with tempfile.TemporaryFile() as copy:
        while block := stream.read(_READ_BYTES):
            copy.write(block)
        copy.seek(0)
        yield from read_rows(copy, source, None, documents_of, options, report)


def read_rows(
    stream: BinaryIO,
    source: Source,
    end: int | None,
    documents_of: DocumentsOf,
    options: ReaderOptions,
    report: ReadReport,
) -> Iterator[Document]:
    """The documents of rows `source.offset` to `end`, None being that of the table."""
    with _opened(stream, source.path) as table:
        yield from documents_of(_texts(table, source, end, options.text_field), options, report)


def row_ranges(stream: BinaryIO, path: str, unit_bytes: int, rows_per_document: int) -> list[tuple[int, int]]:
    """Cuts a table into (begin, end) of about `unit_bytes` at the ends of documents.

    Returns: none if that would need the whole of a distant file to be read.
    """
    with _opened(stream, path) as table:
        if not table.knows_its_groups:
            return []
        groups = [part for group in table.groups() for part in _parts_of_group(*group, unit_bytes)]
    num_rows = sum(rows for rows, _ in groups)
    ranges = []
    begin = row = num_bytes = 0
    for group_rows, group_bytes in groups:
        row += group_rows
        num_bytes += group_bytes
        end = min(-(-row // rows_per_document) * rows_per_document, num_rows)
        if end > begin and (num_bytes >= unit_bytes or end == num_rows):
            ranges.append((begin, end))
            begin, num_bytes = end, 0
    return ranges


def _parts_of_group(num_rows: int, num_bytes: int, unit_bytes: int) -> Iterator[tuple[int, int]]:
    """Cuts a row group or record batch that is too big into (rows, bytes)."""
    num_parts = max(1, min(num_bytes // max(unit_bytes, 1), _MAX_PARTS_OF_GROUP, num_rows))
    for i in range(num_parts):
        yield num_rows * (i + 1) // num_parts - num_rows * i // num_parts, num_bytes // num_parts


def _texts(table: "_Table", source: Source, end: int | None, column: str) -> Iterator[str | None]:
    import pyarrow

    _check_column(table.schema, source.path, column)
    begin = source.offset
    row, batches = table.batches(begin, column)
    try:
        for batch in batches:
            texts = batch.column(column)
            first, last = max(begin - row, 0), len(texts) if end is None else min(end - row, len(texts))
            for i in range(first, last, _BATCH_ROWS):
                yield from texts.slice(i, min(_BATCH_ROWS, last - i)).to_pylist()
            row += len(texts)
            if end is not None and row >= end:
                return
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{source.path} is damaged after row {row} ({_one_line(error)}); fetch it anew") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{source.path} is not UTF-8 after row {row} of the column {column!r} ({error})") from None


def _check_column(schema: "pyarrow.Schema", path: str, column: str) -> None:
    from pyarrow import types

    if column not in schema.names:
        raise UserError(
            f"{path} has no column {column!r}; its columns are {', '.join(map(repr, schema.names))}; name the one with"
            " the text in --text_field"
        )
    if schema.names.count(column) > 1:
        raise UserError(f"{path} has {schema.names.count(column)} columns {column!r}, expected one; rename the others")
    column_type = schema.field(column).type
    value_type = column_type.value_type if types.is_dictionary(column_type) else column_type
    if not (types.is_string(value_type) or types.is_large_string(value_type) or types.is_string_view(value_type)):
        raise UserError(f"{path}: the column {column!r} holds {column_type}, expected strings")


class _Table(Protocol):
    """A table of either kind.

    Attributes:
        knows_its_groups: `groups` is cheap.
    """

    schema: "pyarrow.Schema"
    knows_its_groups: bool

    def groups(self) -> Iterator[tuple[int, int]]:
        """(rows, bytes) of each of its row groups or record batches."""

    def batches(self, begin: int, column: str) -> tuple[int, Iterator["pyarrow.RecordBatch"]]:
        """The first row of the group with row `begin`, and the batches from there on, which hold `column`."""


class _ParquetTable:
    knows_its_groups = True

    def __init__(self, stream: BinaryIO):
        from pyarrow import parquet

        # Columns of a row group are read as they are needed, not whole.
        self._file = parquet.ParquetFile(stream, buffer_size=_READ_BYTES, pre_buffer=False)
        self.schema = self._file.schema_arrow

    def groups(self) -> Iterator[tuple[int, int]]:
        for i in range(self._file.num_row_groups):
            group = self._file.metadata.row_group(i)
            yield group.num_rows, group.total_byte_size

    def batches(self, begin: int, column: str) -> tuple[int, Iterator["pyarrow.RecordBatch"]]:
        row = first_group = 0
        for rows, _ in self.groups():
            if row + rows > begin:
                break
            row += rows
            first_group += 1
        groups = range(first_group, self._file.num_row_groups)
        # One group after the other: handed several, the library reads ahead.
        batches = (
            batch
            for group in groups
            for batch in self._file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[column], use_threads=False)
        )
        return row, batches


class _ArrowTable:
    def __init__(self, stream: BinaryIO):
        import pyarrow

        name = getattr(stream, "name", None)
        # In a mapped file the batches that are passed over are not read.
        self.knows_its_groups = isinstance(name, str)
        self._file = pyarrow.memory_map(name) if self.knows_its_groups else pyarrow.PythonFile(stream, "r")
        is_stream = bytes(self._file.read(len(_ARROW_MESSAGE_MARK))) == _ARROW_MESSAGE_MARK
        self._file.seek(0)
        self._reader = pyarrow.ipc.open_stream(self._file) if is_stream else pyarrow.ipc.open_file(self._file)
        self.schema = self._reader.schema

    def groups(self) -> Iterator[tuple[int, int]]:
        for batch in self._batches():
            yield batch.num_rows, batch.nbytes

    def batches(self, begin: int, column: str) -> tuple[int, Iterator["pyarrow.RecordBatch"]]:
        return 0, self._batches()

    def _batches(self) -> Iterator["pyarrow.RecordBatch"]:
        if hasattr(self._reader, "get_batch"):
            return (self._reader.get_batch(i) for i in range(self._reader.num_record_batches))
        return iter(self._reader)


@contextlib.contextmanager
def _opened(stream: BinaryIO, path: str) -> Iterator[_Table]:
    try:
        import pyarrow
    except ImportError:
        raise UserError("Parquet and Arrow files are read with the package pyarrow: pip install pyarrow") from None
    begin = stream.read(PEEK_BYTES)
    stream.seek(0)
    kind = table_of(begin)
    if not kind:
        raise UserError(f"{path} begins with {begin!r}; expected a Parquet or Arrow file")
    try:
        table = _ParquetTable(stream) if kind == "parquet" else _ArrowTable(stream)
    except pyarrow.ArrowException as error:
        raise UserError(f"{path} is no {kind} file, or cut off ({_one_line(error)}); fetch it anew") from None
    yield table


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
