"""Finds the files of `--input=FORMAT:GLOB` and detects their format, compression and kind."""

import glob
import logging
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from data_prep import archives
from data_prep.archives import FileFault, read_errors
from data_prep.documents import BYTE_ORDER_MARK
from data_prep.readers import FORMATS
from data_prep.readers.encoding import check_is_text, in_utf_8
from data_prep.readers.tables import table_of
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote, matches, open_binary, store_errors

_logger = logging.getLogger(__name__)

_TABLE_FORMATS = ("parquet", "arrow")
# Their readers find out that a file is of another format.
_CHECKED_FORMATS = ("wikipedia", "wikiextractor", "cirrus", *_TABLE_FORMATS)

_BEGINS = {  # of files, by format
    "wikipedia": re.compile(rb"(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<mediawiki[\s>]", re.DOTALL),
    "wikiextractor": re.compile(rb"<doc id="),
    "cirrus": re.compile(rb'\{\s*"index"\s*:\s*\{\s*"_'),
    "jsonl": re.compile(rb'\{\s*(?:"[^"]*"\s*:\s*(?:["{\[\d-]|true|false|null)|\})'),
}
_SEPARATED_NAME = re.compile(r"\.([ct]sv)(\.\w+)?$", re.IGNORECASE)
_OPENWEBTEXT_MEMBER = re.compile(r"(?:^|/)urlsf_subset")

_NUM_THREADS = 16  # open files: for remote files, most of the time is waiting


@dataclass(frozen=True)
class SourceFile:
    """A file to read.

    Attributes:
        input_index: index of its --input.
        format: one of `FORMATS`.
        name: path below the glob's fixed part: `d/*/a.txt` matches `d/x/a.txt` with the name `x/a.txt`.
        modified: see `files.FileStatus`.
        compression: one of `archives.COMPRESSIONS`, or "".
        is_archive: whether the decompressed file is a tar archive.
        table: "parquet", "arrow", or "" for other files.
        fault: why the file is left out, if its beginning shows it.
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
    fault: FileFault | None = None


class _Content(NamedTuple):
    """What the beginning of a file shows. `detected`: its format, "" if several are possible, None if it is no text."""

    compression: str = ""
    is_archive: bool = False
    table: str = ""
    fault: FileFault | None = None
    detected: str | None = None


def find_files(inputs: Sequence[str], undetected_format: str = "") -> list[SourceFile]:
    """Finds the files of all inputs, ordered by input and name. Logs a line for each input.

    Args:
        inputs: each `FORMAT:GLOB`, or `GLOB` to detect the format; `**` matches any directories.
        undetected_format: format of an input whose format cannot be detected; "": this is an error.
    Raises: UserError: a glob matches no file, a format differs from the content or cannot be detected, or a file is
        matched twice.
    """
    files = [file for index, text in enumerate(inputs) for file in _files_of_input(index, text, undetected_format)]
    by_real_path: dict[str, SourceFile] = {}
    for file in files:
        other = by_real_path.setdefault(file.path if is_remote(file.path) else os.path.realpath(file.path), file)
        if other is not file:
            raise UserError(f"{file.path} is read twice, also as {other.path}; let input match one of the two")
    return files


def _files_of_input(index: int, text: str, undetected_format: str) -> list[SourceFile]:
    given_format, colon, pattern = text.partition(":")
    if not (colon and given_format in FORMATS):  # a path may contain a colon, as gs://bucket/name does
        given_format, pattern = "", text
    with store_errors(f"input={text}", "cannot be listed"):
        found = matches(pattern)
    if not found:
        raise UserError(f"input={text}: no file matches {pattern}; give FORMAT:GLOB in quotes, see --help")
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        contents = list(pool.map(lambda status: _inspect(status.path, given_format), found))
    examples = {
        content.detected or ("" if given_format else undetected_format): status.path
        for status, content in zip(found, contents, strict=True)
        if content.detected is not None
    }
    shown = set(examples)
    is_plain = given_format not in ("", *_CHECKED_FORMATS)
    if is_plain and len(shown) == 1 and shown <= _BEGINS.keys() - {given_format}:
        raise UserError(f"input={text} matches files in the format {shown.pop()}; give that format")
    if not given_format and (len(shown) > 1 or "" in shown):
        listed = [f"{path} is {name}" if name else f"{path} cannot be detected" for name, path in examples.items()]
        raise UserError(
            f"input={text}: the format of {', '.join(sorted(listed))}; give each one, e.g. input=text:GLOB (text,"
            " sentences, documents, book or openwebtext: see --help)"
        )
    format_name = given_format or next(iter(examples), "text")
    root = os.path.dirname(pattern)
    while glob.has_magic(root):
        root = os.path.dirname(root)
    files = [
        SourceFile(index, format_name, _name_of(path, root), path, num_bytes, modified, *content[:4])
        for (path, num_bytes, modified), content in zip(found, contents, strict=True)
    ]
    kinds = sorted({" ".join(filter(None, (file.table, "tar" * file.is_archive, file.compression))) for file in files})
    num_bytes, origin = sum(file.num_bytes for file in files), "as given" if given_format else "detected"
    _logger.info(
        "%s: %d files, %.1f MB, format %s (%s) %s",
        pattern, len(files), num_bytes / 1e6, format_name, origin, ", ".join(kinds),
    )  # fmt: skip
    return sorted(files, key=lambda file: file.name)


def _name_of(path: str, root: str) -> str:
    """Returns the path relative to `root`, by which the manifest identifies a file; bytes that are no UTF-8 escaped."""
    root = root or os.curdir
    name = path.removeprefix(root).lstrip("/") if is_remote(path) else os.path.relpath(path, root).replace(os.sep, "/")
    return name.encode("utf-8", "backslashreplace").decode()


def _inspect(path: str, format_name: str) -> _Content:
    """Reads the beginning of a file, or of the first file in it if it is an archive.

    Raises: ReadError: the file cannot be read.
    """
    try:
        with read_errors(path), open_binary(path) as file:
            stream = archives.buffered(file)
            compression = archives.compression_of(archives.begin_of(stream))
            stream = archives.unpack(stream)
            is_archive = archives.is_archive(archives.begin_of(stream))
            leaves = archives.text_files(stream, path) if is_archive else iter([(path, stream)])
            leaf_path, leaf = next(leaves, (path, None))
            begin = archives.begin_of(in_utf_8(leaf)) if leaf else b""
        table = table_of(begin)
        if not is_archive and not (table and format_name in ("", *_TABLE_FORMATS, "sentences")):
            check_is_text(begin)
    except FileFault as fault:
        return _Content(fault=fault)
    text = begin.removeprefix(BYTE_ORDER_MARK).lstrip()
    detected = next((name for name, pattern in _BEGINS.items() if pattern.match(text)), table)
    if not detected and (name := _SEPARATED_NAME.search(leaf_path)):
        detected = name[1].lower()
    if _OPENWEBTEXT_MEMBER.search(leaf_path.removeprefix(path)):
        detected = "openwebtext"
    return _Content(compression, is_archive, table, detected=detected if begin else None)
