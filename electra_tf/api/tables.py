"""Data in memory as tables for the readers of the commands, and their predictions as values."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow

from electra_tf.config.errors import UserError, first_line
from electra_tf.data.tables import Table, table_of

_NUMBERS = ("prediction", "label")  # columns of predictions that are numbers where the task is about numbers


def as_table(data: Any, text_columns: Sequence[str], name: str) -> Table:
    """A table of pandas or pyarrow, rows, columns, texts or tuples of texts.

    Args:
        text_columns: the names of texts' columns.        name: of the data, for messages.
    Raises: UserError: it is none of these, or its rows do not fit together.
    """
    try:
        table = _arrow_table(data, tuple(text_columns) or ("text",))
    except (pyarrow.ArrowException, ValueError) as error:
        raise UserError(f"{name}: {first_line(error)}; give columns of one length, with values of one type") from None
    return table_of(name, table, range(1, table.num_rows + 1))


def _arrow_table(data: Any, text_columns: tuple[str, ...]) -> pyarrow.Table:
    if isinstance(data, pyarrow.Table):
        return data
    if hasattr(data, "columns") and hasattr(data, "to_dict"):
        return pyarrow.Table.from_pandas(data, preserve_index=False)
    if isinstance(data, Mapping):
        return pyarrow.table({name: _listed(values) for name, values in data.items()})
    rows = _listed(data)
    if rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return pyarrow.table({name: [row.get(name) for row in rows] for name in names})
    rows = [(row,) if isinstance(row, str) else tuple(_listed(row)) for row in rows]
    for row in rows:
        if len(row) != len(text_columns) or not all(isinstance(text, str) for text in row):
            raise UserError(f"found {row!r:.80}, expected {len(text_columns)} texts: {', '.join(text_columns)}")
    return pyarrow.table({name: [row[index] for row in rows] for index, name in enumerate(text_columns)})


def _listed(values: Any) -> list:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise UserError(f"expected a table, rows or a list of texts, found {type(values).__name__}")
    return list(values)


def predictions_of(content: str, kind: str) -> list:
    """The predictions in a file that `run_finetuning.py --predict` wrote for a kind of task."""
    if kind == "question_answering":
        return [json.loads(line) for line in content.split("\n") if line]
    return _tagged_words(content) if kind == "tagging" else _columns(content, kind)


def _columns(content: str, kind: str) -> list[dict]:
    """The rows of a TSV file. Probabilities are numbers, and so are predictions of numbers."""
    rows = list(csv.DictReader(io.StringIO(content, newline=""), delimiter="\t"))
    numbers = _NUMBERS if kind in ("regression", "similarity") else ()
    for row in rows:
        for name, value in row.items():
            if value and (name in numbers or name.startswith("probability_")):
                row[name] = float(value)
    return rows


def _tagged_words(content: str) -> list[list[tuple[str, str, float | None]]]:
    """The sentences of a file of tagged words; a truncated word has no probability."""
    sentences = content.removesuffix("\n").split("\n\n")
    lines = [[line.split("\t") for line in sentence.split("\n") if line] for sentence in sentences]
    return [[(word, tag, float(share) if share else None) for word, *_, tag, share in each] for each in lines]
