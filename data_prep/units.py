"""Work units, which are parts of files, and the documents in them."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

from data_prep import containers, storage
from data_prep.compression import Truncation
from data_prep.readers import FORMATS, Document, tables
from data_prep.readers.documents import ReaderOptions, ReadReport, Source
from data_prep.source_files import SourceFile
from electra_tf.config.errors import UserError


@dataclass(frozen=True)
class FilePart:
    """A part of a file.

    Attributes:
        num_bytes: of the file, as it is stored, that this part accounts for.
        begin, end: boundaries between documents, in bytes of the unpacked file or archive member, or in rows of a
            table. An `end` of None: the whole of it, still packed, which may be an archive too.
        is_end: it goes up to the end of that file or member.
        is_cut: a document that is too long goes on after it.
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
    is_cut: bool = False
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


def read_unit(unit: WorkUnit, options: ReaderOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of a work unit.

    Raises: UserError: a file cannot be read, is damaged, is not UTF-8, or not in its format.
    """
    for part in unit:
        truncation = Truncation(part.truncation)
        num_truncations = len(report.truncations)
        yield from _documents(part, options, report, truncation)
        report.num_documents_cut += part.is_cut
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
        with reading(part.file) as stream:
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
    if part.file.compression and not part.file.is_archive:
        path = f"{path} (unpacked)"  # where the offsets are that a reader names
    source = Source(path, part.begin, part.is_end)
    stream = containers.buffered(stream)
    if part.begin == 0 and tables.table_of(containers.begin_of(stream)):
        yield from tables.read_table(stream, source, _documents_of_texts(part.file), options, report)
    else:
        yield from FORMATS[part.file.format].documents(stream, source, options, report)


def _documents_of_texts(file: SourceFile) -> tables.DocumentsOf:
    return tables.documents_of_sentences if file.format == "sentences" else tables.documents_of_rows


@contextlib.contextmanager
def reading(file: SourceFile) -> Iterator[BinaryIO]:
    """Opens a file. Raises: UserError: it cannot be read, then or later."""
    try:
        with storage.open_binary(file.path) as stream:
            yield stream
    except OSError as error:
        raise UserError(f"cannot read {file.path}: {error.strerror or error}") from None
