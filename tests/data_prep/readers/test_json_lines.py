import re

import pytest

from data_prep.readers import json_lines
from data_prep.readers.documents import Counts
from electra_tf.config.errors import UserError


def test_every_line_is_a_document_whose_lines_are_paragraphs(read):
    content = '{"id": 1, "text": "a\\n\\n b\\r\\nc"}\n\n{"text": "d"}'
    assert read("jsonl", content) == [["a", "b", "c"], ["d"]]


def test_a_text_without_a_word_is_no_document(read):
    assert read("jsonl", '{"text": " \\n"}\n{"text": ""}\n') == []


def test_a_line_without_the_field_is_a_user_error_that_names_those_found(read):
    content = '{"text": "a"}\n{"title": "b", "body": "c"}\n'
    with pytest.raises(
        UserError,
        match=re.escape(
            "file.txt at offset 14: a JSON object without the field 'text'; its fields are 'title', 'body'"
        ),
    ):
        read("jsonl", content)


@pytest.mark.parametrize("text", ["null", "12", '["a"]'])
def test_a_text_that_is_no_string_is_a_user_error_that_names_its_place(read, text):
    with pytest.raises(UserError, match=re.escape(f'file.txt at offset 14: "text" is {text}, expected a string')):
        read("jsonl", f'{{"text": "a"}}\n{{"text": {text}}}\n')


@pytest.mark.parametrize("line", ['{"text": ', "text", '{"text": ' + "[" * 100_000], ids=["cut", "no JSON", "too deep"])
def test_a_broken_line_is_a_user_error_that_names_its_place(read, line):
    with pytest.raises(UserError, match="file.txt at offset 1014: expected a JSON object on each line"):
        read("jsonl", f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n', offset=1000)


def test_the_last_line_of_a_file_may_be_cut_off(read):
    report = Counts()
    assert read("jsonl", '{"text": "a"}\n{"text": "b', report) == [["a"]]
    assert report.truncations == ["file.txt is truncated at byte 25, in the middle of a JSON line"]


def test_the_last_line_of_a_part_may_not_be_cut_off(read):
    with pytest.raises(UserError, match="file.txt at offset 14: expected a JSON object"):
        read("jsonl", '{"text": "a"}\n{"text": "b', is_end=False)


def test_half_a_surrogate_pair_is_dropped_and_a_whole_one_is_a_character(read):
    assert read("jsonl", r'{"text": "a\ud800b \ud83d\ude00\n\udc00"}') == [["ab \U0001f600"]]


def test_a_line_of_more_than_the_limit_is_a_user_error(read, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX_JSON_LINE_BYTES", 40)
    assert read("jsonl", f'{{"text": "{"x" * 28}"}}\n') == [["x" * 28]]
    with pytest.raises(UserError, match="file.txt at offset 14: a line of more than 40 bytes"):
        read("jsonl", f'{{"text": "a"}}\n{{"text": "{"x" * 50}"}}\n')
