import io
import struct

import pyarrow as pa
import pytest

from data_prep.archives import FileFault, read_errors
from data_prep.documents import Origin
from data_prep.readers import tables
from data_prep.readers.tables import read_rows, row_ranges
from tests.data_prep.reading import READER_SETTINGS, lines_of
from tests.data_prep.texts import table_of

ROWS = [f"row {i}" for i in range(11)]
KINDS = pytest.mark.parametrize("kind", ["parquet", "arrow file", "arrow"])


def write(path, kind: str, content: pa.Table) -> str:
    path.write_bytes(table_of(kind, content))
    return str(path)


def read(path: str, begin=0, end=None, rows_are_sentences=False) -> list[list[str]]:
    with read_errors(path), open(path, "rb") as stream:
        return lines_of(read_rows(stream, Origin(path, begin), READER_SETTINGS, end, rows_are_sentences))


@KINDS
def test_a_row_is_a_document_whose_lines_are_paragraphs(tmp_path, kind):
    path = write(tmp_path / "a", kind, pa.table({"id": [0, 1, 2], "text": ["a\n\nb", "", "c"]}))
    with open(path, "rb") as stream:
        assert tables.table_of(stream.read(8)) == kind.split()[0]
    assert read(path) == [["a", "b"], ["c"]]


@KINDS
@pytest.mark.parametrize(("num_rows", "are_sentences"), [(1, False), (3, True)])
@pytest.mark.parametrize("unit_bytes", [1, 30, 80, 10_000])
def test_ranges_of_rows_have_the_documents_of_the_whole_table(tmp_path, kind, num_rows, are_sentences, unit_bytes):
    path = write(tmp_path / "a", kind, pa.table({"id": list(range(11)), "text": ROWS}))
    with open(path, "rb") as stream:
        ranges = row_ranges(stream, unit_bytes, num_rows)
    assert [ranges[0][0], ranges[-1][1]] == [0, 11]
    documents = [lines for begin, end in ranges for lines in read(path, begin, end, are_sentences)]
    assert documents == [ROWS[i : i + num_rows] for i in range(0, 11, num_rows)]


@KINDS
@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"id": [1], "content": ["a"]}, "no column 'text' of strings.* 'id' of int64, 'content' of string"),
        ({"text": ["a"], " text": ["b"]}, "or several.* 'text' of string, 'text'"),
        ({"text": [1, 2]}, "'text' of int64"),
    ],
)
def test_a_table_without_a_column_of_strings_is_left_out(tmp_path, kind, columns, complaint):
    content = pa.table(list(map(pa.array, columns.values())), [name.strip() for name in columns])
    with pytest.raises(FileFault, match=complaint):
        read(write(tmp_path / "a", kind, content))


@pytest.mark.parametrize("column_type", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_all_string_types_are_read(tmp_path, column_type):
    content = pa.table({"text": pa.array(["a", "b", "a"]).cast(column_type)})
    assert read(write(tmp_path / "a", "arrow", content)) == [["a"], ["b"], ["a"]]


def test_a_false_length_in_an_arrow_file_is_damage(tmp_path):
    content = table_of("arrow", pa.table({"text": ["abc", "defghijk"]}))
    (tmp_path / "a").write_bytes(content.replace(struct.pack("<3i", 0, 3, 11), struct.pack("<3i", 0, 2**28, 11)))
    with pytest.raises(FileFault, match="is damaged: .*offset"):
        read(str(tmp_path / "a"))


def test_rows_before_a_false_length_are_read(tmp_path):
    content, table = io.BytesIO(), pa.table({"text": ["a", "bc", "def", "ghij"]})
    with pa.ipc.new_stream(content, table.schema) as writer:
        writer.write_table(table)
    false = content.getvalue().replace(struct.pack("<3i", 3, 6, 10), struct.pack("<3i", 3, 2**28, 10))
    (tmp_path / "a").write_bytes(false)
    assert read(str(tmp_path / "a"), 0, 2) == [["a"], ["bc"]]
    with pytest.raises(FileFault, match="is damaged: .*offset"):
        read(str(tmp_path / "a"), 2, 4)


def test_a_file_that_is_no_table_is_named_by_its_beginning(tmp_path):
    (tmp_path / "a").write_bytes(b"id,text\n1,a\n")
    with pytest.raises(FileFault, match="begins with b'id,text"):
        read(str(tmp_path / "a"))
