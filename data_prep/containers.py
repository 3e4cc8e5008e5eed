"""Archives and compressed files, within each other too, as streams of what they hold; told by content, not by name.

A file that ends too early is read as far as it goes, and said to be cut off. One that is damaged is a UserError.
"""

import io
import tarfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from data_prep.compression import BUFFER_BYTES, Truncation, compression_of, decompressed, read_blocks, stream_of
from electra_tf.config.errors import UserError

_TAR_MAGIC, _TAR_MAGIC_OFFSET = b"ustar", 257

# Enough of a file to tell what it is.
PEEK_BYTES = 2**13


def is_archive(begin: bytes) -> bool:
    """Whether a file that begins so is a tar archive."""
    return begin[_TAR_MAGIC_OFFSET:].startswith(_TAR_MAGIC)


def buffered(stream: BinaryIO) -> io.BufferedReader:
    """`stream` itself, if it can be looked into without reading it, or one that can."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, BUFFER_BYTES)  # type: ignore[type-var]


def section(stream: BinaryIO, num_bytes: int) -> io.BufferedReader:
    """The next `num_bytes` of a stream as a stream."""

    def blocks() -> Iterator[bytes]:
        left = num_bytes
        while left and (block := stream.read(min(left, BUFFER_BYTES))):
            left -= len(block)
            yield block

    return stream_of(blocks())


def whole_lines(stream: BinaryIO, truncation: Truncation) -> io.BufferedReader:
    """The stream; if it turns out to be cut off, without the line that it ends in."""

    def blocks() -> Iterator[bytes]:
        held = b""
        while block := stream.read(BUFFER_BYTES):
            if held:
                yield held
            held = block
        if truncation.message:
            held = held[: max(held.rfind(b"\n"), held.rfind(b"\r")) + 1]
        if held:
            yield held

    return stream_of(blocks())


class _MemberInfo(tarfile.TarInfo):
    """Makes the library report a broken or missing header, which it takes for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_MemberInfo":
        try:
            return super().fromtarfile(tarfile_)  # type: ignore[return-value]
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError) as error:
            raise _CutOffError(tarfile_.offset) from error
        except tarfile.InvalidHeaderError as error:
            raise _DamagedError(tarfile_.offset) from error


class _CutOffError(Exception):
    """The archive has no end mark."""


class _DamagedError(Exception):
    """A header is broken."""


class Member(NamedTuple):
    """A file in an archive; its stream is to be read before the next member."""

    name: str
    num_bytes: int
    stream: io.BufferedReader


def members(stream: BinaryIO, path: str, truncation: Truncation) -> Iterator[Member]:
    """The files of a tar archive, in order, save hidden ones: those hold no text but what a file system says of others.

    Raises: UserError: the archive is damaged.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=BUFFER_BYTES, tarinfo=_MemberInfo) as archive:
            while info := archive.next():
                archive.members = []  # the library would remember all the millions of them
                name = info.name.rpartition("/")[2]
                if info.isfile() and info.size and not name.startswith("."):
                    yield Member(info.name, info.size, stream_of(_member_blocks(archive, info, path, truncation)))
    except _CutOffError as error:
        truncation.set(f"{path} is cut off at byte {error}: its archive has no end mark")
    except _DamagedError as error:
        raise UserError(f"{path} is damaged: no tar header at byte {error} of the archive; fetch it anew") from None
    except tarfile.ReadError as error:
        truncation.set(f"{path} is cut off: the archive in it goes on ({error})")


def _member_blocks(
    archive: tarfile.TarFile, info: tarfile.TarInfo, path: str, truncation: Truncation
) -> Iterator[bytes]:
    if info.issparse():
        raise UserError(
            f"{path}: its member {info.name} is stored as a sparse file; unpack the archive and read the files"
        )
    # Not `extractfile`, which gives nothing of a read that meets the end of the archive.
    stream = archive.fileobj
    assert stream is not None
    left = info.size
    while left and (block := stream.read(min(left, BUFFER_BYTES))):
        left -= len(block)
        yield block
    if left:
        truncation.set(f"{path} is cut off: the archive in it goes on in its member {info.name}")


def begin_of(stream: io.BufferedReader) -> bytes:
    """The first bytes of a stream, or of what is left of it, which stay there."""
    return stream.peek(PEEK_BYTES)[:PEEK_BYTES]


def unpacked(stream: BinaryIO, path: str, truncation: Truncation) -> io.BufferedReader:
    """`stream` without its layers of compression, of which none may be."""
    stream = buffered(stream)
    while compression := compression_of(begin_of(stream)):
        stream = decompressed(stream, compression, path, truncation)
    return stream


def leaves(stream: BinaryIO, path: str, truncation: Truncation) -> Iterator[tuple[str, io.BufferedReader]]:
    """The (path, stream) of all files in a file: itself, what its compression holds, or the members of its archives.

    A stream is to be read before the next one.
    """
    stream = unpacked(stream, path, truncation)
    if not is_archive(begin_of(stream)):
        yield path, whole_lines(stream, truncation)
        return
    for member in members(stream, path, truncation):
        yield from leaves(member.stream, f"{path}/{member.name}", truncation)


def entry(stream: BinaryIO, path: str, numbers: tuple[int, ...], truncation: Truncation) -> io.BufferedReader:
    """The leaf that lies in member `numbers[0]` of the archive, in member `numbers[1]` of the archive in that, ..."""
    stream = unpacked(stream, path, truncation)
    if not numbers:
        return whole_lines(stream, truncation)

    def blocks() -> Iterator[bytes]:  # as long as it runs, the archive stays open
        for i, member in enumerate(members(stream, path, truncation)):
            if i == numbers[0]:
                inner = entry(member.stream, f"{path}/{member.name}", numbers[1:], truncation)
                yield from read_blocks(inner)
                return
        raise UserError(f"{path} has changed since the build began; leave the input alone while it runs")

    return stream_of(blocks())
