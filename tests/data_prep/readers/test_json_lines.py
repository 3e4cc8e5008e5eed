import re

import pytest

from data_prep.readers import json_lines
from data_prep.readers.documents import Counts
from electra_tf.config.errors import UserError


@pytest.mark.parametrize(
    ("content", "documents"),
    [
        ('{"id": 1, "text": "a\\n\\n b\\r\\nc"}\n\n{"text": "d"}', [["a", "b", "c"], ["d"]]),
        ('{"text": " \\n"}\n{"text": ""}\n', []),
        # Half a surrogate pair is dropped, a whole one is a character.
        (r'{"text": "a\ud800b \ud83d\ude00\n\udc00"}', [["ab \U0001f600"]]),
    ],
)
def test_a_line_is_a_document_whose_lines_are_paragraphs(read, content, documents):
    assert read("jsonl", content) == documents


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"title": "b", "body": "c"}', "a JSON object without the field 'text'; its fields are 'title', 'body'"),
        ('{"text": null}', '"text" is null, expected a string'),
        ('{"text": 12}', '"text" is 12, expected a string'),
        ('{"text": ["a"]}', '"text" is ["a"], expected a string'),
        ('{"text": ', "expected a JSON object on each line"),
        ("text", "expected a JSON object on each line"),
        ('{"text": ' + "[" * 100_000, "expected a JSON object on each line"),
    ],
    ids=["no field", "null", "a number", "a list", "cut", "no JSON", "too deep"],
)
def test_a_wrong_line_is_a_user_error_that_names_its_place(read, line, complaint):
    with pytest.raises(UserError, match=re.escape(f"file.txt at offset 1014: {complaint}")):
        read("jsonl", f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n', offset=1000)


def test_the_last_line_of_a_file_may_be_cut_off(read):
    report = Counts()
    assert read("jsonl", '{"text": "a"}\n{"text": "b', report) == [["a"]]
    assert report.truncations == ["file.txt is truncated at byte 25, in the middle of a JSON line"]


def test_the_last_line_of_a_part_may_not_be_cut_off(read):
    with pytest.raises(UserError, match="file.txt at offset 14: expected a JSON object"):
        read("jsonl", '{"text": "a"}\n{"text": "b', is_end=False)


def test_a_line_of_more_than_the_limit_is_a_user_error(read, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX_JSON_LINE_BYTES", 40)
    assert read("jsonl", f'{{"text": "{"x" * 28}"}}\n') == [["x" * 28]]
    with pytest.raises(UserError, match="file.txt at offset 14: a line of more than 40 bytes"):
        read("jsonl", f'{{"text": "a"}}\n{{"text": "{"x" * 50}"}}\n')
