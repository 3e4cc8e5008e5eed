import bz2
import gzip
import logging
import lzma
import os
import re

import pytest

from data_prep.readers import FORMATS
from data_prep.sources import find_files
from electra_tf.config.errors import UserError

WIKIPEDIA = b'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">\n'
WIKIEXTRACTOR = b'<doc id="12" url="u" title="t">\nt\n</doc>\n'


def write(directory, **contents: str):
    """Files NAME.txt with these contents."""
    for name, content in contents.items():
        (directory / f"{name}.txt").write_text(content)
    return directory


def test_names_are_relative_to_the_fixed_part_of_the_glob_and_sorted(tmp_path):
    (tmp_path / "B").mkdir()
    (tmp_path / "A").mkdir()
    write(tmp_path / "B", first="x")
    write(tmp_path / "A", second="xy")
    files = find_files([f"text:{tmp_path}/*/*.txt"])
    assert [(file.name, file.num_bytes) for file in files] == [("A/second.txt", 2), ("B/first.txt", 1)]


def test_a_path_may_have_a_colon(tmp_path):
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b" / "c.xml").write_bytes(WIKIPEDIA)
    (file,) = find_files([f"{tmp_path}/a:b/c.xml"])
    assert (file.name, file.format) == ("c.xml", "wikipedia")


@pytest.mark.parametrize(
    ("files", "inputs", "message"),
    [
        ({}, "text:{}/*.json", r"no file matches .*\.json"),
        ({}, "{}/no.txt", r"no file matches .*no\.txt"),
        ({}, "text:{}", "is a directory"),
        ({}, "books:{}/*", "'books'; did you mean book?"),
        ({}, "q:{}/*", f"there are: {', '.join(sorted(FORMATS))}$"),
        ({}, "text:", "FORMAT:GLOB"),
        ({}, "", "FORMAT:GLOB"),
        ({}, "nothing://bucket/*", "nothing://bucket"),
        ({"a": b"x"}, "text:{}/* book:{}/a", "/a is read twice"),
        ({"a": b"x", "b": "a"}, "text:{}/*", "/b is read twice, also by the name .*/a;"),
        ({"a": b"", "b": b""}, "text:{}/*", "empty: text:.*"),
        ({"a": b""}, "{}/*", "empty: /.*"),
        ({"a": b"Once upon a time"}, "{}/a", "/a cannot be detected.*--input=text:GLOB"),
        ({"a": b"{{cite}}"}, "{}/a", "/a cannot be detected"),
        ({"a": b"{[("}, "{}/a", "/a cannot be detected"),
        ({"a": b"<html>"}, "{}/a", "/a cannot be detected"),
        ({"a": WIKIPEDIA, "b": WIKIEXTRACTOR}, "{}/*", "/b is wikiextractor, .*/a is wikipedia"),
        ({"a": WIKIEXTRACTOR, "b": WIKIEXTRACTOR}, "text:{}/*", "files in the format wikiextractor; give that format"),
        ({"a": b'{"text": "a"}\n'}, "text:{}/*", "files in the format jsonl; give that format"),
    ],
)
def test_inputs_that_cannot_be_read_as_given_are_refused(tmp_path, files, inputs, message):
    for name, content in files.items():
        if isinstance(content, bytes):
            (tmp_path / name).write_bytes(content)
        else:
            (tmp_path / name).symlink_to(content)
    with pytest.raises(UserError, match=message):
        find_files([text.format(tmp_path) for text in inputs.split(" ")])


def test_a_file_of_another_format_among_others_may_be_text(tmp_path):
    (tmp_path / "a").write_bytes(WIKIEXTRACTOR)
    (tmp_path / "b").write_bytes(b"Once upon a time.")
    assert len(find_files([f"text:{tmp_path}/*"])) == 2


def test_a_file_name_that_is_not_utf_8_is_named(tmp_path):
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"x")
    with pytest.raises(UserError, match=r"'caf\\udce9\.txt' is not UTF-8"):
        find_files([f"text:{tmp_path}/*"])


def test_a_file_that_cannot_be_opened_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("data_prep.storage.open_binary", refuse)
    write(tmp_path, a="x")
    with pytest.raises(UserError, match="cannot read .*a.txt: Permission denied$"):
        find_files([f"text:{tmp_path}/*"])


@pytest.mark.parametrize(
    ("content", "format_name"),
    [
        (WIKIPEDIA, "wikipedia"),
        (b'<?xml version="1.0"?>\n' + WIKIPEDIA, "wikipedia"),
        (b"\xef\xbb\xbf" + WIKIEXTRACTOR, "wikiextractor"),
        (b'\n{"title": "t", "text": "x"}\n{"', "jsonl"),
        (b'{"text": "' + b"x" * 20_000 + b'"}', "jsonl"),
    ],
)
@pytest.mark.parametrize("compress", [bytes, bz2.compress])
def test_a_format_is_detected_from_the_content(tmp_path, content, format_name, compress):
    (tmp_path / "a").write_bytes(compress(content))
    (file,) = find_files([f"{tmp_path}/a"])
    assert file.format == format_name


def test_openwebtext_is_detected_by_the_names_in_its_archive(tmp_path, tar):
    subset = lzma.compress(tar({"1.txt": b"Some text"}))
    (tmp_path / "all.tar").write_bytes(tar({"openwebtext/urlsf_subset00-1_data.xz": subset}))
    (file,) = find_files([f"{tmp_path}/all.tar"])
    assert file.format == "openwebtext"


def test_the_files_of_each_input_are_logged_in_one_line(tmp_path, caplog):
    (tmp_path / "a.xml").write_bytes(bz2.compress(WIKIPEDIA * 1000))
    (tmp_path / "b.xml").write_bytes(WIKIPEDIA * 40_000)
    write(tmp_path, c="text")
    with caplog.at_level(logging.INFO):
        find_files([f"{tmp_path}/*.xml", f"text:{tmp_path}/*.txt"])
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/*.xml: 2 files, 2.5 MB, 1 bzip2 and 1 uncompressed, format wikipedia (detected)",
        f"{tmp_path}/*.txt: 1 file, 0.0 MB, uncompressed, format text (as given)",
    ]


@pytest.mark.parametrize(
    ("format_name", "content", "complaint"),
    [
        ("text", b"a\0b\0c\0d", "is not text: byte 0x00 at offset 1"),
        ("book", b"\x7fELF\x02\x01\x01\0", "is not text: byte 0x00 at offset 7"),
        ("jsonl", "\ufeff{}".encode("utf-16-le"), "UTF-16"),
        ("text", b"PAR1\x15\x04", "--input=parquet:GLOB"),
        ("wikipedia", b"ARROW1\0\0", "--input=arrow:GLOB"),
    ],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_content_of_another_format_is_a_fault_that_names_the_file(tmp_path, format_name, content, complaint, compress):
    (tmp_path / "a").write_bytes(compress(content))
    (file,) = find_files([f"{format_name}:{tmp_path}/a"])
    assert re.search(complaint, str(file.fault))


def test_a_remote_file_is_found_and_named(tmp_path):
    import fsspec

    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/source_files/en/a.xml.bz2", bz2.compress(WIKIPEDIA))
    (file,) = find_files(["memory://source_files/*/*.bz2"])
    assert (file.name, file.format, file.compression) == ("en/a.xml.bz2", "wikipedia", "bzip2")
    assert file.path == "memory://source_files/en/a.xml.bz2"
