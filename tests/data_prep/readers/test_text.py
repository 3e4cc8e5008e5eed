import pytest

from data_prep.counts import ReadCounts
from data_prep.readers import text
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS


@pytest.mark.parametrize(
    ("format_name", "content", "documents"),
    [
        ("text", "one\ntwo\n\n\nthree", [["one", "two"], ["three"]]),
        ("text", "one\n \t\u00a0\r\ntwo\r\n", [["one"], ["two"]]),  # a line of white space is blank
        ("sentences", "1\n2\n3\n4\n5\n6\n7\n", [["1", "2", "3"], ["4", "5", "6"], ["7"]]),
        ("sentences", "1\n\n3\n\n\n\n7\n\n9", [["1", "3"], ["7", "9"]]),  # blank lines count
        ("openwebtext", "Title\n\nOne. Two.\n\n\nThree.\n", [["Title", "One. Two.", "Three."]]),
    ],
)
def test_each_format_ends_documents_at_its_boundaries(read, format_name, content, documents):
    assert read(format_name, content) == documents


@pytest.mark.parametrize("format_name", ["text", "sentences", "book", "openwebtext", "wikiextractor", "jsonl"])
def test_a_file_without_text_has_no_documents(read, format_name):
    assert read(format_name, "") == read(format_name, " \n\n") == []


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


@pytest.mark.parametrize(
    "text", ["\r\n".join(WRAPPED), "\n".join([*WRAPPED[:4], "", " ", *WRAPPED[4:], ""])], ids=["no blanks", "blanks"]
)
def test_paragraphs_of_a_wrapped_book_end_at_blank_lines_or_lines_that_stop_early(read, text):
    assert read("book", text) == [JOINED]


LONG_PARAGRAPH = "He walked on and on, past the mill and the weir. " * 9


@pytest.mark.parametrize("separator", ["\n", "\n\n", "\r\n\r\n"], ids=["no blanks", "blanks", "CRLF"])
def test_a_book_with_one_paragraph_per_line_keeps_its_lines(read, separator):
    long = LONG_PARAGRAPH.strip()
    paragraphs = ["CHAPTER I", "She spoke.", long, "No.", "Why not?", long, "I see."]
    assert read("book", "\ufeff" + separator.join(paragraphs)) == [paragraphs]


def test_a_very_long_book_becomes_several_documents(read):
    report = ReadCounts()
    paragraph = "x" * 1_000_000
    documents = read("book", f"{paragraph}\n\n" * 9, report)
    assert [len(lines) for lines in documents] == [4, 4, 1]
    assert all(sum(map(len, lines)) <= MAX_DOCUMENT_CHARACTERS for lines in documents)
    assert report.num_documents_cut == 2


@pytest.mark.parametrize(
    ("content", "documents"),
    [
        ('{"id": 1, "text": "a\\n\\n b\\r\\nc"}\n\n{"text": "d"}', [["a", "b", "c"], ["d"]]),
        ('{"text": " \\n"}\n{"text": ""}\n', []),
        # Half a surrogate pair is dropped; a whole pair is a character.
        (r'{"text": "a\ud800b \ud83d\ude00\n\udc00"}', [["ab \U0001f600"]]),
    ],
)
def test_a_line_is_a_document_whose_lines_are_paragraphs(read, content, documents):
    assert read("jsonl", content) == documents


@pytest.mark.parametrize(
    ("line", "reason", "description"),
    [
        ('{"title": "b", "body": "c"}', "lines without a string in text_field=text", '"title"'),
        ('["a"]', "lines without a string in text_field=text", '["a"]'),
        ('{"text": ', "lines that are not JSON", "column"),
        ('{"text": "a"} {"text": "b"}', "lines that are not JSON", "Extra data"),
    ],
)
def test_a_wrong_line_is_left_out_and_named_with_its_offset(read, line, reason, description):
    counts = ReadCounts()
    content = f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n'
    assert read("jsonl", content, counts, offset=1000) == [["a"], ["b"]]
    assert counts.num_documents_skipped == {reason: 1}
    ((path, offset, text),) = counts.faulty_records[reason]
    assert (path, offset) == ("file.txt", 1014) and description in text


@pytest.mark.parametrize("value", [5000 * "9", 100_000 * "[" + 100_000 * "]"])
def test_a_line_that_the_parser_cannot_read_is_left_out_and_counted(read, value):
    counts = ReadCounts()
    content = f'{{"text": "a"}}\n{{"text": "b", "number": {value}}}\n{{"text": "c"}}\n'
    assert read("jsonl", content, counts, offset=1000) == [["a"], ["c"]]
    assert counts.num_documents_skipped == {"unreadable": 1}
    assert counts.faulty_records["unreadable"][0][:2] == ["file.txt", 1014]


def test_a_line_longer_than_the_limit_is_left_out(read, monkeypatch):
    monkeypatch.setattr(text, "MAX_JSON_LINE_BYTES", 40)
    assert read("jsonl", f'{{"text": "{"x" * 28}"}}\n') == [["x" * 28]]
    counts = ReadCounts()
    assert read("jsonl", f'{{"text": "a"}}\n{{"text": "{"x" * 50}"}}\n', counts) == [["a"]]
    assert counts.faulty_records["lines that are not JSON"][0][:2] == ["file.txt", 14]
