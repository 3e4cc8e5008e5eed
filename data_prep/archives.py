"""Compressed files and tar archives as streams of the text files in them.

Their kind is detected from their content, not from their name. Archives may lie in archives, as OpenWebText's do.
Truncated or damaged content is an error, see `reading`. The loops are ours because `bz2.open` and its kin take garbage
after a stream for the end of the file, and tarfile takes a broken header for the end of the archive.
"""

import bz2
import contextlib
import io
import lzma
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import zstandard

from electra_tf.config.errors import UserError, first_line

BUFFER_BYTES = 2**18
PEEK_BYTES = 2**13  # of a file, to detect its kind
# Compressed bytes of one step. A step's output is not limited: this bounds the memory for what expands a thousandfold.
_INPUT_BYTES = 2**12
_TAR_MAGIC, _TAR_MAGIC_OFFSET = b"ustar", 257


class Compression(NamedTuple):
    """A kind of compression.

    Attributes:
        magics: the first bytes of such a file.
        new: makes a decompressor of one stream; a file may be several streams in sequence.
    """

    magics: tuple[bytes, ...]
    new: Callable[[], Any]


def _zstd_decompressor() -> Any:
    # The largest window is that of `zstd --long=31`.
    return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()


_ZSTD_MAGICS = (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + i]) + b"\x2a\x4d\x18" for i in range(16)))

COMPRESSIONS = {
    "gzip": Compression((b"\x1f\x8b\x08",), lambda: zlib.decompressobj(wbits=31)),
    "bzip2": Compression((b"BZh",), bz2.BZ2Decompressor),
    "xz": Compression((b"\xfd7zXZ\0",), lzma.LZMADecompressor),
    "zstd": Compression(_ZSTD_MAGICS, _zstd_decompressor),
}
_ERRORS = (OSError, EOFError, UnicodeError, zlib.error, lzma.LZMAError, zstandard.ZstdError, tarfile.TarError)


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turns the error of a file system, or of a library that meets damaged content, into a UserError with the path."""
    try:
        yield
    except Exception as error:
        pyarrow = sys.modules.get("pyarrow")
        if not isinstance(error, (*_ERRORS, *([pyarrow.ArrowException] if pyarrow else []))):
            raise
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or first_line(error)}") from None


def compression_of(begin: bytes) -> str:
    """The name of the compression of a file that begins with `begin`, or ""."""
    return next((name for name, kind in COMPRESSIONS.items() if begin.startswith(kind.magics)), "")


def is_archive(begin: bytes) -> bool:
    """Whether a file that begins with `begin` is a tar archive."""
    return begin[_TAR_MAGIC_OFFSET:].startswith(_TAR_MAGIC)


class _BlockStream(io.RawIOBase):
    """A stream of the bytes of `blocks`."""

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
                block = next(self._blocks, None)
                if block is None:
                    break
                self._pending = memoryview(block)
            taken = self._pending[: len(buffer) - num_read]
            buffer[num_read : num_read + len(taken)] = taken
            self._pending = self._pending[len(taken) :]
            num_read += len(taken)
        return num_read


def buffered(stream: BinaryIO) -> io.BufferedReader:
    """`stream` with a `peek` method."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, BUFFER_BYTES)  # type: ignore[type-var]


def begin_of(stream: io.BufferedReader) -> bytes:
    """The next bytes of a stream, without reading them."""
    return stream.peek(PEEK_BYTES)[:PEEK_BYTES]


def section(stream: BinaryIO, num_bytes: int) -> io.BufferedReader:
    """A stream of the next `num_bytes` of a stream."""

    def blocks() -> Iterator[bytes]:
        left = num_bytes
        while left and (block := stream.read(min(left, BUFFER_BYTES))):
            left -= len(block)
            yield block

    return buffered(_BlockStream(blocks()))


def decompressed(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The content of a compressed stream or of several in sequence, with or without zero padding after each.

    Raises: EOFError: the data is truncated. Also the errors of the library, for damaged data.
    """
    decompressor = None
    while content := stream.read(_INPUT_BYTES):
        while content := content if decompressor else content.lstrip(b"\0"):
            decompressor = decompressor or COMPRESSIONS[name].new()
            yield decompressor.decompress(content)
            content = decompressor.unused_data if decompressor.eof else b""
            decompressor = None if decompressor.eof else decompressor
    if decompressor is not None:
        raise EOFError(f"its {name} data is truncated")


class _StrictTarInfo(tarfile.TarInfo):
    """Fails at a broken or missing header, which tarfile takes for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_StrictTarInfo":
        try:
            return super().fromtarfile(tarfile_)  # type: ignore[return-value]
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError, tarfile.InvalidHeaderError) as error:
            raise tarfile.ReadError(f"no tar header at byte {tarfile_.offset} of the archive ({error})") from error


class Member(NamedTuple):
    """A file in an archive. Its stream must be read before the next member."""

    name: str
    num_bytes: int
    stream: io.BufferedReader


def members(stream: BinaryIO) -> Iterator[Member]:
    """The files of a tar archive in order, without empty and hidden ones (metadata of file systems).

    Raises: tarfile.ReadError: the archive is truncated or damaged.
    """
    with tarfile.open(fileobj=stream, mode="r|", bufsize=BUFFER_BYTES, tarinfo=_StrictTarInfo) as archive:
        while info := archive.next():
            archive.members = []  # tarfile would keep all of what may be millions
            if info.isfile() and info.size and not info.name.rpartition("/")[2].startswith("."):
                yield Member(info.name, info.size, archive.extractfile(info))


def unpacked(stream: BinaryIO) -> io.BufferedReader:
    """`stream`, decompressed if it is compressed."""
    stream = buffered(stream)
    compression = compression_of(begin_of(stream))
    return buffered(_BlockStream(decompressed(stream, compression))) if compression else stream


def text_files(stream: BinaryIO, path: str) -> Iterator[tuple[str, io.BufferedReader]]:
    """The (path, stream) of each file in a file: the file itself, decompressed, or the members of its archives.

    A stream must be read before the next one.
    """
    stream = unpacked(stream)
    if not is_archive(begin_of(stream)):
        yield path, stream
        return
    for member in members(stream):
        yield from text_files(member.stream, f"{path}/{member.name}")
