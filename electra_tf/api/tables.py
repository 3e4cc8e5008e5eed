"""Data in memory as tables for the readers of the commands."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table, columns_of, table_of
from electra_tf.tasks.finetune.examples import UNSTATED_COLUMNS

_ROWS_AT_ONCE = 10_000


def as_table(data: Any, text_columns: Sequence[str], name: str) -> Table:
    """A table of pandas, pyarrow or the `datasets` library, rows, columns, texts or tuples of texts.

    Args:
        text_columns: the names of texts' columns; empty for `UNSTATED_COLUMNS`.        name: of the data, for messages.
    Raises: UserError: it is none of these or has no rows, or its columns do not fit together.
    """
    import pyarrow  # takes 0.1 s

    # Tables of the `datasets` library state the names of classes.
    if hasattr(data, "with_format") and hasattr(data, "iter"):
        data = pyarrow.concat_tables(data.with_format("arrow").iter(_ROWS_AT_ONCE))
    if isinstance(data, pyarrow.Table):
        return table_of(name, data, range(1, data.num_rows + 1))
    given = _columns_of(data, tuple(text_columns), name)
    columns = {str(key): _values(column) for key, column in given.items()}
    lengths = {key: len(column) for key, column in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{length} in {key!r}" for key, length in lengths.items())
        raise UserError(f"{name} has columns of different lengths: {found}")
    return Table(name, columns, range(1, max(lengths.values(), default=0) + 1))


def _columns_of(data: Any, text_columns: tuple[str, ...], name: str) -> dict[str, Any]:
    if hasattr(data, "columns") and hasattr(data, "to_dict"):  # of pandas
        return {key: data[key] for key in data.columns}
    if isinstance(data, Mapping):
        return {key: as_list(values, name) for key, values in data.items()}
    rows = as_list(data, name)
    if rows and all(isinstance(row, Mapping) for row in rows):
        return columns_of(rows)
    is_one = (str, bytes, Mapping)
    rows = [(row,) if isinstance(row, is_one) or not isinstance(row, Iterable) else tuple(row) for row in rows]
    text_columns = text_columns or UNSTATED_COLUMNS[: max(1, *map(len, rows[:1]))]
    expected = "a text" if len(text_columns) == 1 else f"{len(text_columns)} texts: {', '.join(text_columns)}"
    for number, row in enumerate(rows, start=1):
        if len(row) != len(text_columns) or not all(isinstance(text, str) for text in row):
            found = " ".join(repr(row[0] if len(row) == 1 else row).split())
            raise UserError(f"{name}:{number} is {found:.80}, expected {expected}")
    return {key: [row[index] for row in rows] for index, key in enumerate(text_columns)}


def _values(column: Any) -> list[Any]:
    """The values as pyarrow would read them from a file, None where one is missing; as they are if types are mixed."""
    column = [sorted(value, key=str) if isinstance(value, set | frozenset) else value for value in column]
    import pyarrow

    try:
        return pyarrow.array(column, from_pandas=True).to_pylist()
    except (pyarrow.ArrowException, OverflowError):
        missing = ("<NA>", "nan", "NaT")  # the first cannot be compared
        return [None if not isinstance(value, str) and str(value) in missing else value for value in column]


def as_list(values: Any, name: str, expected: str = "a table, rows or a list of texts") -> list[Any]:
    """The values of any list. Raises: UserError: it is a single value or a table; the message names it as `name`."""
    if hasattr(values, "to_pylist"):  # of pyarrow
        return values.to_pylist()
    is_one = isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
    if is_one or hasattr(values, "columns"):  # of pandas
        found = "one text; put it into brackets" if isinstance(values, str) else type(values).__name__
        raise UserError(f"{name}: expected {expected}, found {found}")
    return list(values)
