import pytest

from data_prep.counts import ReadCounts
from data_prep.readers import json_lines


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
        ('{"title": "b", "body": "c"}', "lines without a string in --text_field=text", '"title"'),
        ('["a"]', "lines without a string in --text_field=text", '["a"]'),
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
    monkeypatch.setattr(json_lines, "MAX_JSON_LINE_BYTES", 40)
    assert read("jsonl", f'{{"text": "{"x" * 28}"}}\n') == [["x" * 28]]
    counts = ReadCounts()
    assert read("jsonl", f'{{"text": "a"}}\n{{"text": "{"x" * 50}"}}\n', counts) == [["a"]]
    assert counts.faulty_records["lines that are not JSON"][0][:2] == ["file.txt", 14]
