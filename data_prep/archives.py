"""Compressed files and tar archives, nested in any order, as streams of the text files in them.

Their kind is detected from their content, not from their name. A truncated file is read up to its end and reported; a
damaged one is a UserError. The loops are ours since `bz2.open` and its kin do not refuse garbage after a stream, and
`TarFile.extractfile` loses the last bytes before the end of a truncated archive.
"""

import bz2
import io
import lzma
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import zstandard

from electra_tf.config.errors import UserError

# Output of one step of a decompressor. It bounds the memory for a file that expands a thousandfold.
_MAX_OUTPUT_BYTES = 2**20
BUFFER_BYTES = 2**18
PEEK_BYTES = 2**13  # of a file, to detect its kind
_TAR_MAGIC, _TAR_MAGIC_OFFSET = b"ustar", 257


class Compression(NamedTuple):
    """A kind of compression.

    Attributes:
        magics: the first bytes of such a file.
        new: makes a decompressor of one stream; a file may be several streams in sequence.
        input_bytes: read in one step. zstandard cannot limit its output, so its input is small.
        error: what the decompressor raises for damaged data.
    """

    magics: tuple[bytes, ...]
    new: Callable[[], Any]
    input_bytes: int
    error: type[Exception]


def _zstd_decompressor() -> Any:
    # The largest window is that of `zstd --long=31`.
    return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()


_ZSTD_MAGICS = (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + i]) + b"\x2a\x4d\x18" for i in range(16)))

COMPRESSIONS = {
    "gzip": Compression((b"\x1f\x8b\x08",), lambda: zlib.decompressobj(wbits=31), 2**16, zlib.error),
    "bzip2": Compression((b"BZh",), bz2.BZ2Decompressor, 2**16, OSError),
    "xz": Compression((b"\xfd7zXZ\0",), lzma.LZMADecompressor, 2**16, lzma.LZMAError),
    "zstd": Compression(_ZSTD_MAGICS, _zstd_decompressor, 2**12, zstandard.ZstdError),
}


def compression_of(begin: bytes) -> str:
    """The name of the compression of a file that begins with `begin`, or ""."""
    return next((name for name, kind in COMPRESSIONS.items() if begin.startswith(kind.magics)), "")


def is_archive(begin: bytes) -> bool:
    """Whether a file that begins with `begin` is a tar archive."""
    return begin[_TAR_MAGIC_OFFSET:].startswith(_TAR_MAGIC)


@dataclass
class Truncation:
    """The message about a truncated file. Of several layers that end too early, the outermost is reported."""

    message: str = ""

    def set(self, message: str) -> None:
        self.message = self.message or message


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


def _stream_of(blocks: Iterator[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_BlockStream(blocks), BUFFER_BYTES)


def buffered(stream: BinaryIO) -> io.BufferedReader:
    """`stream` with a `peek` method."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, BUFFER_BYTES)  # type: ignore[type-var]


def begin_of(stream: io.BufferedReader) -> bytes:
    """The next bytes of a stream, without reading them."""
    return stream.peek(PEEK_BYTES)[:PEEK_BYTES]


def _blocks(stream: BinaryIO, num_bytes: int = sys.maxsize) -> Iterator[bytes]:
    """The next `num_bytes` of a stream in blocks."""
    while num_bytes and (block := stream.read(min(num_bytes, BUFFER_BYTES))):
        num_bytes -= len(block)
        yield block


def section(stream: BinaryIO, num_bytes: int, num_skipped: int = 0) -> io.BufferedReader:
    """A stream of `num_bytes` of a stream, after the next `num_skipped`, which are read past."""
    for _ in _blocks(stream, num_skipped):
        pass
    return _stream_of(_blocks(stream, num_bytes))


def whole_lines(stream: BinaryIO, truncation: Truncation) -> io.BufferedReader:
    """The stream; if it turns out to be truncated, without its last, incomplete line."""

    def lines() -> Iterator[bytes]:
        held = b""
        for block in _blocks(stream):
            yield held
            held = block
        if truncation.message:
            held = held[: max(held.rfind(b"\n"), held.rfind(b"\r")) + 1]
        yield held

    return _stream_of(lines())


def decompressed(stream: BinaryIO, name: str, path: str, truncation: Truncation) -> Iterator[bytes]:
    """The content of a compressed stream or of several in sequence, with or without zero padding after each.

    Raises: UserError: the data is damaged.
    """
    compression = COMPRESSIONS[name]
    limit = () if name == "zstd" else (_MAX_OUTPUT_BYTES,)
    decompressor = None
    num_read = 0
    while content := stream.read(compression.input_bytes):
        num_read += len(content)
        while content:
            if decompressor is None:
                content = content.lstrip(b"\0")
                if not content:
                    break
                decompressor = compression.new()
            try:
                yield from _outputs(decompressor, content, *limit)
            except compression.error as error:
                raise UserError(
                    f"{path} is damaged: its {name} data is wrong before byte {num_read} ({error}); fetch it again"
                ) from None
            content = decompressor.unused_data if decompressor.eof else b""
            if decompressor.eof:
                decompressor = None
    if decompressor is not None:
        truncation.set(f"{path} is truncated at byte {num_read}: its {name} data continues")


def _outputs(decompressor: Any, content: bytes, *limit: int) -> Iterator[bytes]:
    """What `content` decompresses to, in blocks of at most `limit` bytes."""
    while True:
        yield decompressor.decompress(content, *limit)
        # zlib gives input beyond the limit back; bz2 and lzma keep it.
        content = getattr(decompressor, "unconsumed_tail", b"")
        if decompressor.eof or (not content and getattr(decompressor, "needs_input", True)):
            return


class _HeaderError(Exception):
    """Arguments: the position in the archive, and whether there is a broken header, rather than none."""


class _MemberInfo(tarfile.TarInfo):
    """Reports a broken or missing header, which tarfile takes for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_MemberInfo":
        try:
            return super().fromtarfile(tarfile_)  # type: ignore[return-value]
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError, tarfile.InvalidHeaderError) as error:
            raise _HeaderError(tarfile_.offset, isinstance(error, tarfile.InvalidHeaderError)) from error


class Member(NamedTuple):
    """A file in an archive. Its stream must be read before the next member."""

    name: str
    num_bytes: int
    stream: io.BufferedReader


def members(stream: BinaryIO, path: str, truncation: Truncation) -> Iterator[Member]:
    """The files of a tar archive in order, without empty and hidden ones (metadata of file systems).

    Raises: UserError: the archive is damaged.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=BUFFER_BYTES, tarinfo=_MemberInfo) as archive:
            while info := archive.next():
                archive.members = []  # tarfile would keep all of what may be millions
                if info.isfile() and info.size and not info.name.rpartition("/")[2].startswith("."):
                    yield Member(info.name, info.size, _stream_of(_member_blocks(archive, info, path, truncation)))
    except _HeaderError as error:
        position, is_broken = error.args
        if is_broken:
            message = f"{path} is damaged: no tar header at byte {position} of the archive; fetch it again"
            raise UserError(message) from None
        truncation.set(f"{path} is truncated at byte {position}: its archive has no end mark")
    except tarfile.ReadError as error:
        truncation.set(f"{path} is truncated: the archive in it continues ({error})")


def _member_blocks(
    archive: tarfile.TarFile, info: tarfile.TarInfo, path: str, truncation: Truncation
) -> Iterator[bytes]:
    if info.issparse():
        raise UserError(
            f"{path}: its member {info.name} is stored as a sparse file; unpack the archive and read the files"
        )
    num_read = 0
    for block in _blocks(archive.fileobj, info.size):  # type: ignore[arg-type]
        num_read += len(block)
        yield block
    if num_read < info.size:
        truncation.set(f"{path} is truncated: the archive in it continues in its member {info.name}")


def unpacked(stream: BinaryIO, path: str, truncation: Truncation) -> io.BufferedReader:
    """`stream` with all layers of compression removed, if there are any."""
    stream = buffered(stream)
    while compression := compression_of(begin_of(stream)):
        stream = _stream_of(decompressed(stream, compression, path, truncation))
    return stream


def text_files(stream: BinaryIO, path: str, truncation: Truncation) -> Iterator[tuple[str, io.BufferedReader]]:
    """The (path, stream) of each file in a file: the file itself, decompressed, or the members of its archives.

    A stream must be read before the next one.
    """
    stream = unpacked(stream, path, truncation)
    if not is_archive(begin_of(stream)):
        yield path, whole_lines(stream, truncation)
        return
    for member in members(stream, path, truncation):
        yield from text_files(member.stream, f"{path}/{member.name}", truncation)


def text_file_at(stream: BinaryIO, path: str, indices: tuple[int, ...], truncation: Truncation) -> io.BufferedReader:
    """The file that is member `indices[0]` of the archive, member `indices[1]` of the archive in that, and so on."""
    stream = unpacked(stream, path, truncation)
    if not indices:
        return whole_lines(stream, truncation)

    def blocks() -> Iterator[bytes]:  # keeps the archive open while it runs
        for i, member in enumerate(members(stream, path, truncation)):
            if i == indices[0]:
                yield from _blocks(text_file_at(member.stream, f"{path}/{member.name}", indices[1:], truncation))
                return
        raise UserError(f"{path} has changed since the build began; leave the input alone while it runs")

    return _stream_of(blocks())
