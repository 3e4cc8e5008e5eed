"""`--input=FORMAT:GLOB` to files, and files to work units of bounded size."""

import contextlib
import difflib
import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from data_prep.readers import FORMATS, Document
from electra_tf.config.errors import UserError


@dataclass(frozen=True)
class SourceFile:
    """A file to read. `name`, relative to the fixed part of the glob, is what identifies it, wherever it lies."""

    input_index: int
    format: str
    name: str
    path: str
    num_bytes: int


@dataclass(frozen=True)
class FilePart:
    """Bytes `begin` to `end` of a file, which are boundaries between documents."""

    file: SourceFile
    begin: int
    end: int


WorkUnit = tuple[FilePart, ...]


def find_files(inputs: Iterable[str]) -> list[SourceFile]:
    """The files of all inputs, in an order that depends on their relative names alone.

    Args:
        inputs: each `FORMAT:GLOB`; `**` in a glob matches any directories.
    Raises: UserError: unknown format, a glob that matches no file, a file matched twice, a name that is not UTF-8, or
        nothing but empty files.
    """
    files = [file for index, text in enumerate(inputs) for file in _files_of_input(index, text)]
    seen: dict[str, SourceFile] = {}
    for file in files:
        real_path = os.path.realpath(file.path)
        if real_path in seen:
            raise UserError(
                f"{file.path} is read twice; its text could stand in both the training and the held-out part;"
                " make the globs of --input disjoint"
            )
        seen[real_path] = file
    if not any(file.num_bytes for file in files):
        raise UserError(f"all {len(files)} input files are empty; give files that hold text")
    return files


def _files_of_input(index: int, text: str) -> list[SourceFile]:
    format_name, colon, pattern = text.partition(":")
    if not colon or not pattern:
        raise UserError(f"--input={text} is not FORMAT:GLOB; FORMAT is one of {', '.join(FORMATS)}")
    if format_name not in FORMATS:
        nearest = difflib.get_close_matches(format_name, FORMATS, n=1, cutoff=0.4)
        hint = f"did you mean {nearest[0]}?" if nearest else f"expected one of {', '.join(FORMATS)}"
        raise UserError(f"--input={text} has the unknown format {format_name!r}; {hint}")
    paths = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
    if not paths:
        raise UserError(f"--input={text}: no file matches {pattern}; check the path, and quote the glob for the shell")
    root = _fixed_part(pattern)
    names = {_checked_name(os.path.relpath(path, root).replace(os.sep, "/")): path for path in paths}
    return [SourceFile(index, format_name, name, path, os.path.getsize(path)) for name, path in sorted(names.items())]


def _checked_name(name: str) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(
            f"the name of the input file {name!r} is not UTF-8, which identifies it in the manifest; rename the file"
        ) from None
    return name


def _fixed_part(pattern: str) -> str:
    """The directory that a glob starts from: all before its first component with a wildcard or, if none, the last."""
    directory = os.path.dirname(pattern)
    while glob.has_magic(directory):
        directory = os.path.dirname(directory)
    return directory or os.curdir


def plan_units(files: Iterable[SourceFile], unit_bytes: int) -> list[WorkUnit]:
    """Cuts big files and gathers small ones, in order, into units of about `unit_bytes`.

    Raises: UserError: a file cannot be read.
    """
    units: list[WorkUnit] = []
    pending: list[FilePart] = []
    pending_bytes = 0
    for part in (part for file in files for part in _parts(file, unit_bytes)):
        if pending and pending_bytes + part.end - part.begin > unit_bytes:
            units.append(tuple(pending))
            pending, pending_bytes = [], 0
        pending.append(part)
        pending_bytes += part.end - part.begin
    if pending:
        units.append(tuple(pending))
    return units


def _parts(file: SourceFile, unit_bytes: int) -> Iterator[FilePart]:
    next_document = FORMATS[file.format].next_document
    if next_document is None or file.num_bytes <= unit_bytes:
        yield FilePart(file, 0, file.num_bytes)
        return
    with _reading(file) as stream:
        begin = 0
        while begin < file.num_bytes:
            position = begin + unit_bytes
            end = next_document(stream, position) if position < file.num_bytes else file.num_bytes
            yield FilePart(file, begin, end)
            begin = end


def read_part(part: FilePart) -> Iterator[Document]:
    """The documents of a part of a file.

    Raises: UserError: the file cannot be read, is not UTF-8, or not in its format.
    """
    with _reading(part.file) as stream:
        stream.seek(part.begin)
        content = stream.read(part.end - part.begin)
    return FORMATS[part.file.format].documents(content, part.file.path, part.begin)


@contextlib.contextmanager
def _reading(file: SourceFile) -> Iterator[BinaryIO]:
    try:
        with open(file.path, "rb") as stream:
            yield stream
    except OSError as error:
        raise UserError(f"cannot read {file.path}: {error.strerror}") from None
