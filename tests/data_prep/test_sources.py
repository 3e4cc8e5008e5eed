import bz2
import gzip
import lzma

import fsspec
import pytest

from data_prep.readers import FORMATS
from data_prep.sources import find_files
from electra_tf.config.errors import UserError
from tests.data_prep.texts import content_of, tar

WIKIPEDIA = b'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">\n'
CIRRUS = b'{"index":{"_type":"_doc","_id":"7"}}\n{"text": "a"}\n'
WIKIEXTRACTOR = b'<doc id="12" url="u" title="t">\nt\n</doc>\n'


def test_names_are_relative_to_the_fixed_part_of_the_glob_and_sorted(tmp_path):
    for name, content in {"B/first.txt": "x", "A/second.txt": "xy"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
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
        ({"a": b"x"}, "books:{}/*", "no file matches books:"),
        ({"a": b"x"}, "text:{}/* book:{}/a", "/a is read twice"),
        ({"a": b"Once upon a time"}, "{}/a", "/a cannot be detected.*input=text:GLOB"),
        ({"a": WIKIPEDIA, "b": WIKIEXTRACTOR}, "{}/*", "/a is wikipedia, .*/b is wikiextractor"),
        ({"a": WIKIEXTRACTOR, "b": WIKIEXTRACTOR}, "text:{}/*", "files in the format wikiextractor; give that format"),
        ({"a": CIRRUS}, "jsonl:{}/*", "files in the format cirrus; give that format"),
        ({"a": WIKIPEDIA}, "new:{}/*", "files in the format wikipedia; give that format"),
    ],
)
def test_inputs_that_cannot_be_read_as_given_are_refused(tmp_path, monkeypatch, files, inputs, message):
    monkeypatch.setitem(FORMATS, "new", FORMATS["text"])
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        find_files([text.format(tmp_path) for text in inputs.split(" ")])


@pytest.mark.parametrize(
    ("content", "format_name"),
    [
        (WIKIPEDIA, "wikipedia"),
        (b'<?xml version="1.0"?>\n' + WIKIPEDIA, "wikipedia"),
        (b"\xef\xbb\xbf" + WIKIEXTRACTOR, "wikiextractor"),
        (b'\n{"title": "t", "text": "x"}\n{"', "jsonl"),
        (b'{"text": "' + b"x" * 20_000 + b'"}', "jsonl"),
        (b'{}\n{"text": "x"}', "jsonl"),
        (CIRRUS, "cirrus"),
        ('<mediawiki version="0.11">'.encode("utf-16"), "wikipedia"),
        (b'{"Hello": he said.\n', "text"),
        (content_of("parquet"), "parquet"),
        (content_of("arrow"), "arrow"),
        (tar({"openwebtext/urlsf_subset00-1_data.xz": lzma.compress(tar({"1.txt": b"Some text"}))}), "openwebtext"),
    ],
)
@pytest.mark.parametrize("compress", [bytes, bz2.compress])
def test_a_format_is_detected_from_the_content(tmp_path, content, format_name, compress):
    (tmp_path / "a").write_bytes(compress(content))
    (file,) = find_files([f"{tmp_path}/a"], undetected_format="text")
    assert file.format == format_name


@pytest.mark.parametrize(("name", "format_name"), [("a.csv", "csv"), ("b.TSV.gz", "tsv"), ("c.csv.txt.bak", "text")])
def test_separated_values_are_detected_by_the_name(tmp_path, name, format_name):
    (tmp_path / name).write_text("text,id\n")
    (file,) = find_files([f"{tmp_path}/{name}"], undetected_format="text")
    assert file.format == format_name


def test_content_of_another_format_is_a_fault_that_names_the_file(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(b"a\0b\0c\0d"))
    (file,) = find_files([f"text:{tmp_path}/a"])
    assert "is not text: byte 0x00 at offset 1" in str(file.fault)


def test_a_remote_file_is_found_and_named(tmp_path):
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/source_files/en/a.xml.bz2", bz2.compress(WIKIPEDIA))
    (file,) = find_files(["memory://source_files/*/*.bz2"])
    assert (file.name, file.format, file.compression) == ("en/a.xml.bz2", "wikipedia", "bzip2")
    assert file.path == "memory://source_files/en/a.xml.bz2"
