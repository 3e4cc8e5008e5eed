import bz2
import collections
import errno
import io
import itertools
import random
import tarfile
import tracemalloc

import pytest
import zstandard

from data_prep import archives
from data_prep.archives import COMPRESSIONS, FileFault, ReadError, compression_of, is_archive, read_errors, text_files
from tests.data_prep.texts import PACKERS, tar

EVERY_COMPRESSION = pytest.mark.parametrize("name", COMPRESSIONS)

# Random letters, which hardly compress.
TEXT = "".join(random.Random(2).choices("abcdefgh \n", k=300_000)).encode()


def unpack(content: bytes) -> bytes:
    with read_errors("file"):
        stream = archives.unpack(io.BytesIO(content))
        text = stream.read()
        archives.raise_error_of(stream)
        return text


@EVERY_COMPRESSION
def test_several_streams_with_zero_padding_are_read(name):
    parts = [TEXT[:100], b"", TEXT[100:250_000], TEXT[250_000:]]
    content = bytes(512).join(map(PACKERS[name], parts)) + bytes(70_000)
    assert compression_of(content[:16]) == name
    assert unpack(content) == TEXT


@EVERY_COMPRESSION
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-200],
        lambda content: content[: len(content) // 2] + bytes(100) + content[len(content) // 2 + 100 :],
        lambda content: content + b"This is no compressed data at all.",
    ],
    ids=["truncated", "overwritten", "garbage after the end"],
)
def test_damaged_data_is_a_fault_of_the_file(name, damage):
    with pytest.raises(FileFault, match="is damaged: "):
        unpack(damage(PACKERS[name](TEXT)))


@EVERY_COMPRESSION
def test_what_comes_before_the_end_of_a_truncated_file_is_read(name):
    lines = b"".join(PACKERS[name](f"line {i}\n".encode() * 30) for i in range(5))
    stream = archives.unpack(io.BytesIO(lines[:-3]))
    text = stream.read()
    assert text.startswith(b"line 0\n" * 30 + b"line 1\n") and text.count(b"\n") >= 120
    assert isinstance(archives.error_of(stream), Exception)


def text_between(content: bytes, begin: int, end: int) -> bytes:
    """The text of the blocks of bzip2 that begin at these bytes."""
    blocks = archives.bzip2_blocks(io.BytesIO(content), begin, end)
    return b"".join(itertools.takewhile(lambda block: block is not None, blocks))


BLOCKS = {
    "blocks": bz2.compress(TEXT, 1),  # three, of which two begin within a byte
    "streams": b"".join(bz2.compress(TEXT[i : i + 70_000], 9) for i in range(0, len(TEXT), 70_000)),
    "padding": bz2.compress(TEXT[:7], 1) + bytes(70_000) + bz2.compress(b"") + bz2.compress(TEXT[7:], 1) + bytes(9),
}


@pytest.mark.parametrize("num_bytes", [9_999, 10**6])
@pytest.mark.parametrize("name", BLOCKS)
def test_ranges_of_bzip2_have_the_text_of_the_whole_file(name, num_bytes):
    content = BLOCKS[name]
    begins = range(0, len(content), num_bytes)
    assert b"".join(text_between(content, begin, begin + num_bytes) for begin in begins) == TEXT


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-40_000] + b"0123456789" + content[-39_990:],
        lambda content: content[:-11],  # no end
        lambda content: content[:-2],
        lambda content: BLOCKS["streams"] + b"BZh0" + content[4:],  # no header
        lambda content: content + b"BZh9",  # text after the end
    ],
)
def test_a_damaged_range_of_bzip2_is_an_error(name, damage):
    content = damage(BLOCKS[name].rstrip(b"\0"))
    with pytest.raises((OSError, EOFError), match="invalid"):
        text_between(content, 0, len(content))


def test_padding_of_any_length_after_bzip2_takes_no_memory():
    content = BLOCKS["blocks"] + bytes(4 * 2**20)
    tracemalloc.start()
    assert text_between(content, 0, len(content)) == TEXT
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 2**20


def test_a_hole_in_a_block_of_bzip2_is_an_error_before_all_is_in_memory():
    stream = io.BytesIO(BLOCKS["blocks"][:-20] + bytes(4 * 2**20))
    with pytest.raises(OSError, match="Invalid data stream"):
        collections.deque(archives.bzip2_blocks(stream, 0, 2**30), maxlen=0)
    assert stream.tell() < 2 * 2**20


def test_bits_in_a_block_of_bzip2_that_look_like_a_block_by_chance_do_no_harm(monkeypatch):
    find = archives._magic_positions

    def find_more(content: bytes, begin: int) -> list[int]:
        return sorted([*find(content, begin), *[70_001] * (begin == 1)])

    monkeypatch.setattr(archives, "_magic_positions", find_more)
    assert text_between(BLOCKS["blocks"], 0, 10**6) == TEXT


def test_skippable_frames_of_zstd_are_skipped():
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"
    content = skippable + PACKERS["zstd"](TEXT[:500]) + skippable + PACKERS["zstd"](TEXT[500:])
    assert compression_of(content) == "zstd"
    assert unpack(content) == TEXT


def test_a_frame_of_zstd_with_a_window_of_2_gb_is_read():
    parameters = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=True, strategy=1)
    # A frame that states its size has a window no larger than that.
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert unpack(compressor.compress(b"text\n") + compressor.flush()) == b"text\n"


@EVERY_COMPRESSION
def test_a_file_that_expands_a_thousandfold_is_read_in_bounded_memory(name):
    content = PACKERS[name](bytes(30_000_000))
    tracemalloc.start()
    stream, num_bytes = archives.unpack(io.BytesIO(content)), 0
    while block := stream.read(2**18):
        num_bytes += len(block)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_bytes == 30_000_000
    assert peak < (40e6 if name == "zstd" else 16e6)  # zstandard cannot limit the output of one step


def texts_in(content: bytes) -> dict[str, bytes]:
    with read_errors("file"):
        return {path: stream.read() for path, stream in text_files(io.BytesIO(content), "file")}


def test_hidden_and_empty_files_of_an_archive_are_skipped():
    content = tar({"all/": b"", "._1.txt": b"\0\5\x16\7", ".hidden": b"a", "empty": b"", "1.txt": b"one"})
    assert texts_in(content) == {"file/1.txt": b"one"}
    assert is_archive(tar({"all/": b""})) and texts_in(tar({"all/": b""})) == {}


# The headers of both files, and the content of the first, have 512 bytes each.
@pytest.mark.parametrize("num_bytes", [3 * 512 + 10, 2 * 512, 2 * 512 + 100])
def test_a_truncated_or_damaged_archive_is_a_fault_of_the_file(num_bytes):
    content = tar({"1": b"one\n", "2": b"two\n" * 200})
    for damaged in (content[:num_bytes], content[: 2 * 512] + b"x" * 20 + content[2 * 512 + 20 :]):
        with pytest.raises(FileFault, match="is damaged: "):
            texts_in(damaged)


def header(name: str, kind: bytes, size: int) -> bytes:
    """The header of a member of an archive, whose content may be missing."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf()


def member(attributes: dict[str, str], text: bytes = b"text\n") -> bytes:
    """An archive of one file with attributes, as POSIX.1-2001 has them."""
    info, written = tarfile.TarInfo("name"), io.BytesIO()
    info.size, info.pax_headers = len(text), attributes
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(text))
    return written.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        # A name is read in one piece, and the holes of a sparse file have any length.
        (header("name", tarfile.XHDTYPE, 2**30) + bytes(10_000), "attributes have 1073741824 bytes"),
        (member({"GNU.sparse.map": "0,5", "GNU.sparse.size": str(2**50)}), "name is a sparse file"),
        (header(".hidden", tarfile.REGTYPE, 2**62) + bytes(10_000), "unexpected end of data"),
        (header("of an unknown kind", b"?", 2**62) + bytes(10_000), "unexpected end of data"),
    ],
)
def test_a_member_of_an_archive_cannot_claim_more_than_it_holds(content, problem):
    with pytest.raises(FileFault, match=f"is damaged: .*{problem}"):
        texts_in(content)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"GNU.sparse.size": "abc"}, b"text"),
        ({"GNU.sparse.map": "0,x"}, b"text"),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, b"one\n"),
    ],
)
def test_an_attribute_that_is_no_number_is_a_fault_of_the_file(attributes, text):
    with pytest.raises(FileFault, match="is damaged: no tar header at byte .*('abc'|'x'|'one')"):
        texts_in(member(attributes, text))


def test_many_headers_in_a_row_are_a_fault_of_the_file():
    empty = header("attributes", tarfile.XHDTYPE, 0)
    assert texts_in(14 * empty + tar({"a": b"text"})) == {"file/a": b"text"}
    with pytest.raises(FileFault, match="is damaged: more than 16 tar headers in a row"):
        texts_in(400 * empty + tar({"a": b"text"}))


def test_what_headers_say_of_all_later_members_takes_no_memory():
    members = (
        tarfile.TarInfo.create_pax_global_header({f"key {i}": "x" * 100_000}) + header(f"{i}", tarfile.REGTYPE, 0)
        for i in range(40)
    )
    content = b"".join(members) + bytes(1024)
    tracemalloc.start()
    assert texts_in(content) == {}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2e6


@pytest.mark.parametrize(
    ("error", "kind"), [(OSError(errno.EIO, "Input/output error"), ReadError), (OSError("Invalid data"), FileFault)]
)
def test_a_file_that_cannot_be_read_now_is_told_from_a_damaged_one(error, kind):
    with pytest.raises(kind, match="I") as caught, read_errors("a.bz2"):
        raise error
    assert type(caught.value) is kind
