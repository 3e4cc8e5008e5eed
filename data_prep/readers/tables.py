"""Parquet and Arrow files, the formats of Hugging Face's data sets: one column holds the text.

A row is a document, and its lines are paragraphs. If a row is a sentence (`bookcorpus`), the format `sentences` makes a
document of every `lines_per_document` rows, as it does with the lines of a text file. One record batch (Arrow), or some
rows of a row group (Parquet), are in memory at a time.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

from data_prep.archives import FileFault
from data_prep.counts import ReadCounts
from data_prep.documents import Document, Origin
from data_prep.readers.lines import collect_documents, documents_of_texts, split_lines
from electra_tf.data.manifest import DatasetSettings

_PARQUET_MAGIC = b"PAR1"
_ARROW_FILE_MAGIC = b"ARROW1"
# An Arrow stream begins with a message: this mark, then the length of the message, at most some thousands of bytes.
_ARROW_MESSAGE_MARK = b"\xff\xff\xff\xff"

_BATCH_ROWS = 256
_READ_BYTES = 2**20

# To reach a row, the rows before it in its group are decoded: 10 ms per MB, compared with 200 ms for tokenizing.
_MAX_PARTS_OF_GROUP = 8


def table_of(begin: bytes) -> str:
    """The kind of a file that begins with `begin` (at least 8 bytes): "parquet", "arrow", or "" for no table."""
    if begin.startswith(_PARQUET_MAGIC):
        return "parquet"
    is_stream = begin.startswith(_ARROW_MESSAGE_MARK) and 0 < int.from_bytes(begin[4:8], "little") < 2**28
    return "arrow" if is_stream or begin.startswith(_ARROW_FILE_MAGIC) else ""


def read_rows(
    stream: BinaryIO,
    origin: Origin,
    settings: DatasetSettings,
    end: int | None = None,
    rows_are_sentences: bool = False,
) -> Iterator[Document | ReadCounts]:
    """The documents of the rows from `origin.offset` to `end` (None: the end of the table).

    A row without text is counted as skipped.

    Raises: FileFault: the file is not a table, or has no column of strings with the name `settings.text_field`.
    """
    texts = _texts(_open(stream), origin, end, settings.text_field)
    if not rows_are_sentences:
        return documents_of_texts(texts, settings.layout)

    def lines() -> Iterator[str | None]:
        for i, text in enumerate(texts):
            yield from split_lines(text or "", "join")
            if (i + 1) % settings.lines_per_document == 0:
                yield None
        yield None

    return collect_documents(lines(), has_paragraphs=False)


def row_ranges(stream: BinaryIO, unit_bytes: int, rows_per_document: int) -> list[tuple[int, int]]:
    """Splits a table into ranges (begin, end) of rows, of about `unit_bytes`, at document boundaries.

    Returns: an empty list if a remote file would have to be read to its end to find the ranges.
    """
    table = _open(stream)
    if not table.has_cheap_groups:
        return []
    parts = []  # the numbers of rows and bytes of row groups and record batches, and of parts of those too big
    for group_rows, group_bytes, _ in table.groups:
        num_parts = max(1, min(group_bytes // max(unit_bytes, 1), _MAX_PARTS_OF_GROUP, group_rows))
        ends = [group_rows * i // num_parts for i in range(num_parts + 1)]
        parts += [(end - begin, group_bytes // num_parts) for begin, end in pairwise(ends)]
    num_rows = sum(rows for rows, _ in parts)
    ranges = []
    begin = row = num_bytes = 0
    for group_rows, group_bytes in parts:
        row += group_rows
        num_bytes += group_bytes
        end = min(-(-row // rows_per_document) * rows_per_document, num_rows)
        if end > begin and (num_bytes >= unit_bytes or end == num_rows):
            ranges.append((begin, end))
            begin, num_bytes = end, 0
    return ranges


class _Table(NamedTuple):
    """An open table.

    Attributes:
        groups: the number of rows, of bytes, and a function that reads the record batches of a list of columns, for
            each row group (Parquet) or record batch (Arrow).
        has_cheap_groups: whether the sizes of the groups are known without reading the rows.
    """

    schema: Any
    groups: Iterator[tuple[int, int, Callable[[list[str]], Iterator[Any]]]]
    has_cheap_groups: bool


def _open(stream: BinaryIO) -> _Table:
    begin = stream.read(20)
    if not (kind := table_of(begin)):
        raise FileFault("files in another format", f"begins with {begin!r}; expected a Parquet or Arrow file")
    stream.seek(0)
    import pyarrow
    from pyarrow import parquet

    if kind == "parquet":
        # `pre_buffer` would read whole columns of a row group at once, and so would one call for several groups.
        file = parquet.ParquetFile(stream, buffer_size=_READ_BYTES, pre_buffer=False)
        sizes = map(file.metadata.row_group, range(file.num_row_groups))
        groups = (
            (size.num_rows, size.total_byte_size, lambda names, i=i: file.iter_batches(_BATCH_ROWS, [i], names, False))
            for i, size in enumerate(sizes)
        )
        return _Table(file.schema_arrow, groups, has_cheap_groups=True)
    name = getattr(stream, "name", None)
    # In a memory-mapped file, batches that are skipped are not read.
    is_mapped = isinstance(name, str)
    file = pyarrow.memory_map(name) if is_mapped else pyarrow.PythonFile(stream, "r")
    is_stream = bytes(file.read(len(_ARROW_MESSAGE_MARK))) == _ARROW_MESSAGE_MARK
    file.seek(0)
    reader = pyarrow.ipc.open_stream(file) if is_stream else pyarrow.ipc.open_file(file)
    batches = reader if is_stream else (reader.get_batch(i) for i in range(reader.num_record_batches))
    # Validated: else a false length reads beyond the file. In full only the texts that are read, see `_texts`.
    sound = (batch for batch in batches if batch.validate() is None)  # which raises
    groups = ((batch.num_rows, batch.nbytes, lambda columns, b=batch: iter([b])) for batch in sound)
    return _Table(reader.schema, groups, has_cheap_groups=is_mapped)


def _texts(table: _Table, origin: Origin, end: int | None, column: str) -> Iterator[str | None]:
    from pyarrow import types

    kinds = [field.type for field in table.schema if field.name == column]
    values = [kind.value_type if types.is_dictionary(kind) else kind for kind in kinds]
    is_text = [types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) for kind in values]
    if is_text != [True]:
        columns = ", ".join(f"{field.name!r} of {field.type}" for field in table.schema)
        raise FileFault(
            f"tables without a column text_field={column} of strings",
            f"has no column {column!r} of strings, or several; give text_field; there are {columns}",
        )
    row = 0
    for num_rows, _, batches in table.groups:
        if row + num_rows <= origin.offset:
            row += num_rows
            continue
        for batch in batches([column]):
            texts = batch.column(column)[max(origin.offset - row, 0) : None if end is None else end - row]
            texts.validate(full=True)
            for i in range(0, len(texts), _BATCH_ROWS):
                yield from texts[i : i + _BATCH_ROWS].to_pylist()
            row += batch.num_rows
            if end is not None and row >= end:
                return
