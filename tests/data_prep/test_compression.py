import bz2
import gzip
import io
import lzma
import random
import tracemalloc

import pytest
import zstandard

from data_prep.compression import COMPRESSIONS, Truncation, compression_of, decompressed
from electra_tf.config.errors import UserError

COMPRESS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
EVERY_COMPRESSION = pytest.mark.parametrize("name", COMPRESS)

# Letters without a pattern, so that it stays long when compressed.
TEXT = "".join(random.Random(2).choices("abcdefgh \n", k=300_000)).encode()


def unpack(content: bytes, name: str) -> tuple[bytes, str]:
    """What it holds, and what is said of its end."""
    truncation = Truncation()
    return decompressed(io.BytesIO(content), name, "file", truncation).read(), truncation.message


def test_every_compression_is_tested():
    assert set(COMPRESS) == set(COMPRESSIONS)


@EVERY_COMPRESSION
def test_a_compression_is_told_by_content(name):
    assert compression_of(COMPRESS[name](TEXT)[:16]) == name


@pytest.mark.parametrize("content", [b"", b"text", b"\x1f\x8b", b"BZ"])
def test_other_content_is_not_compressed(content):
    assert compression_of(content) == ""


@EVERY_COMPRESSION
def test_a_file_of_one_piece_is_unpacked(name):
    assert unpack(COMPRESS[name](TEXT), name) == (TEXT, "")


@EVERY_COMPRESSION
def test_a_file_of_several_pieces_is_unpacked(name):
    pieces = [TEXT[:100], b"", TEXT[100:250_000], TEXT[250_000:]]
    assert unpack(b"".join(map(COMPRESS[name], pieces)), name) == (TEXT, "")


@EVERY_COMPRESSION
def test_zeros_after_a_piece_are_padding(name):
    content = COMPRESS[name](TEXT)
    assert unpack(content + bytes(512) + content + bytes(70_000), name) == (TEXT * 2, "")


@EVERY_COMPRESSION
def test_a_file_that_is_cut_off_gives_what_is_before_the_cut(name):
    content = COMPRESS[name](TEXT[:1000]) + COMPRESS[name](TEXT[1000:])
    found, message = unpack(content[:-7], name)
    assert TEXT.startswith(found)
    assert len(found) >= 1000
    assert message == f"file is cut off at byte {len(content) - 7}: its {name} data goes on there"


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_of_a_piece_that_is_cut_off_nearly_all_is_found(name):
    found, _ = unpack(COMPRESS[name](TEXT)[:-200], name)
    assert TEXT.startswith(found)
    # What is lost at most is a block of zstd, 128 KiB; the others lose less.
    assert len(found) >= len(TEXT) - 2**17


@EVERY_COMPRESSION
def test_a_file_that_ends_between_two_pieces_is_whole(name):
    assert unpack(COMPRESS[name](TEXT[:1000]), name) == (TEXT[:1000], "")


@EVERY_COMPRESSION
def test_damaged_data_is_a_user_error_that_names_file_and_byte(name):
    content = bytearray(COMPRESS[name](TEXT))
    content[len(content) // 2 : len(content) // 2 + 100] = bytes(range(100, 200))
    with pytest.raises(UserError, match=rf"file is damaged: its {name} data is wrong before byte \d+ \(.*\); fetch it"):
        unpack(bytes(content), name)


@EVERY_COMPRESSION
def test_text_after_compressed_data_is_a_user_error(name):
    with pytest.raises(UserError, match=f"file is damaged: its {name} data is wrong"):
        unpack(COMPRESS[name](TEXT) + b"This is no compressed data at all.", name)


def test_frames_of_zstd_that_hold_no_data_are_skipped():
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"
    content = skippable + COMPRESS["zstd"](TEXT[:500]) + skippable + COMPRESS["zstd"](TEXT[500:])
    assert compression_of(content) == "zstd"
    assert unpack(content, "zstd") == (TEXT, "")


def test_a_frame_of_zstd_with_a_window_of_2_gb_is_read():
    parameters = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=True, strategy=1)
    # A frame that states its size has a window no larger than that.
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert unpack(compressor.compress(b"text\n") + compressor.flush(), "zstd") == (b"text\n", "")


@EVERY_COMPRESSION
def test_memory_does_not_grow_with_what_a_file_unpacks_to(name):
    content = COMPRESS[name](bytes(2**26))
    tracemalloc.start()
    stream = decompressed(io.BytesIO(content), name, "file", Truncation())
    num_bytes = sum(len(block) for block in iter(lambda: stream.read(2**16), b""))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_bytes == 2**26
    # The inner state of a decompressor is not Python's memory; its output is.
    assert peak < (2**28 if name == "zstd" else 2**24)
