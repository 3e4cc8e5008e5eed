"""Compressed files and archives: every kind, in each other, truncated, damaged."""

import gzip
import io
import lzma
import random
import tracemalloc

import pytest
import zstandard

from data_prep.archives import (
    COMPRESSIONS,
    Truncation,
    begin_of,
    buffered,
    compression_of,
    decompressed,
    is_archive,
    section,
    text_file_at,
    text_files,
    whole_lines,
)
from electra_tf.config.errors import UserError

EVERY_COMPRESSION = pytest.mark.parametrize("name", COMPRESSIONS)

# Random letters, so that the text stays long when compressed.
TEXT = "".join(random.Random(2).choices("abcdefgh \n", k=300_000)).encode()


def unpack(content: bytes, name: str) -> tuple[bytes, str]:
    """The content, and the message about its end."""
    truncation = Truncation()
    return b"".join(decompressed(io.BytesIO(content), name, "file", truncation)), truncation.message


@EVERY_COMPRESSION
def test_streams_in_sequence_and_zero_padding_are_read(packers, name):
    parts = [TEXT[:100], b"", TEXT[100:250_000], TEXT[250_000:]]
    content = bytes(512).join(map(packers[name], parts)) + bytes(70_000)
    assert compression_of(content[:16]) == name
    assert unpack(content, name) == (TEXT, "")


@pytest.mark.parametrize("content", [b"", b"text", b"\x1f\x8b", b"BZ"])
def test_other_content_is_not_compressed(content):
    assert compression_of(content) == ""


@EVERY_COMPRESSION
def test_a_truncated_file_gives_the_text_before_its_end(packers, name):
    content = packers[name](TEXT[:1000]) + packers[name](TEXT[1000:])[:-200]
    text, message = unpack(content, name)
    assert TEXT.startswith(text)
    # At most one block is lost: 128 KiB of zstd, 900 kB of bzip2.
    assert len(text) >= (1000 if name == "bzip2" else len(TEXT) - 2**17)
    assert message == f"file is truncated at byte {len(content)}: its {name} data continues"


@EVERY_COMPRESSION
def test_damaged_data_is_a_user_error_that_names_file_and_byte(packers, name):
    damaged = bytearray(packers[name](TEXT))
    damaged[len(damaged) // 2 : len(damaged) // 2 + 100] = bytes(range(100, 200))
    for content in (bytes(damaged), packers[name](TEXT) + b"This is no compressed data at all."):
        with pytest.raises(
            UserError, match=rf"file is damaged: its {name} data is wrong before byte \d+ \(.*\); fetch"
        ):
            unpack(content, name)


def test_skippable_frames_of_zstd_are_skipped(packers):
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"
    content = skippable + packers["zstd"](TEXT[:500]) + skippable + packers["zstd"](TEXT[500:])
    assert compression_of(content) == "zstd"
    assert unpack(content, "zstd") == (TEXT, "")


def test_a_frame_of_zstd_with_a_window_of_2_gb_is_read():
    parameters = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=True, strategy=1)
    # A frame that states its size has a window no larger than that.
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert unpack(compressor.compress(b"text\n") + compressor.flush(), "zstd") == (b"text\n", "")


@EVERY_COMPRESSION
def test_a_file_that_expands_a_thousandfold_is_read_in_bounded_memory(packers, name):
    content = packers[name](bytes(30_000_000))
    tracemalloc.start()
    num_bytes = sum(map(len, decompressed(io.BytesIO(content), name, "file", Truncation())))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_bytes == 30_000_000
    assert peak < (40e6 if name == "zstd" else 16e6)  # the output of one read of zstd cannot be limited


def texts_in(content: bytes) -> tuple[dict[str, bytes], str]:
    truncation = Truncation()
    texts = {path: stream.read() for path, stream in text_files(io.BytesIO(content), "file", truncation)}
    return texts, truncation.message


def test_the_files_of_nested_archives_are_found_in_any_compression(tar):
    assert texts_in(b"text") == ({"file": b"text"}, "")
    inner = lzma.compress(tar({"1.txt": b"one", "2.txt": b"two"}))
    outer = gzip.compress(tar({"a.tar.xz": inner, "b.txt.gz": gzip.compress(b"three"), "c.txt": b"four"}))
    assert texts_in(gzip.compress(outer)) == (
        {
            "file/a.tar.xz/1.txt": b"one",
            "file/a.tar.xz/2.txt": b"two",
            "file/b.txt.gz": b"three",
            "file/c.txt": b"four",
        },
        "",
    )
    assert text_file_at(io.BytesIO(outer), "file", (0, 1), Truncation()).read() == b"two"
    with pytest.raises(UserError, match="file has changed since the build began"):
        text_file_at(io.BytesIO(tar({"0": b"zero"})), "file", (1,), Truncation()).read()


def test_hidden_and_empty_files_of_an_archive_are_skipped(tar):
    content = tar({"all/": b"", "._1.txt": b"\0\5\x16\7", ".hidden": b"a", "empty": b"", "1.txt": b"one"})
    assert texts_in(content) == ({"file/1.txt": b"one"}, "")
    assert is_archive(tar({"all/": b""})) and texts_in(tar({"all/": b""})) == ({}, "")


# The headers of both files, and the content of the first, have 512 bytes each.
@pytest.mark.parametrize(
    ("num_bytes", "second"), [(3 * 512 + 10, b"two\ntwo\n"), (2 * 512, None), (2 * 512 + 100, None)]
)
def test_a_truncated_archive_gives_the_whole_lines_before_its_end(tar, num_bytes, second):
    texts, message = texts_in(tar({"1": b"one\n", "2": b"two\n" * 200})[:num_bytes])
    assert texts == {"file/1": b"one\n", **({"file/2": second} if second else {})}
    assert message.startswith("file is truncated")


def test_the_outermost_truncation_is_reported(tar):
    content = gzip.compress(tar({"1": TEXT[:5000]}))
    assert texts_in(content[:1000])[1] == "file is truncated at byte 1000: its gzip data continues"


def test_a_broken_header_is_a_user_error(tar):
    content = bytearray(tar({"1": b"one", "2": b"two"}))
    content[2 * 512 : 2 * 512 + 20] = b"x" * 20
    with pytest.raises(UserError, match="file is damaged: no tar header at byte 1024"):
        texts_in(bytes(content))


def test_peeking_and_sections():
    stream = buffered(io.BytesIO(b"0123456789"))
    assert begin_of(stream) == b"0123456789"
    assert section(stream, 5, num_skipped=2).read() == b"23456"


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
def test_a_truncated_stream_loses_its_incomplete_line(line_end):
    text = line_end.join([b"one", b"two", b"thr"])
    assert whole_lines(io.BytesIO(text), Truncation("truncated")).read() == text[:-3]
    assert whole_lines(io.BytesIO(text), Truncation()).read() == text
