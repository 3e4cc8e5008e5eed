"""Files to work units of bounded size.

Plain files are cut into ranges, which the workers read themselves. Big compressed files and archives have to be gone
through in one piece: the process that plans does it, and hands the text over. Small files share a unit.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO

from data_prep import containers
from data_prep.compression import Truncation
from data_prep.cutting import (
    Boundaries,
    CountBoundaries,
    LengthBoundaries,
    LineBoundaries,
    next_document,
    pieces,
)
from data_prep.readers import FORMATS, tables
from data_prep.readers.documents import ReaderOptions
from data_prep.readers.json_lines import begins_json_line
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS
from data_prep.readers.wikiextractor import is_json_layout
from data_prep.source_files import SourceFile
from data_prep.units import FilePart, WorkUnit, reading

# A file of text unpacks to about so many times its size.
_USUAL_COMPRESSION = 4

# In these a document may be a whole file, of any size: it is not read in one piece.
_CUT_BY_LENGTH = ("text", "book", "openwebtext")

# So many bytes without a boundary are a document that will be cut, or nearly.
_MAX_WHOLE_BYTES = 4 * MAX_DOCUMENT_CHARACTERS

# A document that is longer than so many units is not handed over; its worker unpacks the file anew, up to its end.
_MAX_UNITS_HELD = 4


def plan_units(files: Iterable[SourceFile], unit_bytes: int, options: ReaderOptions) -> Iterator[WorkUnit]:
    """Cuts big files and gathers small ones, in order, into units of about `unit_bytes` of text.

    The units are a function of the files and the arguments; the documents in them of the files and `options`.

    Raises: UserError: a file cannot be read, or is damaged.
    """
    pending: list[FilePart] = []
    pending_bytes = 0
    for part in (part for file in files for part in _parts(file, unit_bytes, options)):
        text_bytes = _text_bytes(part)
        if pending and pending_bytes + text_bytes > unit_bytes:
            yield tuple(pending)
            pending, pending_bytes = [], 0
        pending.append(part)
        pending_bytes += text_bytes
    if pending:
        yield tuple(pending)


def _text_bytes(part: FilePart) -> int:
    """About how much text a part is."""
    if part.content is not None:
        return len(part.content)
    return part.num_bytes * (_USUAL_COMPRESSION if part.file.compression else 1)


def _parts(file: SourceFile, unit_bytes: int, options: ReaderOptions) -> Iterator[FilePart]:
    is_packed = bool(file.compression or file.is_archive)
    # A file that is one document is not worth cutting before it has to be.
    one_part_bytes = unit_bytes if _has_boundaries(file) or file.is_archive else max(unit_bytes, _MAX_WHOLE_BYTES)
    if file.table and not is_packed:
        with reading(file) as stream:
            yield from _table_parts(file, stream, unit_bytes, options)
    elif file.num_bytes * (_USUAL_COMPRESSION if file.compression else 1) <= one_part_bytes:
        yield FilePart(file, file.num_bytes)
    elif is_packed:
        yield from _with_num_bytes(file, unit_bytes, options)
    else:
        with reading(file) as stream:
            yield from _plain_parts(file, stream, unit_bytes, options)


def _has_boundaries(file: SourceFile) -> bool:
    """Whether documents end within a file."""
    return file.format == "sentences" or FORMATS[file.format].begins_document is not None


def _begins_document(file: SourceFile, begin: bytes) -> Callable[[bytes], bool]:
    """Tells the first line of a document in a file that begins so."""
    if file.format == "wikiextractor" and is_json_layout(begin):
        return begins_json_line
    return FORMATS[file.format].begins_document or (lambda line: False)


def _boundaries(file: SourceFile, begin: bytes, options: ReaderOptions) -> Boundaries:
    """How to cut text that begins so."""
    if file.format == "sentences":
        return CountBoundaries(options.lines_per_document)
    begins_document = _begins_document(file, begin)
    return LengthBoundaries(begins_document) if file.format in _CUT_BY_LENGTH else LineBoundaries(begins_document)


def _plain_parts(file: SourceFile, stream: BinaryIO, unit_bytes: int, options: ReaderOptions) -> Iterator[FilePart]:
    head = stream.read(containers.PEEK_BYTES)
    begins_document = _begins_document(file, head)
    max_scanned_bytes = _MAX_WHOLE_BYTES if file.format in _CUT_BY_LENGTH else None
    begin = 0
    can_seek = FORMATS[file.format].begins_document is not None
    while can_seek and begin < file.num_bytes:
        end: int | None = file.num_bytes
        if begin + unit_bytes < file.num_bytes:
            end = next_document(stream, begin + unit_bytes, begins_document, max_scanned_bytes)
        if end is None:
            break
        yield FilePart(file, end - begin, begin, end, end == file.num_bytes)
        begin = end
    # What is left has boundaries that only show when it is read from one of them on.
    stream.seek(begin)
    for piece in pieces(stream, _boundaries(file, head, options), unit_bytes, max_held_bytes=0):
        num_bytes = piece.end - piece.begin
        yield FilePart(file, num_bytes, begin + piece.begin, begin + piece.end, piece.is_end, piece.is_cut)


def _with_num_bytes(file: SourceFile, unit_bytes: int, options: ReaderOptions) -> Iterator[FilePart]:
    """The parts of a packed file. Each accounts for what was read of the file for it, the last one for all the rest."""
    truncation = Truncation()
    last = None
    counted = position = 0
    with reading(file) as stream:
        stream = containers.buffered(stream)
        for part in _packed_parts(FilePart(file, 0), stream, unit_bytes, options, truncation):
            if last is not None:
                yield replace(last, num_bytes=position - counted)
                counted = position
            position, last = stream.tell(), part
    # An archive of nothing has a part too, to be accounted for.
    last = last or FilePart(file, 0, end=0, content=b"")
    yield replace(last, num_bytes=file.num_bytes - counted, truncation=truncation.message)


def _packed_parts(
    origin: FilePart, stream: BinaryIO, unit_bytes: int, options: ReaderOptions, truncation: Truncation
) -> Iterator[FilePart]:
    """The parts of what a file or member holds, `origin` saying which."""
    path = origin.path
    stream = containers.unpacked(stream, path, truncation)
    begin = containers.begin_of(stream)
    if containers.is_archive(begin):
        max_held_bytes = unit_bytes * (1 if _has_boundaries(origin.file) else _MAX_UNITS_HELD)
        for i, member in enumerate(containers.members(stream, path, truncation)):
            name = f"{origin.member}/{member.name}" if origin.member else member.name
            inner = replace(origin, member=name, numbers=(*origin.numbers, i), end=None, content=None)
            if member.num_bytes <= max_held_bytes:
                yield replace(inner, content=member.stream.read())
            else:
                yield from _packed_parts(inner, member.stream, unit_bytes, options, truncation)
        return
    if tables.table_of(begin):
        yield replace(origin, end=None, content=None)
        return
    text = containers.whole_lines(stream, truncation)
    boundaries = _boundaries(origin.file, begin, options)
    for piece in pieces(text, boundaries, unit_bytes, _MAX_UNITS_HELD * unit_bytes):
        begin_of_piece, end, is_end, is_cut, content = piece
        yield replace(origin, begin=begin_of_piece, end=end, is_end=is_end, is_cut=is_cut, content=content)


def _table_parts(file: SourceFile, stream: BinaryIO, unit_bytes: int, options: ReaderOptions) -> Iterator[FilePart]:
    rows_per_document = options.lines_per_document if file.format == "sentences" else 1
    ranges = tables.row_ranges(stream, file.path, unit_bytes, rows_per_document)
    if not ranges:
        yield FilePart(file, file.num_bytes)
        return
    num_rows = ranges[-1][1]
    counted = 0
    for begin, end in ranges:
        num_bytes = file.num_bytes * end // num_rows - counted
        yield FilePart(file, num_bytes, begin, end, end == num_rows)
        counted += num_bytes
