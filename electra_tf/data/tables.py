"""Tables: read as columns from CSV, TSV, JSON lines, parquet and Arrow files; written as TSV and as Markdown."""

import csv
import io
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from electra_tf import files
from electra_tf.config.errors import UserError, did_you_mean, first_line, list_briefly, wrong_contents

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Table:
    """The columns of a file."""

    source: str  # the file's path
    columns: Mapping[str, list[Any]]  # by name: text from CSV and TSV, any value from other formats; None: missing
    rows: Sequence[int]  # the line at which each row begins, counted from 1; of other formats than text its number
    # By column, the names of the integer labels, which the `datasets` library stores beside them.
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rows:
            raise UserError(f"{self.source} has no examples; expected at least one row")

    def __fspath__(self) -> str:
        """The source: a table in memory may stand in place of a path, see `read_table`."""
        return self.source

    __str__ = __fspath__

    def column(self, name: str) -> list[Any]:
        """Raises: UserError: the file has no such column."""
        if name not in self.columns:
            raise UserError(f"{self.source} has no column {name!r}{did_you_mean(name, self.columns)}")
        return self.columns[name]

    def labels(self, name: str) -> list[Any]:
        """The values of a column of labels or lists, as names if the file has any. Raises: UserError: no such id."""
        names, values = self.class_names.get(name, ()), self.column(name)
        known = dict.fromkeys((-1, None, "", "-", "-1")) | dict(enumerate(names)) | {each: each for each in names}

        def named(value: Any, row: int) -> Any:
            if isinstance(value, list):
                return [named(each, row) for each in value]
            if value not in known and value == value:  # NaN is no label
                expected = f"expected the id of one of: {list_briefly(names)}"
                raise UserError(f"{self.where(row)} has {value!r} as {name!r}, {expected}")
            return known.get(value)

        return [named(value, row) for row, value in enumerate(values)] if names else values

    def texts(self, name: str) -> list[str]:
        """The values of a column of strings. Raises: UserError: it has other values, or there is none."""
        values = self.column(name)
        for row, value in enumerate(values):
            if not isinstance(value, str):
                raise UserError(f"{self.where(row)} has {value!r} in column {name!r}, expected a string")
        return values

    def where(self, row: int) -> str:
        """FILE:NUMBER of a row, for messages."""
        return f"{self.source}:{self.rows[row]}"


def read_table(path: str | os.PathLike[str]) -> Table:
    """Reads a file; the extension of its name determines the format.

    Args:
        path: a local file, or a URL that TensorFlow reads, such as `gs://`: `.csv` or `.tsv` with a header, `.parquet`
            or `.arrow`; with another extension, such as `.jsonl`, one JSON object per line. A `Table` is returned.
    Raises: UserError: there is no such file, it cannot be parsed, or it has no rows.
    """
    if isinstance(path, Table):
        return path
    path = os.fspath(path)
    ending = os.path.splitext(path)[1].lower()
    if ending in (".csv", ".tsv"):
        return read_separated(path, "," if ending == ".csv" else "\t")
    if ending in (".parquet", ".arrow"):
        table = _read_arrow(path, ending)
        return table_of(path, table, range(1, table.num_rows + 1))
    return read_json_lines(path)


def read_separated(
    path: str,
    delimiter: str,
    has_quotes: bool = True,
    header: Sequence[str] | None = None,
    max_wrong_rows: int = 0,
) -> Table:
    """Reads a CSV or TSV file, every value as text.

    Args:
        has_quotes: False if `"` is an ordinary character.
        header: the names of the columns; None if the first row holds them.
        max_wrong_rows: rows with a wrong number of columns are left out, with a warning, up to this number.
    Raises: UserError: see `read_table`; or more rows have a wrong number of columns, or a value begins with a
            quote and goes on after the next one.
    """
    text = read_text(path).rstrip("\r\n")
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE,
        strict=True,
    )
    names, line = header or (), 1
    rows: dict[int, list[str]] = {}  # by their lines
    wrong: list[str] = []
    try:
        for values in reader:
            if not values and len(names) == 1:
                values = [""]  # an empty line of a single column
            if not names:
                names = values
            elif len(values) == len(names):
                rows[line] = values
            elif values and len(wrong) < max_wrong_rows:
                wrong.append(str(line))
            elif values:
                raise UserError(f"{path}:{line} has {len(values)} columns, expected {len(names)}")
            line = reader.line_num + 1
    except csv.Error:
        raise UserError(
            f"{path}:{line}: a value that begins with a quote does not end at the next one; put the value into "
            "quotes and double those inside it, or write .jsonl"
        ) from None
    if wrong:
        shown = ", ".join(wrong)
        logger.warning("%s: left out %d rows that do not have %d columns: %s", path, len(wrong), len(names), shown)
    return Table(path, _by_name(path, names, list(map(list, zip(*rows.values(), strict=True)))), list(rows))


def _by_name(path: str, names: Sequence[str], columns: Sequence[list[Any]]) -> dict[str, list[Any]]:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise UserError(f"{path} has the column {repeated[0]!r} twice; rename one of them")
    return dict(zip(names, columns, strict=False))  # a file without rows has none


def read_existing(path: str | os.PathLike[str]) -> bytes:
    """The content of a file. Raises: UserError: it does not exist or cannot be read."""
    if (content := files.read_bytes(path)) is None:
        raise UserError(f"{path} does not exist")
    return content


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a UTF-8 file, without a byte order mark. Raises: UserError: it cannot be read, or is not UTF-8."""
    content = read_existing(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1  # counted without the mark
        raise UserError(f"{path}:{line} is not UTF-8; convert the file to UTF-8") from None


def read_json_lines(path: str) -> Table:
    """Reads a file of JSON objects, one a line, whatever its name. Raises: UserError: see `read_table`.

    Each value is read by itself and numbers are exact: a fraction is a `Decimal` with the file's digits, and 3.0, as
    pandas writes an integer beside a missing value, is 3. A name that an object lacks is None.
    """
    objects, rows = [], []
    # A decoder with arguments is slow to build.
    decoder = json.JSONDecoder(parse_float=lambda text: int(text[:-2]) if text.endswith(".0") else Decimal(text))
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            objects.append({**decoder.decode(line)})
            if "\\u" in line:  # half of a surrogate pair is no text
                json.dumps(objects[-1], ensure_ascii=False, default=str).encode()
        except (ValueError, TypeError, RecursionError) as error:
            expected = "expected a JSON object a line, as `jq -c .` writes them, or of an array `jq -c '.[]'`"
            raise UserError(f"{path}:{number} cannot be read: {first_line(error)}; {expected}") from None
        rows.append(number)
    return Table(path, columns_of(objects), rows)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The columns of rows, None where a row lacks one."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def _read_arrow(path: str, ending: str) -> Any:
    import pyarrow  # takes 0.2 s
    from pyarrow import ipc, parquet

    content = read_existing(path)
    try:
        if ending == ".parquet":
            return parquet.read_table(pyarrow.BufferReader(content))
        # The `datasets` library saves streams, other programs files.
        table = (ipc.open_file if content.startswith(b"ARROW1") else ipc.open_stream)(content).read_all()
        table.validate(full=True)  # else a false length reads beyond the file
        return table
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from None


def table_of(path: str, table: Any, rows: Sequence[int]) -> Table:
    """The columns of a `pyarrow.Table`; `path` names it in messages. Raises: UserError: no rows, or a name twice."""
    columns = _by_name(path, table.column_names, [column.to_pylist() for column in table.columns])
    # The metadata that the `datasets` library writes into a schema.
    class_names = {}
    with wrong_contents(path):
        metadata = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
        for name, feature in metadata.get("info", {}).get("features", {}).items():
            each = feature[0] if isinstance(feature, list) else feature.get("feature", feature)  # of a list of labels
            if isinstance(each, dict) and each.get("_type") == "ClassLabel":
                class_names[name] = tuple(each["names"])
    return Table(path, columns, rows, class_names)


def tsv(rows: Iterable[Sequence[Any]]) -> bytes:
    """Rows as lines with tabs between the values, in UTF-8."""
    stream = io.StringIO(newline="")
    plain = csv.writer(stream, csv.excel_tab, lineterminator="\n")
    quoted = csv.writer(stream, csv.excel_tab, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        # Before Python 3.13, the first takes a carriage return for an ordinary character; no reader does.
        (quoted if any("\r" in str(value) for value in row) else plain).writerow(row)
    return stream.getvalue().encode()


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Texts as a Markdown table, which is aligned in a terminal too: columns of numbers flush right, others flush left.

    The last line has no line break.
    """
    cells = [[text.replace("|", "\\|") for text in row] for row in (headings, *rows)]
    formats, rules = [], []
    for column in zip(*cells, strict=True):
        width, is_number = max(map(len, column)), all(re.match(r"[-\d]|$", text) for text in column[1:])
        formats.append(f"{{:{'>' if is_number else '<'}{width}}}")
        rules.append("-" * (width + 1) + (":" if is_number else "-"))
    heading, *lines = (f"| {' | '.join(formats)} |".format(*row) for row in cells)
    return "\n".join([heading, f"|{'|'.join(rules)}|", *lines])
