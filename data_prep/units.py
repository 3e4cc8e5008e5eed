"""Divides the input into units of work, each a range of a big file or several small files, and reads them.

A unit has no text: the process that has it reads its files. A bzip2 file is divided between its blocks, which can be
found and decompressed from any byte on, if its lines show where documents begin. Other compressed files and archives
have to be read from the beginning, each by one process.
"""

import contextlib
import functools
import hashlib
import math
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from data_prep import archives
from data_prep.archives import FileFault, read_errors
from data_prep.counts import ReadCounts
from data_prep.documents import Document, Origin, clean_documents
from data_prep.groups import grouped
from data_prep.readers import FORMATS, tables
from data_prep.readers.boundaries import cut_text, next_boundary, text_of_range
from data_prep.readers.encoding import checked_text, many_controls, utf_16_of
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS
from data_prep.sources import SourceFile
from electra_tf.data.manifest import DatasetSettings
from electra_tf.files import open_binary

# Characters in one call of the tokenizer: enough to hide the cost of the call, few enough for the cache.
BATCH_CHARACTERS = 2**18
_OMISSION_CHARACTERS = 2**8  # as which one counts: so a file of nothing else is not gathered whole
# A compressed text file expands to about this many times its size.
_USUAL_COMPRESSION = 4
_MAX_WHOLE_BYTES = 4 * MAX_DOCUMENT_CHARACTERS  # of a file that is one document, to read it for a sample
_MAX_COPY_BYTES = 2**25  # in memory, of a table in an archive or compressed, which is read from any offset


@dataclass(frozen=True)
class FileRange:
    """A range of a file.

    Attributes:
        num_bytes: stored bytes charged to this range; they sum to the file's size.
        begin, end: document boundaries in bytes of the file, or in rows of a table; of a compressed file any bytes: the
            range has the documents that begin in what is compressed between them. `end` is None for a whole file that
            is small, or is an archive or a compressed table.
        header: see `TextFormat.header_of`.
    """

    file: SourceFile
    num_bytes: int
    begin: int = 0
    end: int | None = None
    header: bytes = b""


Unit = tuple[FileRange, ...]


class TextLimit(Exception):
    """More text was read than a caller wants."""


def unit_name(unit: Unit) -> str:
    """A name for a unit, which changes with the files and their ranges in it."""
    files = [
        (each.file.input_index, each.file.format, each.file.name, each.file.num_bytes, each.file.modified)
        + (each.begin, each.end)
        for each in unit
    ]
    return hashlib.sha256(repr(files).encode()).hexdigest()[:32]


def read_unit(
    unit: Unit, settings: DatasetSettings, max_text_bytes: float = math.inf
) -> Iterator[Document | ReadCounts]:
    """Yields the documents of a unit, and counts of the bytes that were read and of what was left out.

    Raises: ReadError: a file cannot be read. TextLimit: a file that is not small has more than `max_text_bytes`.
    """
    for file_range in unit:
        file = file_range.file
        yield ReadCounts(num_bytes=file_range.num_bytes)
        try:
            if file.fault:
                raise file.fault
            with read_errors(file.path), contextlib.ExitStack() as stack:
                for path, stream in _streams(file_range, stack, settings):
                    try:
                        for item in _documents(file_range, stream, path, settings, max_text_bytes):
                            if isinstance(item, Document) and many_controls("".join(item.lines)):
                                begin = item.lines[0][:40]
                                yield ReadCounts.of_fault("documents of control characters", path, None, begin)
                            else:
                                yield item
                    except FileFault as fault:
                        yield _faulty(path, file_range, fault)
        except FileFault as fault:
            yield _faulty(file.path, file_range, fault)


def read_batches(unit: Unit, settings: DatasetSettings) -> Iterator[tuple[list[Document], ReadCounts]]:
    """Yields the documents of a unit, cleaned, some at a time, with their counts. Raises: see `read_unit`."""
    for items in grouped(read_unit(unit, settings), _num_characters, BATCH_CHARACTERS):
        yield clean_documents(items, settings)


def _num_characters(item: Document | ReadCounts) -> int:
    return sum(map(len, item.lines)) if isinstance(item, Document) else _OMISSION_CHARACTERS


def _faulty(path: str, file_range: FileRange, fault: FileFault) -> ReadCounts:
    num_bytes = file_range.num_bytes if path == file_range.file.path else 0
    return ReadCounts(faulty_files={path: [file_range.begin, *fault.args, num_bytes]})


def _streams(
    file_range: FileRange, stack: contextlib.ExitStack, settings: DatasetSettings
) -> Iterator[tuple[str, BinaryIO]]:
    """Yields path and stream of each text file, from `begin` on, or table in a range."""
    file, begin, end = file_range.file, file_range.begin, file_range.end
    stream = stack.enter_context(open_binary(file.path))
    if end is None or (file.compression and end - begin == file.num_bytes):
        yield from archives.text_files(stream, file.path)
        return
    if file.compression:
        blocks = archives.bzip2_blocks(stream, begin, end)
        # A document that is too long is in one range: from within it, nobody knows where its reader cuts it.
        boundaries = FORMATS[file.format].boundaries(file_range.header, settings)
        text = text_of_range(blocks, boundaries, is_first=begin == 0)
        stream = archives.joined(text)
    elif not file.table:
        stream.seek(begin)
        stream = archives.section(stream, end - begin)
    yield file.path, stream


def _documents(
    file_range: FileRange,
    stream: BinaryIO,
    path: str,
    settings: DatasetSettings,
    max_text_bytes: float,
) -> Iterator[Document | ReadCounts]:
    file, begin = file_range.file, file_range.begin
    # How much text comes before byte `begin` of a compressed file is unknown.
    offset, place = (0, f"{path} from byte {begin} on") if file.compression and begin else (begin, path)
    origin = Origin(place, offset, file_range.header, is_later=begin > 0)
    read_rows = functools.partial(tables.read_rows, rows_are_sentences=file.format == "sentences")
    if file.table and file_range.end is not None:
        yield from read_rows(stream, origin, settings, file_range.end)
        return
    stream = archives.buffered(stream)
    if not origin.is_later and tables.table_of(archives.begin_of(stream)):
        with tempfile.SpooledTemporaryFile(_MAX_COPY_BYTES) as copy:
            shutil.copyfileobj(stream, copy)
            archives.raise_error_of(stream)
            copy.seek(0)
            with read_errors(path):
                yield from read_rows(copy, origin, settings)
        return
    is_small = file_range.end is None and not file.is_archive

    def text(num_left: float = math.inf if is_small else max_text_bytes) -> Iterator[bytes]:
        for block in checked_text(stream, offset, not origin.is_later):
            num_left -= len(block)
            if num_left < 0:
                raise TextLimit
            yield block

    joined = archives.joined(text())
    yield from FORMATS[file.format].documents(joined, origin, settings)
    archives.raise_error_of(joined)


def plan_units(files: Iterable[SourceFile], unit_bytes: int, settings: DatasetSettings) -> Iterator[Unit]:
    """Divides files, in order, into units of about `unit_bytes` of text.

    Equal arguments give equal units. The documents do not depend on `unit_bytes`. A change of a file changes the units
    with its ranges and, because a hash of names begins new units, few others.

    Raises: ReadError: a file cannot be read.
    """
    pending: list[FileRange] = []
    pending_bytes = 0
    for each in (file_range for file in files for file_range in _ranges(file, unit_bytes, settings)):
        text_bytes = _unpacked_bytes(each.file, each.num_bytes)
        begins_unit = zlib.crc32(each.file.name.encode()) * unit_bytes < text_bytes * 2**32
        if pending and (begins_unit or pending_bytes + text_bytes > unit_bytes):
            yield tuple(pending)
            pending, pending_bytes = [], 0
        pending.append(each)
        pending_bytes += text_bytes
    if pending:
        yield tuple(pending)


def _unpacked_bytes(file: SourceFile, num_bytes: int) -> int:
    return num_bytes * (_USUAL_COMPRESSION if file.compression else 1)


def _ranges(file: SourceFile, unit_bytes: int, settings: DatasetSettings) -> Iterator[FileRange]:
    """Yields the ranges of a file; a file whose beginning is faulty is one: its reader finds the fault again."""
    text_format, num_bytes = FORMATS[file.format], file.num_bytes
    is_small = _unpacked_bytes(file, num_bytes) <= max(unit_bytes, 0 if text_format.boundaries else _MAX_WHOLE_BYTES)
    if file.fault or file.is_archive or (file.compression if file.table else is_small):
        yield FileRange(file, num_bytes)
        return
    try:
        with read_errors(file.path), open_binary(file.path) as stream:
            if file.table:
                rows_per_document = settings.lines_per_document if file.format == "sentences" else 1
                ranges = tables.row_ranges(stream, unit_bytes, rows_per_document)
                for begin, end in ranges:
                    num_rows = ranges[-1][1]
                    yield FileRange(file, num_bytes * end // num_rows - num_bytes * begin // num_rows, begin, end)
                if not ranges:
                    yield FileRange(file, num_bytes)
                return
            file_begin = (archives.unpack(stream) if file.compression else stream).read(archives.BUFFER_BYTES)
            if utf_16_of(file_begin):
                yield FileRange(file, num_bytes, end=num_bytes)
                return
            header = text_format.header_of(file_begin)
            for begin, end in _byte_ranges(file, stream, unit_bytes, header, settings):
                yield FileRange(file, end - begin, begin, end, header)
    except FileFault:
        yield FileRange(file, num_bytes)


def _byte_ranges(
    file: SourceFile, stream: BinaryIO, unit_bytes: int, header: bytes, settings: DatasetSettings
) -> Iterator[tuple[int, int]]:
    boundaries = FORMATS[file.format].boundaries
    is_counted = file.format == "sentences"  # only reading shows how many lines come before a byte
    if boundaries is None or file.compression and (is_counted or file.compression != "bzip2"):
        yield 0, file.num_bytes
    elif is_counted:
        stream.seek(0)
        yield from cut_text(stream, boundaries(header, settings), unit_bytes)
    else:
        begin = 0
        while begin < file.num_bytes:
            end = min(begin + unit_bytes, file.num_bytes)
            # Where two ranges of bzip2 meet, a block of up to 900 kB is decompressed twice: they have more text.
            if end < file.num_bytes and not file.compression:
                end = next_boundary(stream, end, boundaries(header, settings))
            yield begin, end
            begin = end
