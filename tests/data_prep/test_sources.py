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
    ("text", "name"),
    [
        ("text:{}/*.json", r"no file matches .*\.json"),
        ("{}/no.txt", r"no file matches .*no\.txt"),
        ("books:{}/*", "'books'; did you mean book?"),
        ("q:{}/*", f"there are: {', '.join(sorted(FORMATS))}$"),
        ("text:", "FORMAT:GLOB"),
        ("", "FORMAT:GLOB"),
        ("text:{}", "is a directory"),
        ("nothing://bucket/*", "nothing://bucket"),
    ],
)
def test_an_input_without_files_or_with_an_unknown_format_is_named(tmp_path, text, name):
    write(tmp_path, a="x")
    with pytest.raises(UserError, match=name):
        find_files([text.format(tmp_path)])


def test_a_file_that_two_inputs_match_is_named(tmp_path):
    write(tmp_path, a="x")
    with pytest.raises(UserError, match="a.txt is read twice"):
        find_files([f"text:{tmp_path}/*", f"book:{tmp_path}/a.txt"])


def test_both_names_of_a_file_under_one_glob_are_named(tmp_path):
    write(tmp_path, a="1")
    (tmp_path / "b.txt").symlink_to("a.txt")
    with pytest.raises(UserError, match="/b.txt is read twice, also by the name .*/a.txt;"):
        find_files([f"text:{tmp_path}/*"])


@pytest.mark.parametrize("prefix", ["text:", ""])
def test_an_input_of_empty_files_is_named(tmp_path, prefix):
    write(tmp_path, a="", b="")
    with pytest.raises(UserError, match=f"empty: {prefix}{tmp_path}"):
        find_files([f"{prefix}{tmp_path}/*"])


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


@pytest.mark.parametrize("content", [b"Once upon a time\n", b"{{cite}}\n", b"{[(\n", b"<html>"])
def test_the_format_of_plain_text_is_not_detected(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UserError, match="/a cannot be detected.*--input=text:GLOB"):
        find_files([f"{tmp_path}/a"])


def test_files_of_several_formats_need_an_input_each(tmp_path):
    (tmp_path / "a").write_bytes(WIKIPEDIA)
    (tmp_path / "b").write_bytes(WIKIEXTRACTOR)
    with pytest.raises(UserError, match="/b is wikiextractor, .*/a is wikipedia"):
        find_files([f"{tmp_path}/*"])


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


@pytest.mark.parametrize(
    ("content", "found"), [(b'<doc id="12" url="u" title="t">\n', "wikiextractor"), (b'{"text": "a"}\n', "jsonl")]
)
def test_files_of_another_format_are_not_read_as_text_except_among_others(tmp_path, content, found):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"--input=text:.* matches files in the format {found}; give that format"):
        find_files([f"text:{tmp_path}/*"])
    (tmp_path / "c").write_text("Once upon a time.")
    assert len(find_files([f"text:{tmp_path}/*"])) == 3


def test_a_remote_file_is_found_and_named(tmp_path):
    import fsspec

    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/source_files/en/a.xml.bz2", bz2.compress(WIKIPEDIA))
    (file,) = find_files(["memory://source_files/*/*.bz2"])
    assert (file.name, file.format, file.compression) == ("en/a.xml.bz2", "wikipedia", "bzip2")
    assert file.path == "memory://source_files/en/a.xml.bz2"
