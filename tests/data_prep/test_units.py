"""Units of work: whatever their size and the packing of the files, the documents are the same."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.readers import FORMATS
from data_prep.units import WorkUnit, unit_num_bytes


def ranges(units: list[WorkUnit]) -> list[list[tuple[str, int, int | None]]]:
    return [[(part.file.name, part.begin, part.end) for part in unit] for unit in units]


@pytest.fixture(scope="module")
def packings(packers, tar) -> Callable[[bytes], dict[str, bytes]]:
    """`packings(content)`: the content in every container, and in several."""

    def build(content: bytes) -> dict[str, bytes]:
        packed = {name: pack(content) for name, pack in packers.items()}
        packed["tar"] = tar({"a/1": content, "a/2": gzip.compress(content)})
        packed["tar in tar"] = gzip.compress(
            tar({"1.tar.xz": lzma.compress(tar({"a": content, "b": content})), "2": content})
        )
        return packed

    return build


NUM_COPIES = {"tar": 2, "tar in tar": 3}


@pytest.fixture(scope="module")
def packed_files(packings, content_of, tmp_path_factory) -> dict[tuple[str, str], Path]:
    directory = tmp_path_factory.mktemp("packed")
    paths = {}
    for format_name in FORMATS:
        for packing, packed in packings(content_of(format_name)).items():
            paths[format_name, packing] = directory / f"{format_name} in {packing}"
            paths[format_name, packing].write_bytes(packed)
    return paths


@pytest.mark.parametrize("format_name", FORMATS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(unit_bytes=st.one_of(st.integers(1, 60), st.integers(1, 2000)))
def test_the_size_of_the_units_and_the_packing_do_not_change_the_documents(
    packed_files, plan, read_units, packings, format_name, unit_bytes
):
    expected = read_units(plan(f"{format_name}:{packed_files[format_name, 'plain']}", unit_bytes=2**20))
    assert len(expected) >= 1
    for packing in packings(b""):
        path = packed_files[format_name, packing]
        units = plan(f"{format_name}:{path}", unit_bytes)
        assert read_units(units) == expected * NUM_COPIES.get(packing, 1), packing
        assert sum(map(unit_num_bytes, units)) == path.stat().st_size, packing
        assert plan(f"{format_name}:{path}", unit_bytes) == units, packing


@pytest.mark.parametrize("format_name", ["text", "sentences", "book", "openwebtext"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet="ab é\u00a0\ufeff\r\n\n\n", max_size=50),
    unit_bytes=st.integers(1, 30),
    packing=st.sampled_from(["plain", "gzip"]),
)
def test_the_size_of_the_units_changes_nothing_whatever_the_lines(
    plan, read_units, packers, tmp_path, format_name, text, unit_bytes, packing
):
    # An empty file is refused, so there is a first line.
    content = f"first\n{text}".encode()
    (tmp_path / "whole").write_bytes(content)
    (tmp_path / "cut").write_bytes(packers[packing](content))
    expected = read_units(plan(f"{format_name}:{tmp_path}/whole", unit_bytes=2**20))
    assert read_units(plan(f"{format_name}:{tmp_path}/cut", unit_bytes)) == expected


@pytest.mark.parametrize("format_name", ["text", "sentences", "wikiextractor", "wikipedia", "jsonl"])
@pytest.mark.parametrize("packing", ["plain", "xz"])
def test_the_documents_are_those_that_were_written(
    packed_files, plan, read_units, written_documents, format_name, packing
):
    found = read_units(plan(f"{format_name}:{packed_files[format_name, packing]}", unit_bytes=50))
    assert found == written_documents(format_name)


CUTTABLE = ["text", "sentences", "wikiextractor", "wikipedia", "jsonl"]


@pytest.mark.parametrize("format_name", [*CUTTABLE, "parquet", "arrow"])
def test_a_big_plain_file_is_cut(packed_files, plan, format_name):
    assert len(plan(f"{format_name}:{packed_files[format_name, 'plain']}", unit_bytes=40)) > 3


@pytest.mark.parametrize("format_name", CUTTABLE)
def test_a_big_compressed_file_is_handed_over_in_pieces(packed_files, plan, content_of, format_name):
    units = plan(f"{format_name}:{packed_files[format_name, 'zstd']}", unit_bytes=40)
    assert len(units) > 3
    assert b"".join(part.content for unit in units for part in unit) == content_of(format_name)
    assert [part.is_end for unit in units for part in unit] == [False] * (len(units) - 1) + [True]


def test_wikiextractor_json_is_cut_too(plan, read_units, written_documents, content_of, tmp_path):
    (tmp_path / "a").write_bytes(content_of("jsonl"))
    units = plan(f"wikiextractor:{tmp_path}/a", unit_bytes=40)
    assert len(units) > 3
    assert read_units(units) == written_documents("jsonl")


def test_a_line_that_looks_like_json_does_not_end_an_article(plan, read_units, tmp_path):
    content = '<doc id="1">\none\n{"text": "no article"}\ntwo\n</doc>\n' * 20
    (tmp_path / "a").write_text(content)
    units = plan(f"wikiextractor:{tmp_path}/a", unit_bytes=15)
    assert read_units(units) == [["one", '{"text": "no article"}', "two"]] * 20


def test_small_files_share_a_unit_and_big_ones_are_cut_between_documents(plan, tmp_path):
    for name, content in {"a": "1", "b": "22", "c": "one\n\ntwo\ntwo\n\nthree", "d": "4"}.items():
        (tmp_path / f"{name}.txt").write_text(content)
    assert ranges(plan(f"text:{tmp_path}/*", unit_bytes=7)) == [
        [("a.txt", 0, None), ("b.txt", 0, None)],
        [("c.txt", 0, 13)],
        [("c.txt", 13, 19), ("d.txt", 0, None)],
    ]


def test_small_compressed_files_share_a_unit_by_what_they_unpack_to(plan, tmp_path):
    content = gzip.compress(b"one")
    for name in "abcde":
        (tmp_path / name).write_bytes(content)
    units = plan(f"text:{tmp_path}/*", unit_bytes=2 * 4 * len(content))
    assert [len(unit) for unit in units] == [2, 2, 1]


def test_a_book_is_never_cut(plan, tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n\nthree")
    assert ranges(plan(f"book:{tmp_path}/*", unit_bytes=2)) == [[("a.txt", 0, None)]]


def test_small_members_of_an_archive_share_a_unit_and_are_handed_over_packed(plan, read_units, tar, tmp_path):
    inner = lzma.compress(tar({"1.txt": b"one", "2.txt": b"two"}))
    (tmp_path / "a.tar").write_bytes(tar({"i.tar.xz": inner, "j.tar.xz": inner, "k.tar.xz": inner}))
    units = plan(f"openwebtext:{tmp_path}/*", unit_bytes=2 * len(inner))
    assert [[(part.member, part.content) for part in unit] for unit in units] == [
        [("i.tar.xz", inner), ("j.tar.xz", inner)],
        [("k.tar.xz", inner)],
    ]
    assert read_units(units) == [["one"], ["two"]] * 3


def test_sentences_in_the_rows_of_a_table_are_joined(plan, read_units, content_of, tmp_path):
    rows = [f"Sentence {i}." for i in range(8)]
    (tmp_path / "a.parquet").write_bytes(content_of("parquet", [[row] for row in rows]))
    units = plan(f"sentences:{tmp_path}/a.parquet", unit_bytes=1)
    assert ranges(units) == [[("a.parquet", 0, 3)], [("a.parquet", 3, 6)], [("a.parquet", 6, 8)]]
    assert read_units(units) == [rows[:3], rows[3:6], rows[6:]]


def test_an_empty_archive_and_an_empty_file_hold_nothing(plan, read_units, tar, tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(tar({"empty": b""})))
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "c").write_bytes(gzip.compress(b""))
    units = plan(f"text:{tmp_path}/*", unit_bytes=1)
    assert read_units(units) == []
    assert sum(map(unit_num_bytes, units)) == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_remote_file_is_read_in_parts(plan, read_units, written_documents, content_of):
    import fsspec

    fsspec.filesystem("memory").pipe({"/units/a": content_of("text"), "/units/b": gzip.compress(content_of("text"))})
    assert read_units(plan("text:memory://units/*", unit_bytes=40)) == written_documents("text") * 2


def test_a_document_that_is_not_handed_over_is_read_by_the_worker(plan, read_units, content_of, tar, tmp_path):
    documents = [["short"], [f"long {i * i}" for i in range(60_000)], ["short"]]
    packed = gzip.compress(content_of("wikiextractor", documents))
    (tmp_path / "a").write_bytes(tar({"1": content_of("wikiextractor", documents[:1]), "2": packed}))
    units = plan(f"wikiextractor:{tmp_path}/a", unit_bytes=100)
    assert None in [part.content for unit in units for part in unit]
    assert read_units(units) == [documents[0], *documents]
