import io

import pytest

from data_prep.counts import ReadCounts
from data_prep.documents import Origin
from data_prep.readers import FORMATS, text
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS
from electra_tf.data.manifest import DatasetSettings
from tests.data_prep.reading import documents_of, read
from tests.data_prep.texts import content_of

TABLES = {"parquet", "arrow"}


@pytest.mark.parametrize(
    ("format_name", "content", "documents"),
    [
        ("text", "one\ntwo\n\n\nthree", [["one", "two"], ["three"]]),
        ("text", "one\n \t\u00a0\r\ntwo\r\n", [["one"], ["two"]]),  # a line of white space is blank
        ("sentences", "1\n2\n3\n4\n5\n6\n7\n", [["1", "2", "3"], ["4", "5", "6"], ["7"]]),
        ("sentences", "1\n\n3\n\n\n\n7\n\n9", [["1", "3"], ["7", "9"]]),  # blank lines count
        ("openwebtext", "Title\n\nOne. Two.\n\n\nThree.\n", [["Title", "One. Two.", "Three."]]),
        ("documents", "\ufeffone. two.\r\n\n three", [["one. two."], ["three"]]),
        # A line is a document whose lines are paragraphs.
        ("jsonl", '{"id": 1, "text": "a\\n\\n b\\r\\nc"}\n\n{"text": "d"}', [["a", "b", "c"], ["d"]]),
        ("jsonl", '{"text": " \\n"}\n{"text": ""}\n', []),
        # Half a surrogate pair is dropped; a whole pair is a character.
        ("jsonl", r'{"text": "a\ud800b \ud83d\ude00\n\udc00"}', [["ab \U0001f600"]]),
        *((name, " \n\n", []) for name in sorted(FORMATS.keys() - {*TABLES, "csv", "tsv"})),
        *((name, "", []) for name in sorted(FORMATS.keys() - TABLES)),
    ],
)
def test_each_format_ends_documents_at_its_boundaries(format_name, content, documents):
    assert read(format_name, content) == documents


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
LONG_PARAGRAPH = ("He walked on and on, past the mill and the weir. " * 9).strip()
PARAGRAPHS = ["CHAPTER I", "She spoke.", LONG_PARAGRAPH, "No.", "Why not?", LONG_PARAGRAPH, "I see."]


@pytest.mark.parametrize(
    ("content", "paragraphs"),
    [
        # Wrapped: a paragraph ends at blank lines, or at lines that stop early.
        ("\r\n".join(WRAPPED), JOINED),
        ("\n".join([*WRAPPED[:4], "", " ", *WRAPPED[4:], ""]), JOINED),
        # A line is a paragraph.
        *(("\ufeff" + separator.join(PARAGRAPHS), PARAGRAPHS) for separator in ("\n", "\n\n", "\r\n\r\n")),
    ],
    ids=["wrapped", "wrapped with blanks", "lines", "lines with blanks", "CRLF"],
)
def test_paragraphs_of_a_book(content, paragraphs):
    assert read("book", content) == [paragraphs]


def test_a_very_long_book_becomes_several_documents():
    counts = ReadCounts()
    documents = read("book", f"{'x' * 1_000_000}\n\n" * 9, counts)
    assert [len(lines) for lines in documents] == [4, 4, 1] and MAX_DOCUMENT_CHARACTERS >= 4 * 1_000_000
    assert counts.num_documents_cut == 2


def test_the_parts_of_a_very_long_line_are_a_document_that_is_cut():
    counts = ReadCounts()
    documents = read("documents", f"{'x' * 4_194_303} yy\nz\n", counts)
    assert [len(line) for (line,) in documents] == [4_194_303, 2, 1] and counts.num_documents_cut == 1


@pytest.mark.parametrize("layout", ["join", "keep"])
@pytest.mark.parametrize("format_name", ["documents", "jsonl", "csv"])
def test_lines_are_paragraphs_unless_the_layout_is_kept(format_name, layout):
    stream, settings = io.BytesIO(content_of(format_name)), DatasetSettings(layout=layout)
    documents = documents_of(FORMATS[format_name].documents(stream, Origin("a", 0), settings))
    assert {document.has_paragraphs for document in documents} == {layout == "join"}


@pytest.mark.parametrize(
    ("line", "reason", "description"),
    [
        ('{"title": "b", "body": "c"}', "lines without a string in text_field=text", '"title"'),
        ('["a"]', "lines without a string in text_field=text", '["a"]'),
        ('{"text": ', "lines that are not JSON", "column"),
        ('{"text": "a"} {"text": "b"}', "lines that are not JSON", "Extra data"),
        # The parser raises ValueError and RecursionError.
        (f'{{"text": "b", "number": {5000 * "9"}}}', "unreadable", "ValueError"),
        (f'{{"text": "b", "number": {100_000 * "[" + 100_000 * "]"}}}', "unreadable", "RecursionError"),
    ],
    ids=lambda text: text[:40],
)
def test_a_wrong_line_is_left_out_and_named_with_its_offset(line, reason, description):
    counts = ReadCounts()
    assert read("jsonl", f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n', counts, offset=1000) == [["a"], ["b"]]
    assert counts.num_documents_skipped == {reason: 1}
    ((path, offset, text),) = counts.faulty_records[reason]
    assert (path, offset) == ("file.txt", 1014) and description in text


def test_a_line_longer_than_the_limit_is_left_out(monkeypatch):
    monkeypatch.setattr(text, "MAX_RECORD_BYTES", 40)
    assert read("jsonl", f'{{"text": "{"x" * 28}"}}\n') == [["x" * 28]]
    counts = ReadCounts()
    assert read("jsonl", f'{{"text": "a"}}\n{{"text": "{"x" * 50}"}}\n', counts) == [["a"]]
    assert counts.faulty_records["lines that are not JSON"][0][:2] == ["file.txt", 14]
