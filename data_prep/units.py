"""Files to work units of bounded size, and work units to documents.

Plain files are cut into ranges, which the workers read themselves. Big compressed files and archives have to be gone
through in one piece: the process that plans does it, and hands the text over. Small files share a unit.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from typing import BinaryIO

from data_prep import containers, storage
from data_prep.compression import Truncation
from data_prep.cutting import Boundaries, CountBoundaries, LineBoundaries, next_document, pieces
from data_prep.readers import FORMATS, Document, tables
from data_prep.readers.documents import ReaderOptions, ReadReport, Source
from data_prep.readers.json_lines import begins_json_line
from data_prep.readers.wikiextractor import is_json_layout
from data_prep.source_files import SourceFile
from electra_tf.config.errors import UserError

# A file of text unpacks to about so many times its size.
_USUAL_COMPRESSION = 4

# A document that is longer than so many units is not handed over; its worker unpacks the file anew, up to its end.
_MAX_UNITS_HELD = 4


@dataclass(frozen=True)
class FilePart:
    """A part of a file.

    Attributes:
        num_bytes: of the file, as it is stored, that this part accounts for.
        begin, end: boundaries between documents, in bytes of the unpacked file or archive member, or in rows of a
            table. An `end` of None: the whole of it, still packed, which may be an archive too.
        is_end: it goes up to the end of that file or member.
        member: its path in the archive, or "".
        numbers: its place in the archive: that of the member, of the member in the archive that this is, and so on.
        content: what stands there; None: the worker opens the file.
        truncation: says that the file is cut off after this part.
    """

    file: SourceFile
    num_bytes: int
    begin: int = 0
    end: int | None = None
    is_end: bool = True
    member: str = ""
    numbers: tuple[int, ...] = ()
    content: bytes | None = None
    truncation: str = ""

    @property
    def path(self) -> str:
        """For messages."""
        return f"{self.file.path}/{self.member}" if self.member else self.file.path


WorkUnit = tuple[FilePart, ...]


def unit_num_bytes(unit: WorkUnit) -> int:
    """The bytes of the files, as they are stored, that a unit accounts for; of all units, those of all files."""
    return sum(part.num_bytes for part in unit)


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
    text_format = FORMATS[file.format]
    is_packed = bool(file.compression or file.is_archive)
    is_small = file.num_bytes * (_USUAL_COMPRESSION if file.compression else 1) <= unit_bytes
    can_be_cut = file.is_archive or file.format == "sentences" or text_format.begins_document is not None
    if file.table and not is_packed:
        with _reading(file) as stream:
            yield from _table_parts(file, stream, unit_bytes, options)
    elif is_small or not can_be_cut:
        yield FilePart(file, file.num_bytes)
    elif is_packed:
        yield from _with_num_bytes(file, unit_bytes, options)
    else:
        with _reading(file) as stream:
            yield from _plain_parts(file, stream, unit_bytes, options)


def _boundaries(file: SourceFile, begin: bytes, options: ReaderOptions) -> Boundaries | None:
    """How to cut text that begins so; None: not at all."""
    if file.format == "sentences":
        return CountBoundaries(options.lines_per_document)
    if file.format == "wikiextractor" and is_json_layout(begin):
        return LineBoundaries(begins_json_line)
    begins_document = FORMATS[file.format].begins_document
    return LineBoundaries(begins_document) if begins_document else None


def _plain_parts(file: SourceFile, stream: BinaryIO, unit_bytes: int, options: ReaderOptions) -> Iterator[FilePart]:
    boundaries = _boundaries(file, stream.read(containers.PEEK_BYTES), options)
    stream.seek(0)
    if not isinstance(boundaries, LineBoundaries):
        assert boundaries is not None
        for piece in pieces(stream, boundaries, unit_bytes, max_held_bytes=0):
            yield FilePart(file, piece.end - piece.begin, piece.begin, piece.end, piece.is_end)
        return
    begin = 0
    while begin < file.num_bytes:
        position = begin + unit_bytes
        end = next_document(stream, position, boundaries) if position < file.num_bytes else file.num_bytes
        yield FilePart(file, end - begin, begin, end, end == file.num_bytes)
        begin = end


def _with_num_bytes(file: SourceFile, unit_bytes: int, options: ReaderOptions) -> Iterator[FilePart]:
    """The parts of a packed file. Each accounts for what was read of the file for it, the last one for all the rest."""
    truncation = Truncation()
    last = None
    counted = position = 0
    with _reading(file) as stream:
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
        can_be_cut = _boundaries(origin.file, b"", options) is not None
        max_held_bytes = unit_bytes * (1 if can_be_cut else _MAX_UNITS_HELD)
        for i, member in enumerate(containers.members(stream, path, truncation)):
            name = f"{origin.member}/{member.name}" if origin.member else member.name
            inner = replace(origin, member=name, numbers=(*origin.numbers, i), end=None, content=None)
            if member.num_bytes <= max_held_bytes:
                yield replace(inner, content=member.stream.read())
            else:
                yield from _packed_parts(inner, member.stream, unit_bytes, options, truncation)
        return
    boundaries = None if tables.table_of(begin) else _boundaries(origin.file, begin, options)
    if boundaries is None:
        yield replace(origin, end=None, content=None)
        return
    text = containers.whole_lines(stream, truncation)
    for piece in pieces(text, boundaries, unit_bytes, _MAX_UNITS_HELD * unit_bytes):
        yield replace(origin, begin=piece.begin, end=piece.end, is_end=piece.is_end, content=piece.content)


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


def read_unit(unit: WorkUnit, options: ReaderOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of a work unit.

    Raises: UserError: a file cannot be read, is damaged, is not UTF-8, or not in its format.
    """
    for part in unit:
        truncation = Truncation(part.truncation)
        num_truncations = len(report.truncations)
        yield from _documents(part, options, report, truncation)
        if truncation.message:
            # What the reader of a file that is cut off says of its end is no second fault.
            report.truncations[num_truncations:] = [truncation.message]


def _documents(
    part: FilePart, options: ReaderOptions, report: ReadReport, truncation: Truncation
) -> Iterator[Document]:
    if part.content is not None and part.end is not None:
        yield from _read(part, BytesIO(part.content), part.path, options, report)
    elif part.content is not None:
        yield from _read_leaves(part, BytesIO(part.content), options, report, truncation)
    else:
        with _reading(part.file) as stream:
            yield from _documents_of_file(part, stream, options, report, truncation)


def _documents_of_file(
    part: FilePart, stream: BinaryIO, options: ReaderOptions, report: ReadReport, truncation: Truncation
) -> Iterator[Document]:
    is_packed = bool(part.file.compression or part.file.is_archive)
    if part.end is None and not part.numbers:
        yield from _read_leaves(part, stream, options, report, truncation)
    elif part.file.table and not is_packed:
        source = Source(part.path, part.begin, part.is_end)
        yield from tables.read_rows(stream, source, part.end, _documents_of_texts(part.file), options, report)
    elif not is_packed:
        stream.seek(part.begin)
        assert part.end is not None
        yield from _read(part, containers.section(stream, part.end - part.begin), part.path, options, report)
    else:
        leaf = containers.entry(stream, part.file.path, part.numbers, truncation)
        if part.end is not None:
            _skip(leaf, part.begin)
            leaf = containers.section(leaf, part.end - part.begin)
        yield from _read(part, leaf, part.path, options, report)


def _skip(stream: BinaryIO, num_bytes: int) -> None:
    while num_bytes and (block := stream.read(min(num_bytes, 2**20))):
        num_bytes -= len(block)


def _read_leaves(
    part: FilePart, stream: BinaryIO, options: ReaderOptions, report: ReadReport, truncation: Truncation
) -> Iterator[Document]:
    for path, leaf in containers.leaves(stream, part.path, truncation):
        yield from _read(part, leaf, path, options, report)


def _read(
    part: FilePart, stream: BinaryIO, path: str, options: ReaderOptions, report: ReadReport
) -> Iterator[Document]:
    source = Source(path, part.begin, part.is_end)
    stream = containers.buffered(stream)
    if part.begin == 0 and tables.table_of(containers.begin_of(stream)):
        yield from tables.read_table(stream, source, _documents_of_texts(part.file), options, report)
    else:
        yield from FORMATS[part.file.format].documents(stream, source, options, report)


def _documents_of_texts(file: SourceFile) -> tables.DocumentsOf:
    return tables.documents_of_sentences if file.format == "sentences" else tables.documents_of_rows


@contextlib.contextmanager
def _reading(file: SourceFile) -> Iterator[BinaryIO]:
    try:
        with storage.open_binary(file.path) as stream:
            yield stream
    except OSError as error:
        raise UserError(f"cannot read {file.path}: {error.strerror or error}") from None
