import csv

import pytest

from data_prep.archives import FileFault, read_errors
from data_prep.counts import ReadCounts
from data_prep.readers import separated
from tests.data_prep.reading import read


@pytest.mark.parametrize(
    ("format_name", "content", "documents"),
    [
        ("csv", "id,text\n1,one\n2,two\n", [["one"], ["two"]]),
        ("csv", '\ufeffid, text \r\n1,"a, ""b""\r\n\r\nc"\r\n\r\n2,d\r\n', [['a, "b"', "c"], ["d"]]),
        ("csv", '"text";n\n"a, b; c";1\n', [["a, b; c"]]),
        ("csv", 'text\n"a"\nb "c" d', [["a"], ['b "c" d']]),
        ("tsv", 'text\tn\na, b\t1\n"c\nd"\t2\n', [["a, b"], ["c", "d"]]),
    ],
)
def test_a_row_is_a_document_whose_lines_are_paragraphs(format_name, content, documents):
    assert read(format_name, content, counts := ReadCounts()) == documents
    assert counts == ReadCounts()


@pytest.mark.parametrize(
    ("row", "description"),
    [
        ('2,"b" c,', "',' expected after '\"'"),
        ("2,b,c", "3 columns instead of 2"),
        ("2", "1 columns instead of 2"),
    ],
)
def test_a_wrong_row_is_left_out_and_named_with_its_offset(row, description):
    counts = ReadCounts()
    assert read("csv", f'id,text\n1,"a\n"\n{row}\n3,d\n4,\n', counts, offset=1000) == [["a"], ["d"]]
    assert counts.num_documents_skipped == {"rows that are not CSV": 1, "rows without text": 1}
    assert counts.faulty_records == {"rows that are not CSV": [["file.txt", 1015, description]]}


def test_quotes_that_end_no_value_are_ordinary_characters():
    assert read("tsv", 'id\ttext\n1\t"a" b\n"2\t"c\n') == [['"a" b'], ['"c']]
    # Speech of several sentences, a row each; a value with line ends has no line that is a row.
    assert read("tsv", 'id\ttext\n1\t"A.\n2\tB.\n3\tC."\n4\t"D\nE"\n') == [['"A.'], ["B."], ['C."'], ["D", "E"]]


@pytest.mark.parametrize(
    ("rows", "description"),
    [
        ("3,c\n4,d\n", "unexpected end of data"),
        ('3,"c"\n4,d\n', "',' expected after '\"'"),
        ("3,c\n4,d\n" + 9 * "5,\n", "field larger than field limit (20)"),
    ],
)
def test_a_quote_without_an_end_costs_its_line(monkeypatch, rows, description):
    limit = csv.field_size_limit(20)
    monkeypatch.setattr(separated, "MAX_VALUE_CHARACTERS", 20)
    try:
        assert read("csv", f'id,text\n1,a\n2,"b,\n{rows}', counts := ReadCounts()) == [["a"], ["c"], ["d"]]
        assert counts.faulty_records == {"rows that are not CSV": [["file.txt", 12, description]]}
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("id,body\n1,a\n", "'text'.*there are 'id', 'body'"),
        ("text,text\na,b\n", "or several"),
        ("\ntext\n", "no column"),
    ],
)
def test_a_file_without_the_column_is_left_out(content, named):
    with pytest.raises(FileFault, match=named):
        read("csv", content)


def test_a_header_that_is_too_long_is_a_fault_of_the_file():
    with pytest.raises(FileFault, match="is damaged: field larger than field limit"), read_errors("a.csv"):
        read("csv", b"x" * (separated.MAX_VALUE_CHARACTERS + 1))
