import gzip
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.counts import ReadCounts, named_faults, total_of
from data_prep.readers import FORMATS
from data_prep.sources import find_files
from data_prep.units import Unit, plan_units, read_unit
from electra_tf.data.manifest import DatasetSettings
from tests.data_prep.reading import documents_of, plan, read_files, read_units
from tests.data_prep.texts import NUM_COPIES, PACKERS, content_of, packings, tar

WHOLE = 2**20  # bytes of a unit
CUTTABLE = [
    *("text", "sentences", "documents", "wikiextractor", "wikipedia", "cirrus", "jsonl"),
    "wikiextractor of jsonl",
]


def num_bytes_of(units: list[Unit]) -> int:
    return sum(part.num_bytes for unit in units for part in unit)


@pytest.fixture(scope="module")
def packed_files(tmp_path_factory) -> dict[tuple[str, str], Path]:
    directory = tmp_path_factory.mktemp("packed")
    paths = {}
    for format_name in FORMATS:
        for packing, packed in packings(content_of(format_name)).items():
            paths[format_name, packing] = directory / f"{format_name} in {packing}"
            paths[format_name, packing].write_bytes(packed)
    return paths


@pytest.mark.parametrize("name", [*FORMATS, "wikiextractor of jsonl"])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(unit_bytes=st.one_of(st.integers(1, 60), st.integers(1, 2000)))
def test_the_size_of_the_units_and_the_packing_do_not_change_the_documents(packed_files, name, unit_bytes):
    format_name, _, of_content = name.partition(" of ")
    paths = {packing: path for (other, packing), path in packed_files.items() if other == (of_content or format_name)}
    expected = read_files(f"{format_name}:{paths['plain']}", WHOLE)
    assert len(expected) == {"documents": 21, "sentences": 7, "book": 1, "openwebtext": 1}.get(name, 9)
    if name in CUTTABLE:
        assert len(plan(f"{format_name}:{paths['plain']}", 40)) > 3
    for packing, path in paths.items():
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
def test_the_size_of_units_does_not_change_the_documents_of_any_text(tmp_path, format_name, text, unit_bytes, packing):
    content = f"first\n{text}".encode()  # empty files are refused
    (tmp_path / "whole").write_bytes(content)
    (tmp_path / "cut").write_bytes(PACKERS[packing](content))
    assert read_files(f"{format_name}:{tmp_path}/cut", unit_bytes) == read_files(
        f"{format_name}:{tmp_path}/whole", WHOLE
    )


@pytest.mark.parametrize("packing", ["plain", "bzip2 streams"])
@pytest.mark.parametrize("unit_bytes", [20, 100, 400])
def test_a_too_long_document_is_cut_at_the_same_lines_in_any_division(tmp_path, monkeypatch, packing, unit_bytes):
    monkeypatch.setattr("data_prep.readers.lines.MAX_DOCUMENT_CHARACTERS", 20)  # three lines of this text
    texts = [[f"{name} {i:04d}" for i in range(num_lines)] for name, num_lines in (("a", 80), ("b", 2), ("c", 31))]
    (tmp_path / "a").write_bytes(PACKERS[packing]("\n\n".join(map("\n".join, texts)).encode()))
    counts = ReadCounts()
    documents = read_files(f"text:{tmp_path}/a", unit_bytes, counts)
    assert documents == [text[i : i + 3] for text in texts for i in range(0, len(text), 3)]
    assert counts.num_documents_cut == 26 + 10


def test_small_files_share_a_unit_and_big_ones_are_cut_between_documents(tmp_path):
    for name, content in {"a": "1", "b": "22", "c": "one\n\ntwo\ntwo\n\nthree", "d": "4"}.items():
        (tmp_path / f"{name}.txt").write_text(content)
    units = plan(f"text:{tmp_path}/*", unit_bytes=7)
    assert [[(part.file.name, part.begin, part.end) for part in unit] for unit in units] == [
        [("a.txt", 0, None), ("b.txt", 0, None)],
        [("c.txt", 0, 13)],
        [("c.txt", 13, 19)],
        [("d.txt", 0, None)],
    ]


def test_an_empty_archive_and_an_empty_file_give_no_documents(tmp_path):
    for name, content in {"a": gzip.compress(tar({"empty": b""})), "b": b"", "c": gzip.compress(b"")}.items():
        (tmp_path / name).write_bytes(content)
    units = plan(f"text:{tmp_path}/*", unit_bytes=1)
    assert read_units(units) == []
    assert num_bytes_of(units) == sum(path.stat().st_size for path in tmp_path.iterdir())


@pytest.mark.parametrize("unit_bytes", [1, 300, 1000])
@pytest.mark.parametrize(
    ("packing", "tag"), [("plain", b"<page>"), ("bzip2 streams", b"<page >"), ("plain", b"<page id=''>")]
)
def test_a_dump_in_one_line_is_cut_at_pages(tmp_path, packing, unit_bytes, tag):
    content = content_of("wikipedia").replace(b"\n\n", b"&#10;&#10;").replace(b"\n", b"").replace(b"<page>", tag)
    (tmp_path / "a").write_bytes(PACKERS[packing](content))
    units = plan(f"wikipedia:{tmp_path}/a", unit_bytes)
    assert read_units(units) == read_files(f"wikipedia:{tmp_path}/a", WHOLE)
    assert packing != "plain" or len(units) == {1: 10, 300: 4, 1000: 2}[unit_bytes]


@pytest.mark.parametrize(
    ("format_name", "packing"), [("text", "gzip"), ("wikipedia", "bzip2"), ("jsonl", "xz"), ("book", "zstd")]
)
@pytest.mark.parametrize("unit_bytes", [10, 100_000], ids=["in ranges", "whole"])
def test_no_part_of_a_document_is_read_at_the_end_of_a_truncated_file(tmp_path, packing, unit_bytes, format_name):
    (tmp_path / "a").write_bytes(PACKERS[packing](content_of(format_name))[:-5])
    (tmp_path / "b").write_bytes(content_of(format_name, [["one", "Two."]]))
    (tmp_path / "whole").write_bytes(content_of(format_name))
    last = read_files(f"{format_name}:{tmp_path}/b", unit_bytes)
    whole = read_files(f"{format_name}:{tmp_path}/whole", WHOLE)
    counts = ReadCounts()
    *documents, end = read_files(f"{format_name}:{tmp_path}/[ab]", unit_bytes, counts)
    assert [end] == last and all(document in whole for document in documents)
    assert packing not in ("gzip", "xz") or documents[:8] == whole[:8]
    assert total_of([counts]).num_documents_skipped == {"damaged files": 1}
    assert "is damaged: " in counts.faulty_files[f"{tmp_path}/a"][2]


@pytest.mark.parametrize("unit_bytes", [1, 4000])
@pytest.mark.parametrize("damage", ["in a file", "cut"])
def test_of_a_damaged_archive_the_files_before_the_damage_are_read(tmp_path, damage, unit_bytes):
    text = "".join(random.Random(1).choices("abcdefgh", k=9000)).encode()
    member = bytearray(gzip.compress(text))
    if damage == "in a file":
        member[15:25] = b"x" * 10
    archive = tar({"1.gz": gzip.compress(b"one"), "2.gz": bytes(member), "3": b"three"})
    (tmp_path / "a.tar").write_bytes(gzip.compress(archive)[:3000] if damage == "cut" else archive)
    (tmp_path / "b.txt").write_bytes(b"two")
    counts = ReadCounts()
    documents = read_files(f"text:{tmp_path}/*", unit_bytes, counts)
    assert documents == [["one"], ["two"]]
    assert list(counts.faulty_files) == [f"{tmp_path}/a.tar"]


@pytest.mark.parametrize("unit_bytes", [20, 10_000])
def test_invalid_utf_8_is_named_by_its_byte_and_ends_its_range(tmp_path, unit_bytes):
    (tmp_path / "a").write_bytes(b"one\r\n\r\ntwo\r\n\r\n" * 50 + b"thr\xffee\r\n\r\n" + b"four\n\n" * 20)
    counts = ReadCounts()
    documents = read_files(f"text:{tmp_path}/a", unit_bytes, counts)
    assert len(documents) == (118 if unit_bytes == 20 else 100)
    ((fault,),) = named_faults(counts).values()
    assert fault.startswith(f"{tmp_path}/a is not UTF-8: byte 0xff at offset 703;")


@pytest.mark.parametrize("unit_bytes", [20, 100, 10_000])
@pytest.mark.parametrize("format_name", [name for name in FORMATS if name not in ("parquet", "arrow")])
def test_the_text_before_a_fault_at_the_end_is_kept_whole_in_units_of_any_size(tmp_path, format_name, unit_bytes):
    content, counts = content_of(format_name, [[f"{i} é", f"{i} b"] for i in range(7)]), ReadCounts()
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_bytes(content.removesuffix(b"</mediawiki>\n") + b"<page> half a line \xff and more")
    expected = read_files(f"{format_name}:{tmp_path}/a", 10_000)
    assert read_files(f"{format_name}:{tmp_path}/b", unit_bytes, counts) == expected
    assert list(counts.faulty_files) == [f"{tmp_path}/b"] and not counts.faulty_records


@pytest.mark.parametrize("packing", ["plain", "bzip2", "bzip2 streams"])
@pytest.mark.parametrize("begin", ["<html>", "%PDF-1.4", "{\\rtf1", '["a", 1]', '{\n"a": 1', "PAR1 of", "\ufeffa"])
def test_only_the_beginning_of_a_file_shows_its_format(tmp_path, begin, packing):
    (tmp_path / "a").write_bytes(PACKERS[packing]("\n\n".join(["first", *[begin] * 90]).encode()))
    expected = read_files(f"text:{tmp_path}/a", WHOLE)
    assert len(expected) == 91
    for unit_bytes in (4, 30, 100):
        assert read_files(f"text:{tmp_path}/a", unit_bytes) == expected


@pytest.mark.parametrize("unit_bytes", [20, 60, 10_000])
def test_a_faulty_line_of_wikiextractors_json_is_one_record_in_units_of_any_size(tmp_path, unit_bytes):
    (tmp_path / "a").write_text('{"text": "a"}\n' + 'oops, this is no JSON at all\n{"text": "b"}\n' * 9)
    counts = ReadCounts()
    assert read_files(f"wikiextractor:{tmp_path}/a", unit_bytes, counts) == [["a"], *[["b"]] * 9]
    assert counts.num_documents_skipped == {"lines that are not JSON": 9}


@pytest.mark.parametrize(("unit_bytes", "place"), [(300, " from byte "), (10_000, " at offset ")])
def test_a_record_of_a_compressed_file_is_named_by_its_range(tmp_path, unit_bytes, place):
    content = content_of("wikipedia").replace(b"</mediawiki>", b"<page>&</page></mediawiki>")
    (tmp_path / "a").write_bytes(PACKERS["bzip2 streams"](content))
    counts = ReadCounts()
    read_files(f"wikipedia:{tmp_path}/a", unit_bytes, counts)
    ((fault,),) = named_faults(counts).values()
    assert fault.startswith(f"{tmp_path}/a{place}")


@pytest.mark.parametrize("unit_bytes", [1, 30, 10_000])
def test_a_file_in_an_archive_that_is_no_text_is_left_out_alone(tmp_path, unit_bytes):
    inner = tar({"b": b"two", "c": b"\xff\n\n" * 20, "d": b"a\0" * 99, "e": b"three"})
    (tmp_path / "a.tar").write_bytes(tar({"0": b"P\0\3\4\0\0", "1": b"one", "2.xz": PACKERS["xz"](inner)}))
    counts = ReadCounts()
    assert read_files(f"text:{tmp_path}/*", unit_bytes, counts) == [["one"], ["two"], ["three"]]
    assert sorted(counts.faulty_files) == [f"{tmp_path}/a.tar/{name}" for name in ("0", "2.xz/c", "2.xz/d")]


@pytest.mark.parametrize("unit_bytes", [1, WHOLE])
@pytest.mark.parametrize("format_name", ["parquet", "arrow"])
@pytest.mark.parametrize("damage", ["begin", "last group", "truncated"])
def test_a_damaged_table_in_an_archive_is_left_out_alone(tmp_path, format_name, damage, unit_bytes):
    sound = content_of(format_name, [["one"], ["two"]])
    damaged = bytearray(content_of(format_name))
    if damage == "truncated":
        del damaged[len(damaged) // 2 :]
    else:
        begin = 8 if damage == "begin" else damaged.rfind(b" 8 ") - 20
        damaged[begin : begin + 50] = b"\xfe" * 50
    (tmp_path / "a.tar").write_bytes(tar({"1": sound, "2": bytes(damaged), "3": sound}))
    counts = ReadCounts()
    documents = read_files(f"{format_name}:{tmp_path}/a.tar", unit_bytes, counts)
    assert documents[:2] == documents[-2:] == [["one"], ["two"]]
    ((path, (_, reason, description, *_)),) = counts.faulty_files.items()
    assert path == f"{tmp_path}/a.tar/2" and reason == "damaged files" and description.startswith("is damaged: ")


@pytest.mark.slow
@pytest.mark.parametrize(("format_name", "packing"), [("text", "plain"), ("book", "gzip"), ("openwebtext", "gzip")])
def test_a_document_of_60_mb_is_read_in_bounded_memory_with_any_size_of_units(tmp_path, packing, format_name):
    random.seed(5)
    with (gzip.open if packing == "gzip" else open)(tmp_path / "a", "wb") as file:
        for i in range(60_000):  # of random words, which hardly compress
            file.write(b"line %07d " % i + random.randbytes(495).hex(" ", 4).encode()[:989] + b"\n")
    files = find_files([f"{format_name}:{tmp_path}/a"])
    found = []
    for unit_bytes in (2**20, 2**23):
        counts = ReadCounts()
        tracemalloc.start()
        (unit,) = plan_units(files, unit_bytes, DatasetSettings())
        read = documents_of(read_unit(unit, DatasetSettings()), counts)
        found.append([(len(each.lines), each.lines[0][:12]) for each in read])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert counts.num_documents_cut == len(found[-1]) - 1
        assert peak < 32e6 + 3 * unit_bytes
    assert found[0] == found[1]


HEADER = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="fr">
<siteinfo><namespaces>
<namespace key="0" case="first-letter" /><namespace key="14" case="first-letter">Rubrique</namespace>
</namespaces></siteinfo>
"""


def test_each_part_of_an_export_knows_its_header(tmp_path):
    text = "Au {{s|XIX}} {{inconnu}} siècle.[[Rubrique:X]]"
    pages = [f"<page>\n<title>{i}</title>\n<revision><text>{text}</text></revision>\n</page>\n" for i in range(20)]
    for packing, packed in packings((HEADER + "".join(pages) + "</mediawiki>\n").encode()).items():
        (tmp_path / packing).write_bytes(packed)
        for unit_bytes in (1, 300, WHOLE):
            counts = ReadCounts()
            documents = read_files(f"wikipedia:{tmp_path}/{packing}", unit_bytes, counts)
            assert {line for _, line in documents} == {"Au XIXe siècle siècle."}
            assert len(documents) == 20 * NUM_COPIES.get(packing, 1)
            assert counts.templates_dropped == {"inconnu": len(documents)}
