import io
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.boundaries import (
    CountBoundaries,
    LengthBoundaries,
    LineBoundaries,
    TagBoundaries,
    cut_text,
    next_boundary,
    text_of_range,
)
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
    ends = [len(long) + 2, len(long) + 6, len(long) + 8]
    assert [(piece.begin, piece.end) for piece in found] == list(pairwise([0, *ends]))


@pytest.mark.parametrize("line", [b"1\n", b"1" * 99], ids=["many lines", "a long line"])
def test_seeking_stops_when_no_boundary_is_near(line):
    file = io.BytesIO(b"a\n" + line * 100_000 + b"\nb\n")
    assert next_boundary(file, 1, LETTERS, max_scanned_bytes=100_000) is None
    assert next_boundary(file, 1, LETTERS, max_scanned_bytes=None) == len(file.getvalue()) - 2


@settings(max_examples=60, deadline=None)
@given(content=st.text("a1\r\n", max_size=40), cuts=st.sets(st.integers(1, 39)), is_tag=st.booleans())
def test_a_range_has_the_documents_that_begin_after_its_first_byte_and_not_after_its_end(content, cuts, is_tag):
    text = content.encode()
    begins = re.finditer(rb"a1" if is_tag else rb"(?:(?<=\n)|(?<=\r))a", text)
    begins_of_documents = [match.start() for match in begins]
    cuts = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    ends = [0, *(min([i for i in begins_of_documents if i > cut], default=len(text)) for cut in cuts[1:-1]), len(text)]
    for begin, end, expected in zip(cuts, cuts[1:], pairwise(ends), strict=False):
        boundaries = TagBoundaries(re.compile(b"a1")) if is_tag else LineBoundaries(begins_document)
        blocks = [text[i : i + 1] for i in range(begin, len(text))]
        if end < len(text):
            blocks.insert(end - begin, None)
        assert b"".join(text_of_range(iter(blocks), boundaries, is_first=begin == 0)) == text[slice(*expected)]


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
