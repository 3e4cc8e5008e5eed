import io
import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.readers.boundaries import CountBoundaries, LineBoundaries, TagBoundaries, cut_text, text_of_range
from data_prep.readers.lines import MAX_LINE_BYTES


def begins_document(line: bytes) -> bool:
    """Whether the line begins with a letter."""
    return line[:1].isalpha()


def test_a_line_of_several_blocks_counts_as_one():
    long = b"x" * (2 * MAX_LINE_BYTES) + b"\n"
    found = cut_text(io.BytesIO(long + b"2\n3\n4\n5\n"), CountBoundaries(2), range_bytes=1)
    assert list(found) == list(pairwise([0, len(long) + 2, len(long) + 6, len(long) + 8]))


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
