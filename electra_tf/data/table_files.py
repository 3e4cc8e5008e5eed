"""Files of rows: CSV, TSV, JSON lines and parquet as columns, and the reading of texts that all data here shares."""

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from electra_tf import files
from electra_tf.config.errors import UserError, did_you_mean, first_line

_LONGEST_FIELD = 2**31 - 1  # characters; csv's own limit of 131,072 is less than a long document has
_SHOWN_NAMES = 20


@dataclass(frozen=True)
class Table:
    """The columns of a file.

    Attributes:
        source: the file's path.
        columns: by name, one value a row: text from CSV and TSV, any value from JSON and parquet, None where a row has
            none.
        lines: the line a row begins on, from 1; in parquet the number of the row, from 1.
        class_names: by column, the names of classes that parquet of the `datasets` library stores as numbers.
    """

    source: str
    columns: Mapping[str, list]
    lines: list[int]
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def column(self, name: str) -> list:
        """The values of a column. Raises: UserError: there is none of that name."""
        if name in self.columns:
            return self.columns[name]
        raise UserError(f"{self.source} has no column {name!r}{did_you_mean(name, self.columns)}")

    def where(self, row: int) -> str:
        """`file:line` of a row, for messages."""
        return f"{self.source}:{self.lines[row]}"


def read_table(path: str | os.PathLike) -> Table:
    """Reads a whole file by the ending of its name. Raises: UserError: see `read_examples`."""
    path = os.fspath(path)
    ending = os.path.splitext(path)[1].lower()
    if ending not in _READERS:
        raise UserError(f"{path} ends in {ending or 'nothing'!r}, expected one of {', '.join(_READERS)}; rename it")
    table = _READERS[ending](path)
    if not table.lines:
        raise UserError(f"{path} has no examples; expected at least one row")
    return table


def read_bytes(path: str) -> bytes:
    """The content of a file or of a URL that TensorFlow reads. Raises: UserError: it cannot be read."""
    if (content := files.read_bytes(path)) is None:
        raise UserError(f"cannot read {path}: there is no such file; give a file that exists")
    return content


def read_text(path: str) -> str:
    """The text of a UTF-8 file, without a byte order mark. Raises: UserError: it cannot be read, or is not UTF-8."""
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line} is not UTF-8 at byte {error.start}; convert the file to UTF-8") from None


def json_objects(path: str) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its line from 1; empty lines are passed over.

    Raises: UserError: a line that is no JSON object.
    """
    objects = []
    # Only "\n" ends a line: U+2028, at which str.splitlines would cut, may stand in a JSON string.
    for line, text in enumerate(read_text(path).split("\n"), start=1):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{path}:{line} is no JSON: {error.msg} at column {error.colno}; expected one object a line"
            ) from None
        if not isinstance(value, dict):
            raise UserError(f"{path}:{line} holds a {type(value).__name__}, expected one JSON object a line")
        objects.append((line, value))
    return objects


def _read_csv(path: str) -> Table:
    return _read_separated(path, ",", "comma")


def _read_tsv(path: str) -> Table:
    return _read_separated(path, "\t", "tab")


def _read_separated(path: str, delimiter: str, delimiter_name: str) -> Table:
    csv.field_size_limit(_LONGEST_FIELD)
    # Strict: a quote that is never closed must not swallow the rows after it.
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    rows, lines = [], []
    begin = 1
    try:
        for row in reader:
            if not row:
                pass  # an empty line
            elif not header:
                header = row
                if len(row) == 1 and ";" in row[0]:
                    raise UserError(
                        f"{path} seems to be separated by ';', its first line is {row[0][:80]!r}; expected a "
                        f"{delimiter_name} between columns"
                    )
            elif len(row) != len(header):
                raise UserError(
                    f"{path}:{begin} has {len(row)} fields, expected {len(header)} ({listed(header)}); quote a field "
                    f"that holds a {delimiter_name}"
                )
            else:
                rows.append(row)
                lines.append(begin)
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f'{path}:{begin} cannot be read: {error}; quote fields as "...", and write a quote inside them twice'
        ) from None
    if repeated := [name for index, name in enumerate(header) if name in header[:index]]:
        raise UserError(f"{path} has the column {repeated[0]!r} twice; rename one of them")
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True)) if rows else {}
    return Table(path, columns, lines)


def _read_json_lines(path: str) -> Table:
    objects = json_objects(path)
    names = dict.fromkeys(name for _, value in objects for name in value)
    columns = {name: [value.get(name) for _, value in objects] for name in names}
    return Table(path, columns, [line for line, _ in objects])


def _read_parquet(path: str) -> Table:
    import pyarrow  # takes 0.2 s, which the other formats do not need
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(read_bytes(path)))
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is no parquet file: {first_line(error)}; give another file") from None
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    return Table(path, columns, list(range(1, table.num_rows + 1)), _class_names(table.schema.metadata or {}))


_READERS: dict[str, Callable[[str], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json_lines,
    ".json": _read_json_lines,
    ".parquet": _read_parquet,
}


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, tuple[str, ...]]:
    """The names of classes that the `datasets` library writes beside the columns of a parquet file."""
    features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    return {name: tuple(feature["names"]) for name, feature in features.items() if "names" in feature}


def listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    """Names for a message, the first of them if there are many."""
    shown = [name if len(name) <= 40 else f"{name[:37]}..." for name in list(names)[:_SHOWN_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
