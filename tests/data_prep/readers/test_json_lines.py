import pytest

from data_prep.readers import json_lines
from data_prep.readers.documents import ReadCounts
from electra_tf.config.errors import UserError


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
    ("line", "complaint"),
    [
        ('{"title": "b", "body": "c"}', "'text'.*title"),
        ('{"text": ["a"]}', "'text'"),
        ('["a"]', "'text'"),
        ('{"text": ', "not JSON"),
    ],
)
def test_a_wrong_line_is_a_user_error_with_its_offset(read, line, complaint):
    with pytest.raises(UserError, match=f"file.txt at offset 1014.*{complaint}"):
        read("jsonl", f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n', offset=1000)


def test_a_line_without_text_is_left_out_and_counted(read):
    counts = ReadCounts()
    lines = ['{"text": "a"}', '{"text": null}', '{"text": ""}', '{"text": " \\n"}', '{"text": "c"}']
    assert read("jsonl", "\n".join(lines), counts) == [["a"], ["c"]]
    assert counts.num_documents_skipped == {"rows without text": 3}


@pytest.mark.parametrize("value", [5000 * "9", 100_000 * "[" + 100_000 * "]"])
def test_a_line_that_the_parser_cannot_read_is_left_out_and_counted(read, value):
    counts = ReadCounts()
    content = f'{{"text": "a"}}\n{{"text": "b", "number": {value}}}\n{{"text": "c"}}\n'
    assert read("jsonl", content, counts, offset=1000) == [["a"], ["c"]]
    assert counts.num_documents_skipped == {"unreadable": 1}
    assert counts.first_unreadable[:2] == ("file.txt", 1014)


def test_a_line_longer_than_the_limit_is_a_user_error(read, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX_JSON_LINE_BYTES", 40)
    assert read("jsonl", f'{{"text": "{"x" * 28}"}}\n') == [["x" * 28]]
    with pytest.raises(UserError, match="file.txt at offset 14: .*not JSON"):
        read("jsonl", f'{{"text": "a"}}\n{{"text": "{"x" * 50}"}}\n')
