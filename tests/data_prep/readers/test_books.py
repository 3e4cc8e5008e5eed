import pytest

from data_prep.readers.documents import ReadReport
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS

WRAPPED = [
    "It was a bright cold day in the town of X,",
    "and the clocks on the tower were striking.",
    "He came in and shut the door. She sat down",
    "quietly.",
    '"Well?" he said, looking at the dark-',
    "haired stranger by the fire, who said very",
    "little.",
]
JOINED = [
    "It was a bright cold day in the town of X, and the clocks on the tower were striking. He came in and shut the"
    " door. She sat down quietly.",
    '"Well?" he said, looking at the dark-haired stranger by the fire, who said very little.',
]


def test_a_wrapped_book_without_blank_lines_is_cut_where_a_line_stops_early(read):
    assert read("book", "\r\n".join(WRAPPED)) == [JOINED]


def test_a_wrapped_book_with_blank_lines_is_cut_at_these(read):
    text = "\n".join([*WRAPPED[:4], "", " ", *WRAPPED[4:], ""])
    assert read("book", text) == [JOINED]


def test_an_early_end_inside_a_paragraph_counts_for_nothing_where_blank_lines_separate(read):
    assert read("book", "\n".join(["Spoken at last.", "She went away now.", "", "The next day came."])) == [
        ["Spoken at last. She went away now.", "The next day came."]
    ]


LONG_PARAGRAPH = "He walked on and on, past the mill and the weir. " * 9


@pytest.mark.parametrize("separator", ["\n", "\n\n", "\r\n\r\n"], ids=["no blanks", "blanks", "CRLF"])
def test_a_book_with_a_paragraph_a_line_keeps_its_lines(read, separator):
    paragraphs = [
        "CHAPTER I",
        "She spoke.",
        LONG_PARAGRAPH.strip(),
        "No.",
        "Why not?",
        LONG_PARAGRAPH.strip(),
        "I see.",
    ]
    assert read("book", "\ufeff" + separator.join(paragraphs)) == [paragraphs]


def test_a_dash_at_the_end_of_a_line_is_not_a_broken_word(read):
    text = "He had gone - or so he would say -\nto the far shore of the lake in sum-\nMer."
    assert read("book", text) == [["He had gone - or so he would say - to the far shore of the lake in sum- Mer."]]


def test_a_file_too_long_for_a_book_becomes_several_documents(read):
    report = ReadReport()
    paragraph = "x" * 1_000_000
    documents = read("book", f"{paragraph}\n\n" * 9, report)
    assert [len(lines) for lines in documents] == [4, 4, 1]
    assert all(sum(map(len, lines)) <= MAX_DOCUMENT_CHARACTERS for lines in documents)
    assert report.num_documents_cut == 2
