"""Reads the text files in compressed files and tar archives as streams.

The kind of a file is detected from its content, not from its name. Archives may contain archives, as OpenWebText's do.
Truncated or damaged content is an error (see `read_errors`). This is why `bz2.open`, `lzma.open` and tarfile's own loop
are not used: they end silently at padding or garbage after a stream, or at a broken header, and lose the rest.
"""

import bz2
import contextlib
import csv
import errno
import io
import lzma
import re
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import zstandard

from electra_tf.config.errors import UserError, first_line

BUFFER_BYTES = 2**18
PEEK_BYTES = 2**13  # of a file, to detect its kind
# Output of one step of a decompressor: it bounds the memory for a file that expands a thousandfold.
_MAX_OUTPUT_BYTES = 2**20
# Input of one step: small, as zlib and zstandard do not limit the output.
_INPUT_BYTES = 2**12
_TAR_MAGIC, _TAR_MAGIC_OFFSET = b"ustar", 257
# Of members that hold the name of the next one, or its attributes.
_TAR_NAME_TYPES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"X")
_TAR_HEADER_ERRORS = (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError, tarfile.InvalidHeaderError)
_MAX_TAR_HEADERS = 16  # of one member: its own, and those with its name and attributes, of each type one

# By the name of a compression: how its files begin, and what makes a decompressor of a stream.
COMPRESSIONS: dict[str, tuple[re.Pattern[bytes], Callable[[], Any]]] = {
    "gzip": (re.compile(rb"\x1f\x8b\x08"), lambda: zlib.decompressobj(zlib.MAX_WBITS | 16)),
    "bzip2": (re.compile(rb"BZh"), bz2.BZ2Decompressor),
    "xz": (re.compile(rb"\xfd7zXZ\0"), lzma.LZMADecompressor),
    "zstd": (
        re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
        lambda: zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj(),  # of `zstd --long=31`, the largest
    ),
}
# The first 48 bits of a block of bzip2, and of the end of a stream. Both may begin at any bit of a byte.
_BLOCK_MAGIC, _END_MAGIC = 0x314159265359, 0x177245385090
# By bytes 2 to 6 of the seven that hold these bits: the 48 bits, and the bit of the first byte at which they begin.
_MAGIC_BYTES = {
    (magic << 8 >> shift).to_bytes(7, "big")[1:6]: (magic, shift)
    for magic in (_BLOCK_MAGIC, _END_MAGIC)
    for shift in range(8)
}
_MAGIC = re.compile(b"|".join(map(re.escape, _MAGIC_BYTES)))
_MAX_BLOCK_BYTES = 2**20  # of 900,000 bytes, compressed

_ERRORS = (
    *(OSError, EOFError, UnicodeError, csv.Error),
    *(zlib.error, lzma.LZMAError, zstandard.ZstdError, tarfile.TarError),
)


class ReadError(UserError):
    """The input cannot be read as it is. When it can, the same command continues the work on it."""


class FileFault(Exception):
    """`FileFault(reason, description)`: the fault of a file, or of a file in an archive, which is left out as a whole.

    The reason is a key of `ReadCounts.num_documents_skipped`; the path and the description are a sentence.
    """


@contextlib.contextmanager
def read_errors(path: str) -> Iterator[None]:
    """Turns errors of file systems into `ReadError`, and those of damaged content into `FileFault`."""
    try:
        yield
    except Exception as error:
        pyarrow = sys.modules.get("pyarrow")
        if not isinstance(error, (*_ERRORS, *([pyarrow.ArrowException] if pyarrow else []))):
            raise
        if of_file_system := getattr(error, "strerror", None):
            if error.errno == errno.ENOSPC:  # readers keep copies of packed files
                of_file_system += f" in {tempfile.gettempdir()}, the directory for temporary files (TMPDIR)"
            raise ReadError(f"cannot read {path}: {of_file_system}") from None
        raise FileFault("damaged files", f"is damaged: {first_line(error)}") from None


def compression_of(begin: bytes) -> str:
    """Returns the name of the compression of a file from its first bytes, or "" if it is not compressed."""
    return next((name for name, (magic, _) in COMPRESSIONS.items() if magic.match(begin)), "")


def is_archive(begin: bytes) -> bool:
    """Whether a file is a tar archive, from its first bytes."""
    return begin[_TAR_MAGIC_OFFSET:].startswith(_TAR_MAGIC)


class _BlockStream(io.RawIOBase):
    error: Exception | None = None

    def __init__(self, blocks: Iterator[bytes]):
        self._blocks = blocks
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # Fills the buffer: after a short read, `peek` would show less than there is.
        num_read = 0
        while num_read < len(buffer):
            if not self._pending:
                try:
                    block = None if self.error else next(self._blocks, None)
                except Exception as error:  # what was read before it is not lost, as it would be in `read`
                    self.error, block = error, None
                if block is None:
                    break
                self._pending = memoryview(block)
            content = self._pending[: len(buffer) - num_read]
            buffer[num_read : num_read + len(content)] = content
            self._pending = self._pending[len(content) :]
            num_read += len(content)
        return num_read


def buffered(stream: BinaryIO) -> io.BufferedReader:
    """Returns `stream` with a buffer, and so with a `peek` method."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, BUFFER_BYTES)


def joined(blocks: Iterator[bytes]) -> io.BufferedReader:
    """Joins blocks of bytes to one stream. It ends at an error of `blocks`; see `error_of`."""
    return buffered(_BlockStream(blocks))


def error_of(stream: Any) -> Exception | None:
    """Returns the error at which a stream of `joined` has ended, if it has. Who reads to the end raises it there."""
    return getattr(getattr(stream, "raw", None), "error", None)


def raise_error_of(stream: Any) -> None:
    """Raises the error at which a stream of `joined` has ended."""
    if error := error_of(stream):
        raise error


def begin_of(stream: io.BufferedReader) -> bytes:
    """Returns the next bytes of a stream without consuming them."""
    begin = stream.peek(PEEK_BYTES)[:PEEK_BYTES]
    if not begin:
        raise_error_of(stream)
    return begin


def section(stream: BinaryIO, num_bytes: int) -> io.BufferedReader:
    """Returns the next `num_bytes` of a stream as a stream."""

    def blocks() -> Iterator[bytes]:
        left = num_bytes
        while left and (block := stream.read(min(left, BUFFER_BYTES))):
            left -= len(block)
            yield block

    return joined(blocks())


def unpack(stream: BinaryIO) -> io.BufferedReader:
    """Returns `stream`, decompressed if it is compressed; several compressed streams in sequence become one.

    The stream ends where the data is truncated (EOFError) or damaged (errors of the compression library): see `joined`.
    """
    stream = buffered(stream)
    compression = compression_of(begin_of(stream))
    if not compression:
        return stream
    return joined(_decompress(stream, COMPRESSIONS[compression][1]))


def _decompress(stream: BinaryIO, new_decompressor: Callable[[], Any]) -> Iterator[bytes]:
    """Decompresses streams in sequence, each of which zero padding may follow, in blocks."""
    decompressor = None
    while content := stream.read(_INPUT_BYTES):
        while content := content if decompressor else content.lstrip(b"\0"):
            decompressor = decompressor or new_decompressor()
            can_limit = hasattr(decompressor, "needs_input")
            yield decompressor.decompress(content, *([_MAX_OUTPUT_BYTES] if can_limit else []))
            while can_limit and not decompressor.needs_input and not decompressor.eof:
                yield decompressor.decompress(b"", _MAX_OUTPUT_BYTES)
            content = decompressor.unused_data if decompressor.eof else b""
            decompressor = None if decompressor.eof else decompressor
    if decompressor is not None:
        raise EOFError("its compressed data is truncated")


def bzip2_blocks(stream: BinaryIO, begin: int, end: int) -> Iterator[bytes | None]:
    """Decompresses the blocks that begin at byte `begin` of a bzip2 file or later, with None before the first of them
    that begins at byte `end` or later. The file may have one stream or several.

    Raises: EOFError, OSError: the file is truncated or damaged. The checksum of each block is checked, that of a whole
        stream is not.
    """
    is_before_end = True
    for position, text in _bzip2_parts(stream, begin):
        if is_before_end and position >= 8 * end:
            is_before_end = False
            yield None
        for i in range(0, len(text), _MAX_OUTPUT_BYTES):
            yield text[i : i + _MAX_OUTPUT_BYTES]


def _bzip2_parts(stream: BinaryIO, begin: int) -> Iterator[tuple[int, bytes]]:
    """Yields the first bit and the text of each block, and of each end of a stream, which has no text."""
    stream.seek(begin)
    content, part = b"", None  # the bytes that are not decompressed yet, and the bit at which a part begins in them
    num_passed = begin
    while more := stream.read(BUFFER_BYTES):
        num_searched = max(1, len(content) - 5)
        content += more
        for position in _magic_positions(content, num_searched):
            if part is None:
                part = position
            elif (text := _text_of_part(content, part, position)) is not None:
                yield 8 * num_passed + part, text
                part = position
            # Else `position` lies inside a block, by chance, once in 2**48 bits.
        num_used = max(0, len(content) - 6) if part is None else part // 8
        content, num_passed = content[num_used:], num_passed + num_used
        part = part and part - 8 * num_used
        if part is not None and _bits(content, part, part + 48) == _END_MAGIC:
            # Padding of any length may follow. As it is dropped, the end has a later position, but no text.
            num_used = -(-(part + 80) // 8)
            if not content[num_used:].strip(b"\0"):
                content, num_passed = content[:num_used], num_passed + len(content[num_used:])
        if part is not None and len(content) > _MAX_BLOCK_BYTES:
            raise OSError("Invalid data stream")
    if part is None and begin > 0:
        return
    is_end = part is not None and _bits(content, part, part + 48) == _END_MAGIC
    if not is_end or len(content) < (end := -(-(part + 80) // 8)) or content[end:].strip(b"\0"):
        raise EOFError("its compressed data is truncated or invalid")


def _magic_positions(content: bytes, begin: int) -> Iterator[int]:
    """Yields the bits of `content` at which a block or the end of a stream begins, after those of an earlier search."""
    for match in _MAGIC.finditer(content, begin):
        magic, shift = _MAGIC_BYTES[match.group()]
        position = 8 * (match.start() - 1) + shift
        if position + 56 <= 8 * len(content) + shift and _bits(content, position, position + 48) == magic:
            yield position


def _text_of_part(content: bytes, begin: int, end: int) -> bytes | None:
    """Decompresses a block, from its first bit to the first one of the next part; None if it does not end there."""
    if _bits(content, begin, begin + 48) == _END_MAGIC:
        between = content[-(-(begin + 80) // 8) : end // 8]
        return b"" if re.fullmatch(rb"\0*BZh[1-9]", between) and end % 8 == 0 else None
    # A stream of this block alone, whose checksum is that of the block.
    checksum, num_bits = _bits(content, begin + 48, begin + 80), end - begin + 80
    bits = _bits(content, begin, end) << 80 | _END_MAGIC << 32 | checksum
    try:
        return bz2.decompress(b"BZh9" + (bits << -num_bits % 8).to_bytes(-(-num_bits // 8), "big"))
    except (OSError, ValueError):
        return None


def _bits(content: bytes, begin: int, end: int) -> int:
    number = int.from_bytes(content[begin // 8 : -(-end // 8)], "big") >> -end % 8
    return number & ((1 << (end - begin)) - 1)


class _StrictTarInfo(tarfile.TarInfo):
    """Raises an error at a broken or missing header, where tarfile itself would end silently, and at a huge name.

    And at many headers in a row: tarfile reads each in a call within the last one, and keeps the names of all.
    """

    @classmethod
    def frombuf(cls, buf: bytes, encoding: str, errors: str) -> "_StrictTarInfo":
        info = super().frombuf(buf, encoding, errors)
        if info.type in _TAR_NAME_TYPES and info.size > _MAX_OUTPUT_BYTES:  # tarfile reads it in one piece
            raise tarfile.InvalidHeaderError(f"a name or its attributes have {info.size} bytes")
        return info  # type: ignore[return-value]

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_StrictTarInfo":
        num_headers = getattr(tarfile_, "num_headers", 0)
        if num_headers == _MAX_TAR_HEADERS:
            raise tarfile.ReadError(f"more than {num_headers} tar headers in a row")
        tarfile_.num_headers = num_headers + 1
        try:
            return super().fromtarfile(tarfile_)  # type: ignore[return-value]
        except (*_TAR_HEADER_ERRORS, ValueError) as error:  # the last: a false number in an attribute
            raise tarfile.ReadError(f"no tar header at byte {tarfile_.offset} of the archive ({error})") from error
        finally:
            tarfile_.num_headers = num_headers


def members(stream: BinaryIO) -> Iterator[tuple[str, io.BufferedReader]]:
    """Yields name and stream of the files of a tar archive, except empty and hidden ones (metadata of file systems).

    A stream must be read before the next one is requested.

    Raises: tarfile.ReadError: the archive is truncated or damaged.
    """
    with tarfile.open(fileobj=stream, mode="r|", bufsize=BUFFER_BYTES, tarinfo=_StrictTarInfo) as archive:
        while info := archive.next():
            archive.members, archive.pax_headers = [], {}  # tarfile would keep all of them: millions, perhaps
            if info.sparse is not None:
                raise tarfile.ReadError(f"{info.name} is a sparse file, of which the archive lacks parts")
            if info.isfile() and info.size and not info.name.rpartition("/")[2].startswith("."):
                yield info.name, archive.extractfile(info)
            while (left := archive.offset - 1 - archive.fileobj.tell()) > 0:  # tarfile would pass the end of the file
                if not archive.fileobj.read(min(left, BUFFER_BYTES)):
                    raise tarfile.ReadError("unexpected end of data")


def text_files(stream: BinaryIO, path: str) -> Iterator[tuple[str, io.BufferedReader]]:
    """Yields path and stream of a file, decompressed, or of each file in it if it is an archive.

    A stream must be read before the next one is requested.
    """
    stream = unpack(stream)
    if not is_archive(begin_of(stream)):
        yield path, stream
        return
    for name, member in members(stream):
        yield from text_files(member, f"{path}/{name}")
