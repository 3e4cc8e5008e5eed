"""Compressed files as streams of what they hold; told by content, not by name."""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from electra_tf.config.errors import UserError

# Of one step of a decompressor: of a file that unpacks to a thousand times its size, no more is held.
_MAX_OUTPUT_BYTES = 2**20
BUFFER_BYTES = 2**18


@dataclass(frozen=True)
class Compression:
    """A kind of compression.

    Attributes:
        magics: with one of which such a file begins.
        new: gives a decompressor of one stream, several of which may follow each other in a file.
        outputs: (decompressor, input) -> what the input unpacks to, in pieces.
        input_bytes: of one step.
        error: what the decompressor raises on damaged data.
    """

    magics: tuple[bytes, ...]
    new: Callable[[], Any]
    outputs: Callable[[Any, bytes], Iterator[bytes]]
    input_bytes: int
    error: Callable[[], type[Exception]]


def _gzip_outputs(decompressor: Any, content: bytes) -> Iterator[bytes]:
    while content:
        yield decompressor.decompress(content, _MAX_OUTPUT_BYTES)
        content = decompressor.unconsumed_tail


def _outputs(decompressor: Any, content: bytes) -> Iterator[bytes]:
    yield decompressor.decompress(content, _MAX_OUTPUT_BYTES)
    while not (decompressor.eof or decompressor.needs_input):
        yield decompressor.decompress(b"", _MAX_OUTPUT_BYTES)


def _zstd_outputs(decompressor: Any, content: bytes) -> Iterator[bytes]:
    yield decompressor.decompress(content)


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise UserError("Zstandard files are read with the package zstandard: pip install zstandard") from None
    return zstandard


COMPRESSIONS: dict[str, Compression] = {
    "gzip": Compression(
        (b"\x1f\x8b\x08",), lambda: zlib.decompressobj(wbits=31), _gzip_outputs, 2**16, lambda: zlib.error
    ),
    "bzip2": Compression((b"BZh",), bz2.BZ2Decompressor, _outputs, 2**16, lambda: OSError),
    "xz": Compression((b"\xfd7zXZ\0",), lzma.LZMADecompressor, _outputs, 2**16, lambda: lzma.LZMAError),
    # The decompressor knows no limit to its output, so its input is small. The largest window is that of --long=31.
    "zstd": Compression(
        (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + i]) + b"\x2a\x4d\x18" for i in range(16))),
        lambda: _zstandard().ZstdDecompressor(max_window_size=2**31).decompressobj(),
        _zstd_outputs,
        2**12,
        lambda: _zstandard().ZstdError,
    ),
}


def compression_of(begin: bytes) -> str:
    """The name of the compression of a file that begins so, or ""."""
    return next((name for name, kind in COMPRESSIONS.items() if begin.startswith(kind.magics)), "")


class Truncation:
    """Where a file was found to be cut off; of several layers that end too early, the outermost says where."""

    def __init__(self, message: str = ""):
        self.message = message

    def set(self, message: str) -> None:
        self.message = self.message or message


class _BlockStream(io.RawIOBase):
    """A stream of the bytes of blocks."""

    def __init__(self, blocks: Iterator[bytes]):
        self._blocks = blocks
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # As much as fits: a short read would look like the whole of what there is to `peek`.
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


def stream_of(blocks: Iterator[bytes]) -> io.BufferedReader:
    """A stream of the bytes of `blocks`."""
    return io.BufferedReader(_BlockStream(blocks), BUFFER_BYTES)


def read_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """The bytes of a stream, to its end."""
    while block := stream.read(BUFFER_BYTES):
        yield block


def decompressed(stream: BinaryIO, compression: str, path: str, truncation: Truncation) -> io.BufferedReader:
    """What a compressed stream holds, be it in one piece or several, zeros of padding between or after them.

    Raises, while it is read: UserError: the data is damaged.
    """
    return stream_of(_decompressed_blocks(stream, compression, path, truncation))


def _decompressed_blocks(stream: BinaryIO, name: str, path: str, truncation: Truncation) -> Iterator[bytes]:
    compression = COMPRESSIONS[name]
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
                for output in compression.outputs(decompressor, content):
                    if output:
                        yield output
            except compression.error() as error:
                raise UserError(
                    f"{path} is damaged: its {name} data is wrong before byte {num_read} ({error}); fetch it anew"
                ) from None
            content = decompressor.unused_data if decompressor.eof else b""
            if decompressor.eof:
                decompressor = None
    if decompressor is not None:
        truncation.set(f"{path} is cut off at byte {num_read}: its {name} data goes on there")
