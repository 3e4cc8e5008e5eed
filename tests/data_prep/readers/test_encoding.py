import io
import json

import pytest

from data_prep.archives import FileFault, buffered
from data_prep.counts import ReadCounts
from data_prep.readers import encoding
from data_prep.readers.encoding import check_is_text, checked_text
from tests.data_prep.reading import read_files
from tests.data_prep.texts import PACKERS, content_of

ENGLISH = "The café was “closed” – a pity. " * 9
RUSSIAN = "Москва — столица России, «город» на реке. " * 9
JAPANESE = "東京は日本の首都であり、人口は千四百万人です。" * 9
PROSE = [
    '{"text": "a"},\n{"text": "b"}',
    '{\nint main() { return "a"; }\n}',
    "[1] A note.",
    "version https://git-lfs.github.com/spec/v1 is how a pointer begins.",
    "\x1b[1mA bold line of a terminal\x1b[0m and so on.\f",
]
# Little of it is NUL, and all of these bytes are valid UTF-8.
UTF_16 = {
    "Russian": "Москва является столицей Российской Федерации и крупнейшим по численности населения городом. ",
    "Thai": "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย ",
    "Hindi": "दिल्ली भारत की राजधानी है और यमुना नदी के किनारे बसा हुआ एक प्राचीन नगर है। ",
    "Telugu": "హైదరాబాదు తెలంగాణ రాష్ట్ర రాజధాని మరియు అతి పెద్ద నగరం. ",
    "Burmese": "ရန်ကုန်မြို့သည် မြန်မာနိုင်ငံ၏ အကြီးဆုံးမြို့ ဖြစ်သည်။ ",
    "English": "Once upon a time. ",
}


@pytest.mark.parametrize("content", [RUSSIAN, JAPANESE, "\ufeffa\0b" + ENGLISH, *PROSE])
def test_text_in_utf_8_stays_as_it_is(monkeypatch, content):
    monkeypatch.setattr(encoding, "BUFFER_BYTES", 5)
    assert b"".join(checked_text(buffered(io.BytesIO(content.encode())), 0)) == content.encode()


@pytest.mark.parametrize("buffer_bytes", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("content", "offset", "place"),
    [
        (b"\xef\xbb\xbfa\xef\n", 0, "0xef at offset 4;"),
        (ENGLISH.encode("cp1252"), 0, "0xe9 at offset 7;"),
        (b"a\r\nb\r\r\n\xff\n", 1000, "0xff at offset 1007;"),
        ("aéb".encode()[:-2], 7, "0xc3 at offset 8;"),
        (b"ab\xe2\x82", 0, "0xe2 at offset 2;"),
    ],
)
def test_the_first_wrong_byte_is_named_with_its_offset_in_the_file(monkeypatch, content, offset, place, buffer_bytes):
    monkeypatch.setattr(encoding, "BUFFER_BYTES", buffer_bytes)
    with pytest.raises(FileFault, match=f"is not UTF-8: byte {place}"):
        list(checked_text(buffered(io.BytesIO(content)), offset))


def test_the_text_before_the_first_wrong_byte_is_yielded():
    blocks = checked_text(buffered(io.BytesIO(b"a\xc3\xa9\xff b")), 0)
    assert next(blocks) == b"a\xc3\xa9"
    with pytest.raises(FileFault):
        next(blocks)


@pytest.mark.parametrize(
    ("begin", "name"),
    [
        (b"{\\rtf1\\ansi", "RTF"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS"),
        (json.dumps([{"text": "a " * 9999}]).encode()[:8192], "JSON array"),
        (json.dumps(["a", "b"]).encode(), "JSON array"),
        (json.dumps({"id": 1, "text": "a " * 9999}, indent=2).encode()[:8192], "indented JSON"),
        (b'{"id": 1,\r\n "text": "a"}', "indented JSON"),
        (b"\n<!DOCTYPE html>\n<p>", "HTML"),
        (b"%PDF-1.4\n1 0 obj", "PDF"),
        (b"PAR1\x15\x04", "parquet:GLOB"),
        (b"\x7fELF\2\1\1\0", "byte 0x00"),
    ],
)
def test_a_file_that_is_no_text_is_named_for_what_it_is(begin, name):
    with pytest.raises(FileFault, match=name):
        check_is_text(begin)


def read(tmp_path, content: bytes) -> tuple[int, ReadCounts]:
    (tmp_path / "a.txt").write_bytes(content)
    counts = ReadCounts()
    return len(read_files(f"text:{tmp_path}/a.txt", 10**6, counts)), counts


@pytest.mark.parametrize("language", UTF_16)
def test_utf_16_without_a_mark_is_left_out_also_behind_text(tmp_path, language):
    for encoding_name in ("utf-16-le", "utf-16-be"):
        num_documents, counts = read(tmp_path, (UTF_16[language] * 9).encode(encoding_name))
        assert num_documents == 0 and counts.faulty_files
    num_documents, counts = read(tmp_path, b"A line of text.\n\n" * 999 + (UTF_16[language] * 9).encode("utf-16-be"))
    assert num_documents == 999 and counts.num_documents_skipped["documents of control characters"] == 1


@pytest.mark.parametrize("unit_bytes", [1, 10**6])
@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("encoding_name", ["utf-16-le", "utf-16-be"])
def test_utf_16_with_a_mark_is_read(tmp_path, monkeypatch, encoding_name, packing, unit_bytes):
    monkeypatch.setattr(encoding, "BUFFER_BYTES", 7)  # within a character
    (tmp_path / "utf-8").write_bytes(content_of("wikipedia"))
    documents = read_files(f"{tmp_path}/utf-8", 10**6)
    assert len(documents) == 9
    header = '\ufeff<?xml version="1.0" encoding="UTF-16"?>\n'
    content = (header + content_of("wikipedia").decode() + "\U0001f600").encode(encoding_name)
    for written in (content, content[:-2]):  # a pair of surrogates at the end, and half of one
        (tmp_path / "a").write_bytes(PACKERS[packing](written))
        assert read_files(f"{tmp_path}/a", unit_bytes, counts := ReadCounts()) == documents
        assert not counts.faulty_files
    (tmp_path / "a").write_bytes(PACKERS[packing](content)[:-40])
    before_the_fault = read_files(f"{tmp_path}/a", unit_bytes, counts := ReadCounts())
    assert before_the_fault == documents[: len(before_the_fault)]
    assert packing == "plain" or counts.faulty_files[f"{tmp_path}/a"][1] == "damaged files"


@pytest.mark.parametrize("begin", [512 * b"\0", 9000 * b"\0", b"A line.\n\n" + 4000 * b"\0" + b"\n\n"])
def test_a_hole_of_nuls_at_the_begin_of_a_file_loses_at_most_its_document(tmp_path, begin):
    num_documents, counts = read(tmp_path, begin + b"A line of text.\n\n" * 9999)
    assert num_documents >= 9998 and counts.faulty_files == {}


def test_control_characters_are_judged_by_their_share_in_a_document(tmp_path):
    text = b"A text with\0one of them.\n\n" * 20
    assert read(tmp_path, b"Once\0upon a time.\n\n" + text)[0] == 21
    num_documents, counts = read(tmp_path, text * 500 + "In UTF-16.".encode("utf-16-le") + b"\n\n" + text)
    assert num_documents == 20 * 501
    assert counts.num_documents_skipped == {"documents of control characters": 1}
