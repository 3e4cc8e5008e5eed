import io
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from data_prep.counts import ReadCounts
from data_prep.documents import Origin
from data_prep.readers.boundaries import CountBoundaries, cut_text
from data_prep.readers.lines import (
    BLOCK_BYTES,
    MAX_DOCUMENT_CHARACTERS,
    MAX_LINE_BYTES,
    LineReader,
    collect_documents,
    line_blocks,
    split_lines,
)
from tests.data_prep.reading import documents_of


def lines(content: bytes, **options) -> list[bytes]:
    """The lines of all blocks. A block ends a line, with or without a line end."""
    return [
        line for block in line_blocks(io.BytesIO(content), **options) for line in block.removesuffix(b"\n").split(b"\n")
    ]


def test_lines_end_with_lf_cr_lf_or_cr():
    assert lines(b"a\nb\r\nc\rd\r\re") == [b"a", b"b ", b"c", b"d", b"", b"e"]


def test_a_long_line_is_cut_after_a_space_in_its_second_half_or_between_characters():
    assert lines(b"short\n1 345 789 1 345\n", max_line_bytes=10) == [b"short", b"1 345 789 ", b"1 345"]
    pieces = lines("ééé\U0001f600é".encode(), max_line_bytes=5)
    assert [piece.decode() for piece in pieces] == ["éé", "é", "\U0001f600", "é"]


def test_a_byte_order_mark_is_one_at_the_beginning_of_a_file_alone():
    content = b"\xef\xbb\xbfa\n" + b"b\n" * (BLOCK_BYTES // 2 - 3) + b"\n" + b"\xef\xbb\xbfc\n"
    first, *_, last = LineReader(io.BytesIO(content), Origin("a", 0))
    assert (first, last) == ("a", "\ufeffc")


@given(
    text=st.text(alphabet="ab é\U0001f600\r\n\t", max_size=60),
    max_line_bytes=st.integers(4, 20),
    block_bytes=st.integers(1, 8),
)
def test_blocks_do_not_depend_on_the_size_of_the_reads(text, max_line_bytes, block_bytes):
    content = text.encode()
    options = {"max_line_bytes": max_line_bytes}
    result = lines(content, block_bytes=block_bytes, **options)
    assert result == lines(content, **options)
    assert all(len(line) <= max_line_bytes for line in result)
    assert all(line.decode() is not None for line in result)


def test_a_long_document_is_cut_between_lines_and_cuts_are_counted():
    report = ReadCounts()
    line = "x" * (MAX_DOCUMENT_CHARACTERS // 2)
    items = collect_documents([line, line, "a", line, line, "", "b", None, None, "c"], has_paragraphs=True)
    documents = documents_of(items, report)
    assert [document.lines for document in documents] == [[line, line], ["a", line], [line, "b"]]
    assert report.num_documents_cut == 2


def test_a_layout_with_long_white_space_at_its_end_is_split_at_once():
    assert split_lines("  a \r\n\r\n\tb" + " \n" * 100_000, "keep") == ["  a", " \n\n\tb"]


def test_a_line_of_several_blocks_counts_as_one():
    long = b"x" * (2 * MAX_LINE_BYTES) + b"\n"
    found = cut_text(io.BytesIO(long + b"2\n3\n4\n5\n"), CountBoundaries(2), range_bytes=1)
    assert list(found) == list(pairwise([0, len(long) + 2, len(long) + 6, len(long) + 8]))
