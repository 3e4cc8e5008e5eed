"""Units of bad files: of those that vanish, are cut off or damaged, or have no end."""

import gzip
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from data_prep.planning import plan_units
from data_prep.readers.documents import ReadReport
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS
from data_prep.source_files import find_files
from data_prep.units import read_unit, unit_num_bytes
from electra_tf.config.errors import UserError


def test_a_file_that_vanished_is_a_user_error(plan, read_units, tmp_path):
    (tmp_path / "a.txt").write_text("one")
    units = plan(f"text:{tmp_path}/*", unit_bytes=4)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(UserError, match="cannot read .*a.txt: No such file"):
        read_units(units)


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "xz", "zstd"])
@pytest.mark.parametrize("unit_bytes", [10, 100_000], ids=["handed over", "unpacked by the worker"])
@pytest.mark.parametrize("format_name", ["text", "wikiextractor", "wikipedia", "jsonl", "book"])
def test_a_compressed_file_that_is_cut_off_gives_what_is_whole(
    plan, read_units, written_documents, content_of, packers, tmp_path, packing, unit_bytes, format_name
):
    content = content_of(format_name)
    cut = content.find(b" 14 ")  # in the midst of the second line of the seventh document
    packed = packers[packing](content[:cut]) + packers[packing](content[cut:])[:5]
    (tmp_path / "a").write_bytes(packed)
    report = ReadReport()
    found = read_units(plan(f"{format_name}:{tmp_path}/a", unit_bytes), report)
    assert report.truncations == [f"{tmp_path}/a is cut off at byte {len(packed)}: its {packing} data goes on there"]
    if format_name == "book":
        assert "\n".join(found[0]).endswith("book 12 é book 13 é")
    else:
        # Of the unfinished document, plain text keeps the lines that are whole.
        unfinished = [["text 13 é"]] if format_name == "text" else []
        assert found == written_documents(format_name)[:6] + unfinished


def test_an_archive_that_is_cut_off_is_reported_once(plan, read_units, tar, tmp_path):
    content = tar({"1": b"one\n", "2": b"two\n" * 500, "3": b"three\n"})[:2000]
    (tmp_path / "a.tar").write_bytes(content)
    report = ReadReport()
    assert read_units(plan(f"openwebtext:{tmp_path}/a.tar", unit_bytes=4000), report)[0] == ["one"]
    (message,) = report.truncations
    assert message.startswith(f"{tmp_path}/a.tar is cut off")


def test_a_plain_file_of_articles_that_is_cut_off_is_reported(
    plan, read_units, written_documents, content_of, tmp_path
):
    (tmp_path / "a").write_bytes(content_of("wikiextractor")[:-20])
    report = ReadReport()
    found = read_units(plan(f"wikiextractor:{tmp_path}/a", unit_bytes=30), report)
    assert found == written_documents("wikiextractor")[:-1]
    (message,) = report.truncations
    assert message.startswith(f"{tmp_path}/a is cut off at byte {len(content_of('wikiextractor')) - 20}")


def test_damaged_data_in_an_archive_is_a_user_error_that_names_the_member(plan, read_units, tar, tmp_path):
    damaged = bytearray(gzip.compress(b"one two three four five" * 100))
    damaged[15:25] = b"x" * 10
    (tmp_path / "a.tar").write_bytes(tar({"1.gz": gzip.compress(b"one"), "2.gz": bytes(damaged)}))
    with pytest.raises(UserError, match="a.tar/2.gz is damaged: its gzip data is wrong before byte"):
        read_units(plan(f"text:{tmp_path}/a.tar", unit_bytes=4000))


def test_invalid_utf_8_is_named_by_its_byte_in_the_whole_file(plan, read_units, packers, tmp_path):
    content = b"one\r\n\r\ntwo\r\n\r\n" * 50 + b"thr\xffee\r\n"
    for name, pack in packers.items():
        (tmp_path / name).write_bytes(pack(content))
        place = name if name == "plain" else rf"{name} \(unpacked\)"
        with pytest.raises(UserError, match=f"/{place} is not UTF-8: byte 0xff at offset 703 "):
            read_units(plan(f"text:{tmp_path}/{name}", unit_bytes=20))


def _lines_of_text(num_lines: int) -> Iterator[bytes]:
    for i in range(num_lines):
        # Words that do not vanish when they are compressed.
        yield b"line %07d " % i + random.randbytes(495).hex(" ", 4).encode()[:989] + b"\n"


@pytest.mark.parametrize("packing", ["plain", "gzip"])
@pytest.mark.parametrize("format_name", ["text", pytest.param("book", marks=pytest.mark.slow), "openwebtext"])
def test_a_document_without_end_is_read_in_bounded_memory_whatever_the_units(
    reader_options, tmp_path, packing, format_name
):
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
        for unit in plan_units(files, unit_bytes, reader_options):
            units.append(unit_num_bytes(unit))
            documents += [
                (len(document.lines), document.lines[0][:12]) for document in read_unit(unit, reader_options, report)
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


def test_a_line_without_end_is_read_in_bounded_memory_whatever_the_units(plan, read_units, tmp_path):
    with open(tmp_path / "a", "wb") as file:
        file.writelines(b"w%07d " % i for i in range(4_000_000))
    lengths = []
    for unit_bytes in (2**20, 2**24):
        tracemalloc.start()
        lengths.append([len(lines[0]) for lines in read_units(plan(f"text:{tmp_path}/a", unit_bytes))])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 72e6
    assert lengths[0] == lengths[1]
    assert max(lengths[0]) <= MAX_DOCUMENT_CHARACTERS
    # Cut after a space, which is dropped there.
    assert sum(lengths[0]) == 9 * 4_000_000 - len(lengths[0])
