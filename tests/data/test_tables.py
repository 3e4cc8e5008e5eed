"""Tables: the place in messages about JSON lines, quotes in TSV. (What uses the tables has the other tests.)"""

import pytest

from electra_tf.config.errors import UserError
from electra_tf.data.tables import read_table, tsv


def test_a_value_with_a_carriage_return_is_quoted():
    content = tsv([["id", "label"], ["a\rb", "c"], ["d", 4]])
    assert content == b'id\tlabel\n"a\rb"\t"c"\nd\t4\n'


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'{"a": "x"}\n{"a": "y"}\nnot JSON\n', ":3 cannot be read: JSON parse error: Invalid value."),
        (b'{"a": "x"}\n{"a": 5}\n', ":2 cannot be read"),
        (b'{"a": "x"}\n{"a": "\xff"}\n', ":2 is not UTF-8"),
        (b"", " cannot be read: Empty JSON file"),
    ],
)
def test_a_message_about_json_lines_names_the_line(tmp_path, content, place):
    path = tmp_path / "table.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_table(path)
    assert str(caught.value).startswith(f"{path}{place}")
