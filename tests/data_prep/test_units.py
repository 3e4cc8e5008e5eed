import bz2
import gzip
import io
import itertools
import json
import lzma
import pickle
import random
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.planning import plan_units
from data_prep.readers import FORMATS
from data_prep.readers.documents import ReaderOptions, ReadReport
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS
from data_prep.source_files import find_files
from data_prep.units import WorkUnit, read_unit, unit_num_bytes
from electra_tf.config.errors import UserError

OPTIONS = ReaderOptions(text_field="text", lines_per_document=3, keep_disambiguation_pages=False)

COMPRESS = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def tar(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return content.getvalue()


def plan(text: str, unit_bytes: int) -> list[WorkUnit]:
    return list(plan_units(find_files([text]), unit_bytes, OPTIONS))


def read(units: list[WorkUnit], report: ReadReport | None = None) -> list[list[str]]:
    report = report or ReadReport()
    # A unit is sent to another process.
    units = pickle.loads(pickle.dumps(units))
    return [document.lines for unit in units for document in read_unit(unit, OPTIONS, report)]


def ranges(units: list[WorkUnit]) -> list[list[tuple[str, int, int | None]]]:
    return [[(part.file.name, part.begin, part.end) for part in unit] for unit in units]


def texts_of(name: str) -> list[list[str]]:
    """Documents of a few lines, not two alike."""
    numbers = itertools.count()
    return [[f"{name} {next(numbers)} é" for _ in range(1 + i % 4)] for i in range(9)]


def wikipedia_page(lines: list[str]) -> str:
    text = "\n\n".join(lines[1:] or ["Text."])
    revision = f'<revision><text xml:space="preserve">{text}</text></revision>'
    return f"  <page>\n    <title>{lines[0]}</title>\n    <ns>0</ns>\n    {revision}\n  </page>\n"


def content_of(format_name: str, documents: list[list[str]]) -> bytes:
    """A file of the documents; where a format has no documents, of their lines."""
    if format_name == "text":
        content = "\n\n".join("\n".join(lines) for lines in documents) + "\n"
    elif format_name == "wikiextractor":
        content = "".join(f'<doc id="1">\n{chr(10).join(lines)}\n</doc>\n' for lines in documents)
    elif format_name == "wikipedia":
        content = f"<mediawiki>\n{''.join(map(wikipedia_page, documents))}</mediawiki>\n"
    elif format_name == "jsonl":
        content = "".join(json.dumps({"text": "\n".join(lines)}) + "\n" for lines in documents)
    elif format_name in ("parquet", "arrow"):
        return table_of(format_name, ["\n".join(lines) for lines in documents])
    else:
        content = "".join(f"{line}\n" for lines in documents for line in lines)
    return content.encode()


def table_of(format_name: str, texts: list[str]) -> bytes:
    table = pa.table({"text": texts})
    content = io.BytesIO()
    if format_name == "parquet":
        pq.write_table(table, content, row_group_size=2)
    else:
        with pa.ipc.new_stream(content, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return content.getvalue()


def documents_of(format_name: str) -> list[list[str]]:
    """The documents of a file of these texts."""
    written = texts_of(format_name)
    if format_name == "sentences":
        lines = [line for lines in written for line in lines]
        return [lines[i : i + 3] for i in range(0, len(lines), 3)]
    if format_name == "wikipedia":
        return [lines if len(lines) > 1 else [*lines, "Text."] for lines in written]
    return written


CONTENTS = {name: content_of(name, texts_of(name)) for name in FORMATS}


def packings(content: bytes) -> dict[str, bytes]:
    """The content in every container, and in several."""
    packed = {name: compress(content) for name, compress in COMPRESS.items()}
    packed["tar"] = tar({"a/1": content, "a/2": gzip.compress(content)})
    packed["tar in tar"] = gzip.compress(
        tar({"1.tar.xz": lzma.compress(tar({"a": content, "b": content})), "2": content})
    )
    return packed


NUM_COPIES = {"tar": 2, "tar in tar": 3}


@pytest.fixture(scope="module")
def packed_files(tmp_path_factory) -> dict[tuple[str, str], Path]:
    directory = tmp_path_factory.mktemp("packed")
    paths = {}
    for format_name, content in CONTENTS.items():
        for packing, packed in packings(content).items():
            paths[format_name, packing] = directory / f"{format_name} in {packing}"
            paths[format_name, packing].write_bytes(packed)
    return paths


@pytest.mark.parametrize("format_name", FORMATS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(unit_bytes=st.one_of(st.integers(1, 60), st.integers(1, 2000)))
def test_the_size_of_the_units_and_the_packing_do_not_change_the_documents(packed_files, format_name, unit_bytes):
    expected = read(plan(f"{format_name}:{packed_files[format_name, 'plain']}", unit_bytes=2**20))
    assert len(expected) >= 1
    for packing in packings(b""):
        path = packed_files[format_name, packing]
        units = plan(f"{format_name}:{path}", unit_bytes)
        assert read(units) == expected * NUM_COPIES.get(packing, 1), packing
        assert sum(map(unit_num_bytes, units)) == path.stat().st_size, packing
        assert plan(f"{format_name}:{path}", unit_bytes) == units, packing


@pytest.mark.parametrize("format_name", ["text", "sentences", "book", "openwebtext"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet="ab é\u00a0\ufeff\r\n\n\n", max_size=50),
    unit_bytes=st.integers(1, 30),
    packing=st.sampled_from(["plain", "gzip"]),
)
def test_the_size_of_the_units_changes_nothing_whatever_the_lines(tmp_path, format_name, text, unit_bytes, packing):
    # An empty file is refused, so there is a first line.
    content = f"first\n{text}".encode()
    (tmp_path / "whole").write_bytes(content)
    (tmp_path / "cut").write_bytes(COMPRESS[packing](content))
    expected = read(plan(f"{format_name}:{tmp_path}/whole", unit_bytes=2**20))
    assert read(plan(f"{format_name}:{tmp_path}/cut", unit_bytes)) == expected


@pytest.mark.parametrize("format_name", ["text", "sentences", "wikiextractor", "wikipedia", "jsonl"])
@pytest.mark.parametrize("packing", ["plain", "xz"])
def test_the_documents_are_those_that_were_written(packed_files, format_name, packing):
    found = read(plan(f"{format_name}:{packed_files[format_name, packing]}", unit_bytes=50))
    assert found == documents_of(format_name)


CUTTABLE = ["text", "sentences", "wikiextractor", "wikipedia", "jsonl"]


@pytest.mark.parametrize("format_name", [*CUTTABLE, "parquet", "arrow"])
def test_a_big_plain_file_is_cut(packed_files, format_name):
    assert len(plan(f"{format_name}:{packed_files[format_name, 'plain']}", unit_bytes=40)) > 3


@pytest.mark.parametrize("format_name", CUTTABLE)
def test_a_big_compressed_file_is_handed_over_in_pieces(packed_files, format_name):
    units = plan(f"{format_name}:{packed_files[format_name, 'zstd']}", unit_bytes=40)
    assert len(units) > 3
    assert b"".join(part.content for unit in units for part in unit) == CONTENTS[format_name]
    assert [part.is_end for unit in units for part in unit] == [False] * (len(units) - 1) + [True]


def test_wikiextractor_json_is_cut_too(tmp_path):
    (tmp_path / "a").write_bytes(CONTENTS["jsonl"])
    units = plan(f"wikiextractor:{tmp_path}/a", unit_bytes=40)
    assert len(units) > 3
    assert read(units) == texts_of("jsonl")


def test_a_line_that_looks_like_json_does_not_end_an_article(tmp_path):
    content = '<doc id="1">\none\n{"text": "no article"}\ntwo\n</doc>\n' * 20
    (tmp_path / "a").write_text(content)
    assert read(plan(f"wikiextractor:{tmp_path}/a", unit_bytes=15)) == [["one", '{"text": "no article"}', "two"]] * 20


def test_small_files_share_a_unit_and_big_ones_are_cut_between_documents(tmp_path):
    for name, content in {"a": "1", "b": "22", "c": "one\n\ntwo\ntwo\n\nthree", "d": "4"}.items():
        (tmp_path / f"{name}.txt").write_text(content)
    assert ranges(plan(f"text:{tmp_path}/*", unit_bytes=7)) == [
        [("a.txt", 0, None), ("b.txt", 0, None)],
        [("c.txt", 0, 13)],
        [("c.txt", 13, 19), ("d.txt", 0, None)],
    ]


def test_small_compressed_files_share_a_unit_by_what_they_unpack_to(tmp_path):
    content = gzip.compress(b"one")
    for name in "abcde":
        (tmp_path / name).write_bytes(content)
    units = plan(f"text:{tmp_path}/*", unit_bytes=2 * 4 * len(content))
    assert [len(unit) for unit in units] == [2, 2, 1]


def test_a_book_is_never_cut(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n\nthree")
    assert ranges(plan(f"book:{tmp_path}/*", unit_bytes=2)) == [[("a.txt", 0, None)]]


def test_small_members_of_an_archive_share_a_unit_and_are_handed_over_packed(tmp_path):
    inner = lzma.compress(tar({"1.txt": b"one", "2.txt": b"two"}))
    (tmp_path / "a.tar").write_bytes(tar({"i.tar.xz": inner, "j.tar.xz": inner, "k.tar.xz": inner}))
    units = plan(f"openwebtext:{tmp_path}/*", unit_bytes=2 * len(inner))
    assert [[(part.member, part.content) for part in unit] for unit in units] == [
        [("i.tar.xz", inner), ("j.tar.xz", inner)],
        [("k.tar.xz", inner)],
    ]
    assert read(units) == [["one"], ["two"]] * 3


def test_sentences_in_the_rows_of_a_table_are_joined(tmp_path):
    rows = [f"Sentence {i}." for i in range(8)]
    (tmp_path / "a.parquet").write_bytes(table_of("parquet", rows))
    units = plan(f"sentences:{tmp_path}/a.parquet", unit_bytes=1)
    assert ranges(units) == [[("a.parquet", 0, 3)], [("a.parquet", 3, 6)], [("a.parquet", 6, 8)]]
    assert read(units) == [rows[:3], rows[3:6], rows[6:]]


def test_an_empty_archive_and_an_empty_file_hold_nothing(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(tar({"empty": b""})))
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "c").write_bytes(gzip.compress(b""))
    units = plan(f"text:{tmp_path}/*", unit_bytes=1)
    assert read(units) == []
    assert sum(map(unit_num_bytes, units)) == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_file_that_vanished_is_a_user_error(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    units = plan(f"text:{tmp_path}/*", unit_bytes=4)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(UserError, match="cannot read .*a.txt: No such file"):
        read(units)


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "xz", "zstd"])
@pytest.mark.parametrize("unit_bytes", [10, 100_000], ids=["handed over", "unpacked by the worker"])
@pytest.mark.parametrize("format_name", ["text", "wikiextractor", "wikipedia", "jsonl", "book"])
def test_a_compressed_file_that_is_cut_off_gives_what_is_whole(tmp_path, packing, unit_bytes, format_name):
    content = CONTENTS[format_name]
    cut = content.find(b" 14 ")  # in the midst of the second line of the seventh document
    packed = COMPRESS[packing](content[:cut]) + COMPRESS[packing](content[cut:])[:5]
    (tmp_path / "a").write_bytes(packed)
    report = ReadReport()
    found = read(plan(f"{format_name}:{tmp_path}/a", unit_bytes), report)
    assert report.truncations == [f"{tmp_path}/a is cut off at byte {len(packed)}: its {packing} data goes on there"]
    if format_name == "book":
        assert "\n".join(found[0]).endswith("book 12 é book 13 é")
    else:
        # Of the unfinished document, plain text keeps the lines that are whole.
        unfinished = [["text 13 é"]] if format_name == "text" else []
        assert found == documents_of(format_name)[:6] + unfinished


def test_an_archive_that_is_cut_off_is_reported_once(tmp_path):
    content = tar({"1": b"one\n", "2": b"two\n" * 500, "3": b"three\n"})[:2000]
    (tmp_path / "a.tar").write_bytes(content)
    report = ReadReport()
    assert read(plan(f"openwebtext:{tmp_path}/a.tar", unit_bytes=4000), report)[0] == ["one"]
    (message,) = report.truncations
    assert message.startswith(f"{tmp_path}/a.tar is cut off")


def test_a_plain_file_of_articles_that_is_cut_off_is_reported(tmp_path):
    (tmp_path / "a").write_bytes(CONTENTS["wikiextractor"][:-20])
    report = ReadReport()
    assert read(plan(f"wikiextractor:{tmp_path}/a", unit_bytes=30), report) == texts_of("wikiextractor")[:-1]
    (message,) = report.truncations
    assert message.startswith(f"{tmp_path}/a is cut off at byte {len(CONTENTS['wikiextractor']) - 20}")


def test_damaged_data_in_an_archive_is_a_user_error_that_names_the_member(tmp_path):
    damaged = bytearray(gzip.compress(b"one two three four five" * 100))
    damaged[15:25] = b"x" * 10
    (tmp_path / "a.tar").write_bytes(tar({"1.gz": gzip.compress(b"one"), "2.gz": bytes(damaged)}))
    with pytest.raises(UserError, match="a.tar/2.gz is damaged: its gzip data is wrong before byte"):
        read(plan(f"text:{tmp_path}/a.tar", unit_bytes=4000))


def test_invalid_utf_8_is_named_by_its_byte_in_the_whole_file(tmp_path):
    content = b"one\r\n\r\ntwo\r\n\r\n" * 50 + b"thr\xffee\r\n"
    for name, compress in COMPRESS.items():
        (tmp_path / name).write_bytes(compress(content))
        place = name if name == "plain" else rf"{name} \(unpacked\)"
        with pytest.raises(UserError, match=f"/{place} is not UTF-8: byte 0xff at offset 703 "):
            read(plan(f"text:{tmp_path}/{name}", unit_bytes=20))


def test_a_remote_file_is_read_in_parts():
    import fsspec

    fsspec.filesystem("memory").pipe({"/units/a": CONTENTS["text"], "/units/b": gzip.compress(CONTENTS["text"])})
    assert read(plan("text:memory://units/*", unit_bytes=40)) == texts_of("text") * 2


def _lines_of_text(num_lines: int) -> Iterator[bytes]:
    for i in range(num_lines):
        # Words that do not vanish when they are compressed.
        yield b"line %07d " % i + random.randbytes(495).hex(" ", 4).encode()[:989] + b"\n"


@pytest.mark.parametrize("packing", ["plain", "gzip"])
@pytest.mark.parametrize("format_name", ["text", pytest.param("book", marks=pytest.mark.slow), "openwebtext"])
def test_a_document_without_end_is_read_in_bounded_memory_whatever_the_units(tmp_path, packing, format_name):
    """60 MB, which stands for any size: nothing holds more than a few units or documents."""
    open_file = gzip.open if packing == "gzip" else open
    random.seed(5)
    with open_file(tmp_path / "a", "wb") as file:
        file.writelines(_lines_of_text(60_000))
    files = find_files([f"{format_name}:{tmp_path}/a"])
    found, num_parts = [], []
    for unit_bytes in (2**20, 2**23):
        report = ReadReport()
        tracemalloc.start()
        units = []
        documents = []
        for unit in plan_units(files, unit_bytes, OPTIONS):
            units.append(unit_num_bytes(unit))
            documents += [
                (len(document.lines), document.lines[0][:12]) for document in read_unit(unit, OPTIONS, report)
            ]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert report.num_documents_cut == len(documents) - 1
        assert sum(units) == files[0].num_bytes
        assert peak < 32e6 + 3 * unit_bytes
        found.append(documents)
        num_parts.append(len(units))
    assert found[0] == found[1]
    assert num_parts[0] == len(documents) > num_parts[1] > 1
    if format_name != "book":
        assert sum(num_lines for num_lines, _ in documents) == 60_000
        assert {num_lines for num_lines, _ in documents[:-1]} == {MAX_DOCUMENT_CHARACTERS // 1002}


def test_a_line_without_end_is_read_in_bounded_memory_whatever_the_units(tmp_path):
    with open(tmp_path / "a", "wb") as file:
        file.writelines(b"w%07d " % i for i in range(4_000_000))
    lengths = []
    for unit_bytes in (2**20, 2**24):
        tracemalloc.start()
        lengths.append([len(lines[0]) for lines in read(plan(f"text:{tmp_path}/a", unit_bytes))])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 72e6
    assert lengths[0] == lengths[1]
    assert max(lengths[0]) <= MAX_DOCUMENT_CHARACTERS
    # Cut after a space, which is dropped there.
    assert sum(lengths[0]) == 9 * 4_000_000 - len(lengths[0])


def test_a_document_that_is_not_handed_over_is_read_by_the_worker(tmp_path):
    documents = [["short"], [f"long {i * i}" for i in range(60_000)], ["short"]]
    packed = gzip.compress(content_of("wikiextractor", documents))
    (tmp_path / "a").write_bytes(tar({"1": content_of("wikiextractor", documents[:1]), "2": packed}))
    units = plan(f"wikiextractor:{tmp_path}/a", unit_bytes=100)
    assert None in [part.content for unit in units for part in unit]
    assert read(units) == [documents[0], *documents]
