import io

import pytest

from data_prep.boundaries import CountBoundaries, LengthBoundaries, LineBoundaries, cut_text, next_boundary
from data_prep.counts import ReadCounts
from data_prep.readers.documents import Origin
from data_prep.readers.lines import MAX_LINE_BYTES
from data_prep.readers.text import begins_plain_text_document, read_plain_text
from electra_tf.text.manifest import DatasetSettings


def begins_document(line: bytes) -> bool:
    """Whether the line begins with a letter."""
    return line[:1].isalpha()


LETTERS = LineBoundaries(begins_document)


def cut(content: bytes, boundaries, range_bytes: int):
    return list(cut_text(io.BytesIO(content), boundaries, range_bytes))


def test_a_line_of_several_blocks_counts_as_one():
    long = b"x" * (2 * MAX_LINE_BYTES) + b"\n"
    found = cut(long + b"2\n3\n4\n5\n", CountBoundaries(2), range_bytes=1)
    assert [piece.content for piece in found] == [long + b"2\n", b"3\n4\n", b"5\n"]


@pytest.mark.parametrize("line", [b"1\n", b"1" * 99], ids=["many lines", "a long line"])
def test_seeking_stops_when_no_boundary_is_near(line):
    file = io.BytesIO(b"a\n" + line * 100_000 + b"\nb\n")
    assert next_boundary(file, 1, LETTERS, max_scanned_bytes=100_000) is None
    assert next_boundary(file, 1, LETTERS, max_scanned_bytes=None) == len(file.getvalue()) - 2


LINE = b"word " * 200_000 + b"\n"  # a document has at most four of these


@pytest.mark.parametrize("begin", [b"", b"\xef\xbb\xbf"])
def test_pieces_cut_a_long_document_where_its_reader_cuts_it(begin):
    content = begin + LINE * 10 + b"\n" + LINE * 3 + b"\xc3\xa9" * 300_000 + b"\n" + LINE
    found = cut(content, LengthBoundaries(begins_plain_text_document), range_bytes=1)
    documents = read_plain_text(io.BytesIO(content), Origin("file", 0), DatasetSettings(), ReadCounts())
    num_lines = [len(document.lines) for document in documents]
    assert num_lines == [4, 4, 2, 4, 1]
    assert [content[piece.begin : piece.end].count(b"\n") for piece in found] == [4, 4, 2, 5, 1]
    assert [piece.is_cut for piece in found] == [True, True, False, True, False]
