import struct
from decimal import Decimal

import pyarrow
import pytest

from electra_tf.config.errors import UserError
from electra_tf.data.tables import markdown_table, read_table, tsv
from tests.data_prep.texts import table_of


def test_a_value_with_a_carriage_return_is_quoted():
    content = tsv([["id", "label"], ["a\rb", "c"], ["d", 4]])
    assert content == b'id\tlabel\n"a\rb"\t"c"\nd\t4\n'


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'{"a": "x"}\n{"a": 5\n', ":2 cannot be read"),
        (b'{"a": "x"}\n\n\n{"a": 5}{"a": 6}\n', ":4 cannot be read"),
        (b'{"a": "x"}\n[5]\n', ":2 cannot be read"),
        (b'[{"a": "x"}]\n', ":1 cannot be read"),
        (b'{"a": "\\ud83d\\ude00"}\n{"a": "\\ud83d"}\n', ":2 cannot be read"),
        (b'{"a": ' + b"7" * 5000 + b"}\n", ":1 cannot be read"),
        (b'\xef\xbb\xbf{"a": "x"}\n{"a": "\xff"}\n', ":2 is not UTF-8"),
    ],
)
def test_a_message_about_json_lines_names_the_line(tmp_path, content, place):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=f"^{tmp_path}/a.jsonl{place}"):
        read_table(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", "text,label\na,b\n\n\nc,d\n", [2, 5]),
        ("a.csv", 'text,label\n"a\ne",b\n\nc,d\n', [2, 5]),
        ("a.jsonl", '{"a": "x"}\n\n{"a": "y"}\n', [1, 3]),
    ],
)
def test_rows_have_the_numbers_of_their_lines(tmp_path, name, content, rows):
    (tmp_path / name).write_text(content)
    assert list(read_table(tmp_path / name).rows) == rows


@pytest.mark.parametrize(
    ("content", "rows"), [("text\na\n\nb\n", [2, 3, 4]), ("\r\n\r\ntext\r\na\r\n\r\nb\r\n\r\n", [4, 5, 6])]
)
def test_an_empty_line_between_values_of_one_column_is_an_empty_text(tmp_path, content, rows):
    (tmp_path / "a.csv").write_bytes(content.encode())
    table = read_table(tmp_path / "a.csv")
    assert (table.columns, list(table.rows)) == ({"text": ["a", "", "b"]}, rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", 'text\tlabel\nc\t1\n"Great movie\t1\nbad\t0\n"so so\t1\nfine\t0\n'),
        ("a.csv", 'text,label\nc,1\n"never closed,1\n'),
    ],
)
def test_a_quote_that_is_not_closed_in_its_value_is_refused(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=f"{name}:3: a value that begins with a quote does not end at the next one"):
        read_table(tmp_path / name)


# In one column, which has no type: integers of any size, fractions as they are written, and texts like dates.
VALUES = {
    "18446744073709551616": 2**64,
    "1152921504606846977": 2**60 + 1,
    "0.5": Decimal("0.5"),
    "1.10": Decimal("1.10"),
    "-1.0": -1,  # as pandas writes integers beside a missing value
    '"x"': "x",
    '"2020-01-03"': "2020-01-03",
    "null": None,
    "true": True,
    '{"z": ["2020-01-05", 7]}': {"z": ["2020-01-05", 7]},
    "[1152921504606846977, 1152921504606846976, 0.5]": [2**60 + 1, 2**60, Decimal("0.5")],
    '[null, "O"]': [None, "O"],
}


def test_each_value_of_json_lines_is_read_by_itself(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"a": {value}}}\n' for value in VALUES))
    found = read_table(tmp_path / "a.jsonl").columns["a"]
    assert list(map(repr, found)) == list(map(repr, VALUES.values()))


def test_a_name_that_an_object_lacks_is_none(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 5}\n{"b": "x", "a": 6}\n{}\n')
    assert read_table(tmp_path / "a.jsonl").columns == {"a": [5, 6, None], "b": [None, "x", None]}


def test_a_quoted_value_of_a_tsv_may_have_tabs_and_line_breaks(tmp_path):
    (tmp_path / "a.tsv").write_bytes(tsv([["text", "label"], ["a\tb\nc\t1", "0"]]))
    assert read_table(tmp_path / "a.tsv").columns["text"] == ["a\tb\nc\t1"]


def test_a_false_length_in_an_arrow_file_is_refused(tmp_path):
    content = table_of("arrow", pyarrow.table({"text": ["abc", "defghijk"]}))
    (tmp_path / "a.arrow").write_bytes(content.replace(struct.pack("<3i", 0, 3, 11), struct.pack("<3i", 0, 2**28, 11)))
    with pytest.raises(UserError, match="a.arrow cannot be read: .*offset"):
        read_table(tmp_path / "a.arrow")


@pytest.mark.parametrize("metadata", ["{", '{"info": 5}', '{"info": {"features": {"label": {"_type": "ClassLabel"}}}}'])
def test_wrong_metadata_of_an_arrow_file_is_refused(tmp_path, metadata):
    table = pyarrow.table({"label": [0, 1]}).replace_schema_metadata({"huggingface": metadata})
    (tmp_path / "a.arrow").write_bytes(table_of("arrow", table))
    with pytest.raises(UserError, match="a.arrow cannot be read: (JSONDecode|Attribute|Key)Error: "):
        read_table(tmp_path / "a.arrow")


def test_columns_of_numbers_are_flush_right_and_bars_are_escaped():
    table = markdown_table(["name", "F1", "n"], [["a|b", "7.50", "12"], ["cat", "", "-3"]])
    assert table.splitlines() == [
        "| name |   F1 |  n |",
        "|------|-----:|---:|",
        "| a\\|b | 7.50 | 12 |",
        "| cat  |      | -3 |",
    ]
