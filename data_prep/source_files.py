"""Resolves `--input=FORMAT:GLOB` to files and detects their format, compression and kind."""

import difflib
import glob
import io
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from data_prep import archives, storage
from data_prep.archives import Truncation
from data_prep.readers import FORMATS
from data_prep.readers.documents import BYTE_ORDER_MARK
from data_prep.readers.lines import check_is_text
from data_prep.readers.tables import table_of
from electra_tf.config.errors import UserError

_logger = logging.getLogger(__name__)

_TABLE_FORMATS = ("parquet", "arrow")
_FORMATS_OF_TABLES = (*_TABLE_FORMATS, "sentences")  # formats that a table may be read as

_MEDIAWIKI = re.compile(rb"(?:<\?xml[^>]*>\s*)?<mediawiki[\s>]")
_JSON_BEGIN = re.compile(rb'\{\s*"[^"]*"\s*:')
_OPENWEBTEXT_MEMBER = re.compile(r"(?:^|/)urlsf_subset")

_NUM_THREADS = 16  # that open files: with remote files, most of the time is waiting


@dataclass(frozen=True)
class SourceFile:
    """A file to read.

    Attributes:
        input_index: of the --input that it belongs to.
        format: one of `FORMATS`.
        name: the path relative to the part of the glob before its first wildcard.
        modified: changes when the file does.
        compression: one of `archives.COMPRESSIONS`, or "".
        is_archive: the file is a tar archive, inside its compression.
        table: "parquet", "arrow", or "" if the file is no table.
    """

    input_index: int
    format: str
    name: str
    path: str
    num_bytes: int
    modified: str
    compression: str
    is_archive: bool
    table: str = ""

    @property
    def is_packed(self) -> bool:
        """Whether the file can only be read from its beginning."""
        return bool(self.compression or self.is_archive)


class _Content(NamedTuple):
    """The kind of a file. `detected` is a format, or "" if several are possible or the file is empty."""

    compression: str = ""
    is_archive: bool = False
    table: str = ""
    detected: str = ""
    is_empty: bool = False


class _Input(NamedTuple):
    """An --input: a glob and its format, or "" for a format to be detected."""

    text: str
    format: str
    pattern: str


def find_files(inputs: Iterable[str], undetected_format: str = "") -> list[SourceFile]:
    """The files of all inputs, ordered by input and relative name. Logs a line for each input.

    Args:
        inputs: each `FORMAT:GLOB`, or `GLOB` if the content shows the format; `**` matches any directories.
        undetected_format: the format of an input whose content does not show it; "": that is an error.
    Raises: UserError: unknown format, a glob that matches no file, a file matched twice, a name that is not UTF-8,
        content in another format, a format that cannot be detected, or nothing but empty files.
    """
    files = [file for index, text in enumerate(inputs) for file in _files_of_input(index, text, undetected_format)]
    seen: set[str] = set()
    for file in files:
        real_path = file.path if storage.is_remote(file.path) else os.path.realpath(file.path)
        if real_path in seen:
            raise UserError(
                f"{file.path} is read twice; its text could stand in both the training and the held-out part;"
                " make the globs of --input disjoint"
            )
        seen.add(real_path)
    if not any(file.num_bytes for file in files):
        which = "all input files are empty" if len(files) > 1 else f"{files[0].path} is empty"
        raise UserError(f"{which}; give files that hold text")
    return files


def _files_of_input(index: int, text: str, undetected_format: str) -> list[SourceFile]:
    given = _parsed(text)
    try:
        matches = storage.matches(given.pattern)
    except OSError as error:
        raise UserError(f"--input={text}: cannot list {given.pattern}: {error.strerror or error}") from None
    if not matches:
        raise _matches_nothing(given)
    root = _fixed_part(given.pattern)
    statuses = {_checked_name(_relative(status.path, root)): status for status in matches}
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        contents = list(pool.map(lambda status: _inspect(status.path, given.format), statuses.values()))
    paths = [status.path for status in statuses.values()]
    format_name = given.format or _detected_format(given, paths, contents, undetected_format)
    files = [
        SourceFile(index, format_name, name, status.path, status.num_bytes, status.modified, *content[:3])
        for (name, status), content in zip(statuses.items(), contents, strict=True)
    ]
    _logger.info("%s", _description(given, files))
    return sorted(files, key=lambda file: file.name)


def _parsed(text: str) -> _Input:
    format_name, colon, pattern = text.partition(":")
    if not text or (colon and not pattern):
        raise UserError(f"--input={text} is not FORMAT:GLOB; FORMAT is one of {', '.join(FORMATS)}")
    # The `gs` of gs://bucket/name is no format, and neither is the beginning of a path that contains a colon.
    if not colon or pattern.startswith("//") or "/" in format_name:
        return _Input(text, "", text)
    if format_name not in FORMATS:
        nearest = difflib.get_close_matches(format_name, FORMATS, n=1, cutoff=0.4)
        hint = f"did you mean {nearest[0]}?" if nearest else f"expected one of {', '.join(FORMATS)}"
        raise UserError(f"--input={text} has the unknown format {format_name!r}; {hint}")
    return _Input(text, format_name, pattern)


def _matches_nothing(given: _Input) -> UserError:
    try:
        exists = storage.exists(given.pattern) and not glob.has_magic(given.pattern)
    except OSError:
        exists = False
    if exists and not storage.is_remote(given.pattern) and not os.path.isdir(given.pattern):
        return UserError(f"--input={given.text}: {given.pattern} is no regular file; copy its content to a file")
    if exists:
        return UserError(f"--input={given.text}: {given.pattern} is a directory; name the files in it, as in DIR/*.txt")
    return UserError(
        f"--input={given.text}: no file matches {given.pattern}; check the path, and quote the glob for the shell"
    )


def _relative(path: str, root: str) -> str:
    if storage.is_remote(path):
        return path.removeprefix(root).lstrip("/")
    return os.path.relpath(path, root).replace(os.sep, "/")


def _checked_name(name: str) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(
            f"the name of the input file {name!r} is not UTF-8, which identifies it in the manifest; rename the file"
        ) from None
    return name


def _fixed_part(pattern: str) -> str:
    """The part of a glob before its first component with a wildcard; without any, before the last component."""
    directory = os.path.dirname(pattern)
    while glob.has_magic(directory):
        directory = os.path.dirname(directory)
    return directory or os.curdir


def _inspect(path: str, format_name: str) -> _Content:
    """Reads the beginning of a file.

    Raises: UserError: the file cannot be read, or cannot be in this format.
    """
    try:
        with storage.open_binary(path) as file:
            content, begin, leaf_path = _look_into(archives.buffered(file), path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    if not begin:
        return content
    if content.table:
        if format_name and format_name not in _FORMATS_OF_TABLES:
            raise UserError(
                f"{leaf_path} is a table of {content.table}; read it as {content.table}:GLOB, or as sentences:GLOB if a"
                " row is a sentence"
            )
    elif format_name in _TABLE_FORMATS:
        raise UserError(f"{leaf_path} begins with {begin[:12]!r}; expected a Parquet or Arrow file")
    else:
        check_is_text(begin, leaf_path)
    return content


def _look_into(stream: io.BufferedReader, path: str) -> tuple[_Content, bytes, str]:
    """Returns: (the kind of the file, the beginning of the first text file in it, the path of that)."""
    compression = archives.compression_of(archives.begin_of(stream))
    stream = archives.unpacked(stream, path, Truncation())
    begin = archives.begin_of(stream)
    if not archives.is_archive(begin):
        table = table_of(begin)
        content = _Content(compression, False, table, table or _text_format_of(begin), is_empty=not begin)
        return content, begin, path
    for leaf_path, leaf in archives.text_files(stream, path, Truncation()):
        begin = archives.begin_of(leaf)
        table = table_of(begin)
        is_openwebtext = _OPENWEBTEXT_MEMBER.search(leaf_path.removeprefix(path))
        detected = "openwebtext" if is_openwebtext else table or _text_format_of(begin)
        return _Content(compression, True, table, detected), begin, leaf_path
    return _Content(compression, True, is_empty=True), b"", path


def _text_format_of(begin: bytes) -> str:
    """The format of a text that begins with `begin` if it is certain, else ""."""
    begin = begin.removeprefix(BYTE_ORDER_MARK).lstrip()
    if _MEDIAWIKI.match(begin):
        return "wikipedia"
    if begin.startswith(b"<doc id="):
        return "wikiextractor"
    if begin.startswith(b"{"):
        line, line_end, _ = begin.partition(b"\n")
        return "jsonl" if (_is_json(line) if line_end else _JSON_BEGIN.match(line)) else ""
    return ""


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _detected_format(given: _Input, paths: list[str], contents: list[_Content], undetected_format: str) -> str:
    """The one format of all files of an input that are not empty."""
    examples = {
        content.detected or undetected_format: path
        for path, content in zip(paths, contents, strict=True)
        if not content.is_empty
    }
    if "" in examples:
        raise UserError(
            f"--input={given.text}: {examples['']} does not show its format; give it, as in --input=text:GLOB: text (a"
            " blank line ends a document), sentences (one a line, no documents), book (a file is one), openwebtext (the"
            " same, a paragraph a line)"
        )
    if len(examples) > 1:
        formats = ", ".join(f"{path} is {name}" for name, path in sorted(examples.items()))
        raise UserError(f"--input={given.text} matches files of several formats: {formats}; give an --input for each")
    return next(iter(examples), "text")


def _description(given: _Input, files: list[SourceFile]) -> str:
    """`wiki/*: 12 files, 1,204.1 MB, wikipedia, bzip2 (detected)`."""
    kinds = Counter(
        " ".join(filter(None, (file.table, "tar" * file.is_archive, file.compression))) or "uncompressed"
        for file in files
    )
    packing = " and ".join(f"{count} {kind}" if len(kinds) > 1 else kind for kind, count in kinds.most_common())
    num_bytes = sum(file.num_bytes for file in files) / 1e6
    how = "as given" if given.format else "detected"
    plural = "" if len(files) == 1 else "s"
    return (
        f"{given.pattern}: {len(files)} file{plural}, {num_bytes:,.1f} MB, {packing}, format {files[0].format} ({how})"
    )
