"""Data in memory as tables."""

import json

import numpy as np
import pyarrow
import pytest

from electra_tf.api.tables import as_table
from electra_tf.config.errors import UserError

pandas = pytest.importorskip("pandas")  # tf-models-official brings it

ROWS = [{"title": "w5", "topic": 3}, {"title": "w6", "topic": None}]


@pytest.mark.parametrize(
    "data",
    [
        pyarrow.Table.from_pylist(ROWS),
        pandas.DataFrame({"title": ["w5", "w6"], "topic": [3, None]}, index=[7, 9], dtype=object),
        ROWS,
        {"title": ("w5", "w6"), "topic": [3, None]},
        pyarrow.RecordBatch.from_pylist(ROWS),
        iter(ROWS),
    ],
    ids=["pyarrow", "pandas", "rows", "columns", "batch", "iterator"],
)
def test_every_kind_of_table_has_the_same_rows(data):
    table = as_table(data, ("text",), "train")
    assert (table.source, table.columns) == ("train", {"title": ["w5", "w6"], "topic": [3, None]})


class Dataset:
    """The part of a `datasets.Dataset` that is read: pyarrow's tables of its rows, whose schema names the classes."""

    def __init__(self, table: pyarrow.Table):
        self._table = table

    def with_format(self, kind: str) -> "Dataset":
        assert kind == "arrow"
        return self

    def iter(self, batch_size: int):
        yield from (self._table[:1], self._table[1:])

    def __iter__(self):
        raise AssertionError("rows have the ids alone")


def test_a_dataset_in_memory_keeps_the_names_of_its_classes():
    features = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    rows = pyarrow.table({"text": ["w5", "w6"], "label": [1, 0]}).replace_schema_metadata(metadata)
    assert as_table(Dataset(rows), ("text",), "train").labels("label") == ["yes", "no"]


@pytest.mark.parametrize(
    ("data", "names", "columns"),
    [
        (["w5", "w6"], ("title",), {"title": ["w5", "w6"]}),
        (("w5",), (), {"text": ["w5"]}),
        (np.array(["w5"]), (), {"text": ["w5"]}),
        (pandas.Series(["w5"], index=[7]), (), {"text": ["w5"]}),
        (pandas.Series(["w5"]).astype("category"), (), {"text": ["w5"]}),
        (pyarrow.chunked_array([["w5"]]), (), {"text": ["w5"]}),
        ([("w5", "w6")], ("question", "answer"), {"question": ["w5"], "answer": ["w6"]}),
        ([("w5", "w6")], (), {"text": ["w5"], "text_pair": ["w6"]}),
        ([{"text": "w5"}, {"id": "x", "text": "w6"}], (), {"text": ["w5", "w6"], "id": [None, "x"]}),
        (pandas.DataFrame({"text": ["w5", None], 7: [1, "x"]}), (), {"text": ["w5", None], "7": [1, "x"]}),
    ],
)
def test_columns_have_the_names_of_texts_or_of_the_table(data, names, columns):
    assert as_table(data, names, "inputs").columns == columns


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("w5", "expected a table, rows or a list of texts, found one text; put it into brackets"),
        (["w5", None], "^train:2 is None, expected a text"),
        ({"title": ["w5"], "topic": [3, 4]}, "^train has columns of different lengths: 1 in 'title', 2 in 'topic'"),
        (["w5", ("w5", "w6")], r"^train:2 is \('w5', 'w6'\), expected a text"),
        ({"title": []}, "^train has no examples"),
    ],
)
def test_what_is_no_table_is_refused(data, message):
    with pytest.raises(UserError, match=message):
        as_table(data, ("title",), "train")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{"b", "a"}, frozenset({"c"}), ("d", "e")], [["a", "b"], ["c"], ["d", "e"]]),
        ([2**63, 2**63 + 1, 0.5], [2**63, 2**63 + 1, 0.5]),
        (["x", pandas.NA, 5, float("nan")], ["x", None, 5, None]),
    ],
    ids=["sets", "numbers", "mixed"],
)
def test_sets_are_sorted_lists_and_values_of_several_types_are_exact(values, expected):
    for column in (values, pandas.Series(values, dtype=object)):
        assert as_table({"label": column}, (), "train").columns == {"label": expected}
