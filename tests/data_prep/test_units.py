"""Work units: their size and the packing of the files do not change the documents; bad files are named."""

import gzip
import lzma
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.counts import ReadCounts, named_faults, total_of
from data_prep.readers import FORMATS
from data_prep.sources import find_files
from data_prep.units import Unit, plan_units, read_unit
from electra_tf.data.manifest import DatasetSettings
from tests.data_prep.reading import documents_of


@pytest.fixture
def read_all():
    """`read_all(units)`: the lines of the documents, and the counts."""

    def read(units: list[Unit]) -> tuple[list[list[str]], ReadCounts]:
        counts = [ReadCounts() for _ in units]
        texts = [
            list(documents_of(read_unit(unit, DatasetSettings()), each))
            for unit, each in zip(units, counts, strict=True)
        ]
        return [document.lines for of_unit in texts for document in of_unit], total_of(counts)

    return read


def num_bytes_of(units: list[Unit]) -> int:
    return sum(part.num_bytes for unit in units for part in unit)


def ranges(units: list[Unit]) -> list[list[tuple[str, int, int | None]]]:
    return [[(part.file.name, part.begin, part.end) for part in unit] for unit in units]


@pytest.fixture(scope="module")
def packings(packers, tar) -> Callable[[bytes], dict[str, bytes]]:
    """`packings(content)`: the content in every compression and in archives."""

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
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(unit_bytes=st.one_of(st.integers(1, 60), st.integers(1, 2000)))
def test_the_size_of_the_units_and_the_packing_do_not_change_the_documents(
    packed_files, plan, read_units, packings, written_documents, format_name, unit_bytes
):
    expected = read_units(plan(f"{format_name}:{packed_files[format_name, 'plain']}", unit_bytes=2**20))
    assert len(expected) >= 1
    if format_name in CUTTABLE:
        assert expected == written_documents(format_name)
    for packing in packings(b""):
        path = packed_files[format_name, packing]
        units = plan(f"{format_name}:{path}", unit_bytes)
        assert read_units(units) == expected * NUM_COPIES.get(packing, 1), packing
        assert num_bytes_of(units) == path.stat().st_size, packing
        assert plan(f"{format_name}:{path}", unit_bytes) == units, packing


@pytest.mark.parametrize("format_name", ["text", "sentences", "book", "openwebtext"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet="ab é\u00a0\ufeff\r\n\n\n", max_size=50),
    unit_bytes=st.integers(1, 30),
    packing=st.sampled_from(["plain", "gzip"]),
)
def test_the_size_of_the_units_does_not_change_the_documents_of_any_text(
    plan, read_units, packers, tmp_path, format_name, text, unit_bytes, packing
):
    # Empty files are refused.
    content = f"first\n{text}".encode()
    (tmp_path / "whole").write_bytes(content)
    (tmp_path / "cut").write_bytes(packers[packing](content))
    expected = read_units(plan(f"{format_name}:{tmp_path}/whole", unit_bytes=2**20))
    assert read_units(plan(f"{format_name}:{tmp_path}/cut", unit_bytes)) == expected


@pytest.mark.parametrize("packing", ["plain", "bzip2 streams"])
@pytest.mark.parametrize("unit_bytes", [20, 100, 400])
def test_a_document_that_is_too_long_is_cut_at_the_same_lines_in_any_division(
    plan, read_units, packers, tmp_path, monkeypatch, packing, unit_bytes
):
    monkeypatch.setattr("data_prep.readers.lines.MAX_DOCUMENT_CHARACTERS", 20)  # three lines of this text
    texts = [[f"{name} {i:04d}" for i in range(num_lines)] for name, num_lines in (("a", 80), ("b", 2), ("c", 31))]
    (tmp_path / "a").write_bytes(packers[packing]("\n\n".join(map("\n".join, texts)).encode()))
    counts = ReadCounts()
    documents = read_units(plan(f"text:{tmp_path}/a", unit_bytes), counts)
    assert documents == [text[i : i + 3] for text in texts for i in range(0, len(text), 3)]
    assert counts.num_documents_cut == 26 + 10


CUTTABLE = ["text", "sentences", "wikiextractor", "wikipedia", "jsonl"]


def test_a_big_wikiextractor_json_file_is_split(plan, read_units, written_documents, content_of, tmp_path):
    (tmp_path / "a").write_bytes(content_of("jsonl"))
    units = plan(f"wikiextractor:{tmp_path}/a", unit_bytes=40)
    assert len(units) > 3
    assert read_units(units) == written_documents("jsonl")


def test_small_files_share_a_unit_and_big_ones_are_cut_between_documents(plan, tmp_path):
    for name, content in {"a": "1", "b": "22", "c": "one\n\ntwo\ntwo\n\nthree", "d": "4"}.items():
        (tmp_path / f"{name}.txt").write_text(content)
    assert ranges(plan(f"text:{tmp_path}/*", unit_bytes=7)) == [
        [("a.txt", 0, None), ("b.txt", 0, None)],
        [("c.txt", 0, 13)],
        [("c.txt", 13, 19)],
        [("d.txt", 0, None)],
    ]


def test_an_empty_archive_and_an_empty_file_give_no_documents(plan, read_units, tar, tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(tar({"empty": b""})))
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "c").write_bytes(gzip.compress(b""))
    units = plan(f"text:{tmp_path}/*", unit_bytes=1)
    assert read_units(units) == []
    assert num_bytes_of(units) == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_remote_file_is_read_in_parts(plan, read_units, written_documents, content_of):
    import fsspec

    fsspec.filesystem("memory").pipe({"/units/a": content_of("text"), "/units/b": gzip.compress(content_of("text"))})
    assert read_units(plan("text:memory://units/*", unit_bytes=40)) == written_documents("text") * 2


@pytest.mark.parametrize("unit_bytes", [1, 300, 1000])
@pytest.mark.parametrize(
    ("packing", "tag"), [("plain", b"<page>"), ("bzip2 streams", b"<page >"), ("plain", b"<page id=''>")]
)
def test_a_dump_in_one_line_is_cut_at_pages(plan, read_units, content_of, packers, tmp_path, packing, unit_bytes, tag):
    content = content_of("wikipedia").replace(b"\n\n", b"&#10;&#10;").replace(b"\n", b"").replace(b"<page>", tag)
    (tmp_path / "a").write_bytes(packers[packing](content))
    units = plan(f"wikipedia:{tmp_path}/a", unit_bytes)
    assert read_units(units) == read_units(plan(f"wikipedia:{tmp_path}/a", 10**6))
    assert packing != "plain" or len(units) == {1: 10, 300: 4, 1000: 2}[unit_bytes]


@pytest.mark.parametrize(
    ("format_name", "packing"), [("text", "gzip"), ("wikipedia", "bzip2"), ("jsonl", "xz"), ("book", "zstd")]
)
@pytest.mark.parametrize("unit_bytes", [10, 100_000], ids=["in ranges", "whole"])
def test_no_part_of_a_document_is_read_at_the_end_of_a_truncated_file(
    plan, read_all, content_of, packers, tmp_path, packing, unit_bytes, format_name
):
    (tmp_path / "a").write_bytes(packers[packing](content_of(format_name))[:-5])
    (tmp_path / "b").write_bytes(content_of(format_name, [["one", "Two."]]))
    whole = read_all(plan(f"{format_name}:{tmp_path}/b", unit_bytes))[0]
    whole += read_all(
        [(each,) for unit in plan_whole(content_of(format_name), format_name, tmp_path) for each in unit]
    )[0]
    documents, counts = read_all(plan(f"{format_name}:{tmp_path}/[ab]", unit_bytes))
    assert documents[-1:] == whole[:1] and all(document in whole for document in documents)
    assert counts.num_documents_skipped == {"damaged files": 1}
    assert "is damaged: " in counts.faulty_files[f"{tmp_path}/a"][2]


def plan_whole(content: bytes, format_name: str, directory: Path) -> list[Unit]:
    (directory / "whole").write_bytes(content)
    return list(plan_units(find_files([f"{format_name}:{directory}/whole"]), 10**6, DatasetSettings()))


@pytest.mark.parametrize("unit_bytes", [1, 4000])
def test_of_a_damaged_archive_the_files_before_the_damage_are_read(plan, read_all, tar, tmp_path, unit_bytes):
    damaged = bytearray(gzip.compress(b"one two three four five" * 100))
    damaged[15:25] = b"x" * 10
    (tmp_path / "a.tar").write_bytes(tar({"1.gz": gzip.compress(b"one"), "2.gz": bytes(damaged), "3": b"three"}))
    (tmp_path / "b.txt").write_bytes(b"two")
    documents, counts = read_all(plan(f"text:{tmp_path}/*", unit_bytes))
    assert documents == [["one"], ["two"]]
    assert list(counts.faulty_files) == [f"{tmp_path}/a.tar"]


@pytest.mark.parametrize("unit_bytes", [20, 10_000])
def test_invalid_utf_8_is_named_by_its_byte_and_ends_its_range(plan, read_all, tmp_path, unit_bytes):
    (tmp_path / "a").write_bytes(b"one\r\n\r\ntwo\r\n\r\n" * 50 + b"thr\xffee\r\n\r\n" + b"four\n\n" * 20)
    documents, counts = read_all(plan(f"text:{tmp_path}/a", unit_bytes))
    assert len(documents) == (118 if unit_bytes == 20 else 100)
    assert counts.num_documents_skipped == {"files that are not UTF-8": 1}
    (fault,) = named_faults(counts)["files that are not UTF-8"]
    assert fault.startswith(f"{tmp_path}/a is not UTF-8: byte 0xff at offset 703;")


@pytest.mark.parametrize("unit_bytes", [20, 100, 10_000])
@pytest.mark.parametrize(
    "format_name", ["text", "sentences", "book", "openwebtext", "wikipedia", "wikiextractor", "jsonl"]
)
def test_the_text_before_a_fault_at_the_end_is_kept_whole_in_units_of_any_size(
    plan, read_units, content_of, tmp_path, format_name, unit_bytes
):
    documents = [[f"{i} é", f"{i} b"] for i in range(7)]
    (tmp_path / "a").write_bytes(content_of(format_name, documents))
    content = content_of(format_name, documents).removesuffix(b"</mediawiki>\n")
    (tmp_path / "b").write_bytes(content + b"<page> half a line \xff and more")
    counts = ReadCounts()
    expected = read_units(plan(f"{format_name}:{tmp_path}/a", 10_000))
    assert read_units(plan(f"{format_name}:{tmp_path}/b", unit_bytes), counts) == expected
    assert list(counts.faulty_files) == [f"{tmp_path}/b"] and not counts.faulty_records


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "bzip2 streams", "xz", "zstd"])
@pytest.mark.parametrize("format_name", ["text", "book", "wikipedia", "wikiextractor", "jsonl"])
def test_the_text_of_a_cut_file_is_read_up_to_the_cut(
    plan, read_units, content_of, packers, tmp_path, format_name, packing
):
    content = content_of(format_name)
    (tmp_path / "whole").write_bytes(content)
    (tmp_path / "cut").write_bytes(packers[packing](content) + packers[packing](content[:25])[:-2])
    counts = ReadCounts()
    documents = read_units(plan(f"{format_name}:{tmp_path}/cut", 10_000), counts)
    if format_name != "book":
        assert documents[:8] == read_units(plan(f"{format_name}:{tmp_path}/whole", 10_000))[:8]
    assert documents and list(counts.faulty_files) == [f"{tmp_path}/cut"]


def test_of_a_cut_archive_the_files_before_the_cut_are_read(plan, read_units, tar, tmp_path):
    texts = ["".join(map(chr, random.Random(i).choices(range(97, 123), k=900))) for i in range(9)]
    content = gzip.compress(tar({str(i): f"{text}\n\n{i}".encode() for i, text in enumerate(texts)}))
    (tmp_path / "a.tar.gz").write_bytes(content[: len(content) // 2])
    counts = ReadCounts()
    documents = read_units(plan(f"text:{tmp_path}/a.tar.gz", 10_000), counts)
    assert documents[:6] == [document for i in range(3) for document in ([texts[i]], [str(i)])]
    assert list(counts.faulty_files) == [f"{tmp_path}/a.tar.gz"]


@pytest.mark.parametrize("packing", ["plain", "bzip2", "bzip2 streams"])
@pytest.mark.parametrize("begin", ["<html>", "%PDF-1.4", "{\\rtf1", '["a", 1]', '{\n"a": 1', "PAR1 of", "\ufeffa"])
def test_only_the_beginning_of_a_file_shows_its_format(plan, read_units, packers, tmp_path, begin, packing):
    (tmp_path / "a").write_bytes(packers[packing]("\n\n".join(["first", *[begin] * 90]).encode()))
    expected = read_units(plan(f"text:{tmp_path}/a", 10**6))
    assert len(expected) == 91
    for unit_bytes in (4, 30, 100):
        assert read_units(plan(f"text:{tmp_path}/a", unit_bytes)) == expected


@pytest.mark.parametrize("unit_bytes", [20, 60, 10_000])
def test_a_faulty_line_of_wikiextractors_json_is_one_record_in_units_of_any_size(
    plan, read_units, tmp_path, unit_bytes
):
    (tmp_path / "a").write_text('{"text": "a"}\n' + 'oops, this is no JSON at all\n{"text": "b"}\n' * 9)
    counts = ReadCounts()
    assert read_units(plan(f"wikiextractor:{tmp_path}/a", unit_bytes), counts) == [["a"], *[["b"]] * 9]
    assert counts.num_documents_skipped == {"lines that are not JSON": 9}


@pytest.mark.parametrize("unit_bytes", [300, 10_000])
def test_a_record_of_a_compressed_file_is_named_by_its_range(plan, read_all, content_of, packers, tmp_path, unit_bytes):
    content = content_of("wikipedia").replace(b"</mediawiki>", b"<page>&</page></mediawiki>")
    (tmp_path / "a").write_bytes(packers["bzip2 streams"](content))
    ((fault,),) = named_faults(read_all(plan(f"wikipedia:{tmp_path}/a", unit_bytes))[1]).values()
    assert fault.startswith(f"{tmp_path}/a" + (" from byte " if unit_bytes == 300 else " at offset "))


@pytest.mark.parametrize("unit_bytes", [1, 30, 10_000])
def test_a_file_in_an_archive_that_is_no_text_is_left_out_alone(plan, read_all, tar, packers, tmp_path, unit_bytes):
    inner = tar({"b": b"two", "c": b"\xff\n\n" * 20, "d": b"a\0" * 99, "e": b"three"})
    (tmp_path / "a.tar").write_bytes(tar({"0": b"P\0\3\4\0\0", "1": b"one", "2.xz": packers["xz"](inner)}))
    documents, counts = read_all(plan(f"text:{tmp_path}/*", unit_bytes))
    assert documents == [["one"], ["two"], ["three"]]
    assert sorted(counts.faulty_files) == [f"{tmp_path}/a.tar/{name}" for name in ("0", "2.xz/c", "2.xz/d")]


@pytest.mark.parametrize("unit_bytes", [1, 10**6])
@pytest.mark.parametrize("format_name", ["parquet", "arrow"])
@pytest.mark.parametrize("damage", ["begin", "last group", "truncated"])
def test_a_damaged_table_in_an_archive_is_left_out_alone(
    plan, read_all, tar, content_of, tmp_path, format_name, damage, unit_bytes
):
    sound = content_of(format_name, [["one"], ["two"]])
    damaged = bytearray(content_of(format_name))
    if damage == "truncated":
        del damaged[len(damaged) // 2 :]
    else:
        begin = 8 if damage == "begin" else damaged.rfind(b" 8 ") - 20
        damaged[begin : begin + 50] = b"\xfe" * 50
    (tmp_path / "a.tar").write_bytes(tar({"1": sound, "2": bytes(damaged), "3": sound}))
    documents, counts = read_all(plan(f"{format_name}:{tmp_path}/a.tar", unit_bytes))
    assert documents[:2] == documents[-2:] == [["one"], ["two"]]
    ((path, (_, reason, description, *_)),) = counts.faulty_files.items()
    assert path == f"{tmp_path}/a.tar/2" and reason == "damaged files" and description.startswith("is damaged: ")


def _lines_of_text(num_lines: int) -> Iterator[bytes]:
    for i in range(num_lines):
        # Random words, which hardly compress.
        yield b"line %07d " % i + random.randbytes(495).hex(" ", 4).encode()[:989] + b"\n"


@pytest.mark.slow
@pytest.mark.parametrize(("format_name", "packing"), [("text", "plain"), ("book", "gzip"), ("openwebtext", "gzip")])
def test_a_document_of_60_mb_is_read_in_bounded_memory_with_any_size_of_units(tmp_path, packing, format_name):
    open_file = gzip.open if packing == "gzip" else open
    random.seed(5)
    with open_file(tmp_path / "a", "wb") as file:
        file.writelines(_lines_of_text(60_000))
    files = find_files([f"{format_name}:{tmp_path}/a"])
    found, num_parts = [], []
    for unit_bytes in (2**20, 2**23):
        counts = ReadCounts()
        tracemalloc.start()
        documents, num_units = [], 0
        for unit in plan_units(files, unit_bytes, DatasetSettings()):
            num_units += 1
            # A loop's variable would hold the last document while the next unit is read.
            read = documents_of(read_unit(unit, DatasetSettings()), counts)
            documents += [(len(each.lines), each.lines[0][:12]) for each in read]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert counts.num_documents_cut == len(documents) - 1
        assert peak < 32e6 + 3 * unit_bytes
        found.append(documents)
        num_parts.append(num_units)
    assert found[0] == found[1]
    assert num_parts == [1, 1]


HEADER = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="fr">
<siteinfo><namespaces>
<namespace key="0" case="first-letter" /><namespace key="14" case="first-letter">Rubrique</namespace>
</namespaces></siteinfo>
"""


def test_each_part_of_an_export_knows_its_header(packings, tmp_path, plan, read_units):
    text = "Au {{s|XIX}} {{inconnu}} siècle.[[Rubrique:X]]"
    pages = [f"<page>\n<title>{i}</title>\n<revision><text>{text}</text></revision>\n</page>\n" for i in range(20)]
    content = (HEADER + "".join(pages) + "</mediawiki>\n").encode()
    for packing, packed in packings(content).items():
        path = tmp_path / packing
        path.write_bytes(packed)
        for unit_bytes in (1, 300, 10**6):
            counts = ReadCounts()
            documents = read_units(plan(f"wikipedia:{path}", unit_bytes), counts)
            assert {line for _, line in documents} == {"Au XIXe siècle siècle."}
            assert len(documents) == 20 * NUM_COPIES.get(packing, 1)
            assert counts.templates_dropped == {"inconnu": len(documents)}
