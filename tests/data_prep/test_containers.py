import gzip
import io
import lzma
import random
import tarfile

import pytest

from data_prep.compression import Truncation
from data_prep.containers import begin_of, buffered, entry, is_archive, leaves, members, section, whole_lines
from electra_tf.config.errors import UserError


def tar(files: dict[str, bytes]) -> bytes:
    """An archive of these files, in a directory."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        directory = tarfile.TarInfo("all")
        directory.type = tarfile.DIRTYPE
        archive.addfile(directory)
        for name, text in files.items():
            info = tarfile.TarInfo(f"all/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return content.getvalue()


def found_leaves(content: bytes) -> tuple[dict[str, bytes], str]:
    truncation = Truncation()
    found = {path: stream.read() for path, stream in leaves(io.BytesIO(content), "file", truncation)}
    return found, truncation.message


def test_a_file_that_is_neither_packed_nor_an_archive_is_its_own_leaf():
    assert found_leaves(b"text") == ({"file": b"text"}, "")


def test_the_files_of_archives_in_archives_are_found_in_whatever_compression():
    inner = lzma.compress(tar({"1.txt": b"one", "2.txt": b"two"}))
    outer = gzip.compress(tar({"a.tar.xz": inner, "b.txt.gz": gzip.compress(b"three"), "c.txt": b"four"}))
    assert found_leaves(gzip.compress(outer)) == (
        {
            "file/all/a.tar.xz/all/1.txt": b"one",
            "file/all/a.tar.xz/all/2.txt": b"two",
            "file/all/b.txt.gz": b"three",
            "file/all/c.txt": b"four",
        },
        "",
    )


def test_a_leaf_need_not_be_read():
    content = tar({"1": b"one", "2": b"two"})
    paths = [path for path, _ in leaves(io.BytesIO(content), "file", Truncation())]
    assert paths == ["file/all/1", "file/all/2"]


def test_a_leaf_is_found_by_its_place():
    inner = lzma.compress(tar({"1.txt": b"one", "2.txt": b"two"}))
    content = gzip.compress(tar({"0.txt": b"zero", "a.tar.xz": inner}))
    assert entry(io.BytesIO(content), "file", (1, 1), Truncation()).read() == b"two"
    assert entry(io.BytesIO(content), "file", (0,), Truncation()).read() == b"zero"


def test_a_leaf_that_is_not_there_any_more_is_a_user_error():
    with pytest.raises(UserError, match="file has changed since the build began"):
        entry(io.BytesIO(tar({"0": b"zero"})), "file", (1,), Truncation()).read()


def test_hidden_and_empty_files_of_an_archive_are_passed_over():
    content = tar({"._1.txt": b"\0\5\x16\7", ".hidden": b"a", "empty": b"", "1.txt": b"one"})
    assert found_leaves(content) == ({"file/all/1.txt": b"one"}, "")


def test_an_empty_archive_holds_nothing():
    content = tar({})
    assert is_archive(content)
    assert found_leaves(content) == ({}, "")


def test_an_archive_cut_off_in_a_file_gives_the_whole_lines_before():
    content = tar({"1": b"one\n", "2": b"two\n" * 200})
    # Headers of the directory, of both files, and the content of the first, of 512 bytes each.
    found, message = found_leaves(content[: 4 * 512 + 10])
    assert found == {"file/all/1": b"one\n", "file/all/2": b"two\ntwo\n"}
    assert message.startswith("file is cut off")


@pytest.mark.parametrize("num_bytes", [3 * 512, 3 * 512 + 100], ids=["between files", "in a header"])
def test_an_archive_without_its_end_is_cut_off(num_bytes):
    found, message = found_leaves(tar({"1": b"one\n", "2": b"two\n"})[:num_bytes])
    assert found == {"file/all/1": b"one\n"}
    assert message.startswith("file is cut off")


def test_compression_that_is_cut_off_names_the_byte_of_the_file():
    text = "".join(random.Random(4).choices("abcdef \n", k=5000)).encode()
    content = gzip.compress(tar({"1": text}))
    found, message = found_leaves(content[:1000])
    assert text.startswith(found["file/all/1"]) and found["file/all/1"].endswith(b"\n")
    assert message == "file is cut off at byte 1000: its gzip data goes on there"


def test_a_broken_header_is_a_user_error():
    content = bytearray(tar({"1": b"one", "2": b"two"}))
    content[3 * 512 : 3 * 512 + 20] = b"x" * 20
    with pytest.raises(UserError, match="file is damaged: no tar header at byte 1536"):
        found_leaves(bytes(content))


def test_members_are_given_with_their_sizes():
    found = members(io.BytesIO(tar({"1": b"one", "2": b"four"})), "file", Truncation())
    assert [(member.name, member.num_bytes) for member in found] == [("all/1", 3), ("all/2", 4)]


def test_looking_at_the_beginning_takes_nothing_away():
    stream = buffered(io.BytesIO(b"text"))
    assert begin_of(stream) == b"text"
    assert stream.read() == b"text"


def test_a_section_ends_where_it_is_said_to_end():
    stream = io.BytesIO(b"0123456789")
    stream.seek(2)
    assert section(stream, 5).read() == b"23456"


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
def test_of_a_stream_that_is_cut_off_the_unfinished_line_is_dropped(line_end):
    text = line_end.join([b"one", b"two", b"thr"])
    assert whole_lines(io.BytesIO(text), Truncation("cut off")).read() == text[:-3]
    assert whole_lines(io.BytesIO(text), Truncation()).read() == text
