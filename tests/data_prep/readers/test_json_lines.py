import re

import pytest

from data_prep.readers import json_lines
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
        (
            '{"title": "b", "body": "c"}',
            "no field 'text'; name the field with the text in --text_field: 'title'",
        ),
        ('{"text": null}', '"text" is null, expected a string'),
        ('{"text": 12}', '"text" is 12, expected a string'),
        ('{"text": ["a"]}', '"text" is ["a"], expected a string'),
        ('{"text": ', "a line that is not JSON"),
        ("text", "a line that is not JSON"),
        ('{"text": ' + "[" * 100_000, "a line that is not JSON"),
    ],
    ids=["no field", "null", "a number", "a list", "cut", "no JSON", "too deep"],
)
def test_a_wrong_line_is_a_user_error_that_names_its_place(read, line, complaint):
    with pytest.raises(UserError, match=re.escape(f"file.txt at offset 1014: {complaint}")):
        read("jsonl", f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n', offset=1000)


def test_a_line_of_more_than_the_limit_is_a_user_error(read, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX_JSON_LINE_BYTES", 40)
    assert read("jsonl", f'{{"text": "{"x" * 28}"}}\n') == [["x" * 28]]
    with pytest.raises(UserError, match="file.txt at offset 14: a line that is not JSON"):
        read("jsonl", f'{{"text": "a"}}\n{{"text": "{"x" * 50}"}}\n')
