"""A user's tables, CSV, TSV, JSON lines or parquet, as examples: texts, labels, and where each one stands."""

import csv
import difflib
import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError, first_line

Problem = Literal["classification", "multi_label", "regression"]

ID_COLUMNS = ("id", "idx", "index")  # the first of these that a file has names its examples
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
        nearest = difflib.get_close_matches(name, list(self.columns), n=1, cutoff=0.5)
        question = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise UserError(f"{self.source} has no column {name!r}, its columns are {_listed(self.columns)}{question}")

    def where(self, row: int) -> str:
        """`file:line` of a row, for messages."""
        return f"{self.source}:{self.lines[row]}"


@dataclass(frozen=True)
class TextExamples:
    """The examples of a split, N of them, as they were read.

    Attributes:
        texts: one or two columns of N texts.
        labels: N labels: str, for regression float, with several labels an example tuple[str, ...]; None if not read.
        ids: what a prediction is called by: the file's own id, else the number of the row from 0.
        source, lines: the file and, for each example, its line from 1.
    """

    texts: tuple[list[str], ...]
    labels: list | None
    ids: list[str]
    source: str
    lines: list[int]

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, index: int) -> str:
        """`file:line` of an example, for messages."""
        return f"{self.source}:{self.lines[index]}"


def read_examples(
    path: str | os.PathLike, text_columns: Sequence[str], label_column: str | None, problem: Problem
) -> TextExamples:
    """Reads one or two columns of text and their labels from a file of a user's own.

    Args:
        path: `.csv`, `.tsv` (both quoted as csv quotes, with a header), `.jsonl` or `.json` (one object a line), or
            `.parquet`; a file or a URL that TensorFlow reads, such as `gs://`.
        label_column: None to read no labels, for prediction. Several labels of an example are a list, in CSV and TSV a
            JSON list or names with commas between them.
    Raises: UserError: unreadable or empty file, a row of another width, broken JSON, a missing column, text or label;
        each names the line.
    """
    return examples_of(read_table(path), text_columns, label_column, problem)


def examples_of(table: Table, text_columns: Sequence[str], label_column: str | None, problem: Problem) -> TextExamples:
    """The examples in a table's columns; see `read_examples`."""
    used = [*text_columns, *([label_column] if label_column else [])]
    texts = tuple(_texts(table, name) for name in text_columns)
    labels = None
    if label_column:
        values = _class_texts(table, label_column)
        labels = [_LABEL_READERS[problem](value, table.where(row), label_column) for row, value in enumerate(values)]
    return TextExamples(texts, labels, _ids(table, used), table.source, table.lines)


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
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    except tf.errors.OpError as error:
        raise UserError(f"cannot read {path}: {first_line(error)}; give a file that exists") from None


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
            elif len(row) != len(header):
                raise UserError(
                    f"{path}:{begin} has {len(row)} fields, expected {len(header)} ({_listed(header)}); quote a field "
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


def _class_texts(table: Table, name: str) -> list:
    """The values of a column of labels, with the names of classes for their numbers where the file has names."""
    names = table.class_names.get(name)
    if names is None:
        return table.column(name)
    return [names[value] if value is not None and value >= 0 else None for value in table.column(name)]


def _texts(table: Table, name: str) -> list[str]:
    values = table.column(name)
    for row, value in enumerate(values):
        if not isinstance(value, str):
            found = f"no {name!r}" if value is None else f"{value!r} as {name!r}"
            raise UserError(f"{table.where(row)} has {found}, expected a text")
    return values


def _ids(table: Table, used: Sequence[str]) -> list[str]:
    for name in ID_COLUMNS:
        if name in table.columns and name not in used and None not in table.columns[name]:
            return [str(value) for value in table.columns[name]]
    return [str(row) for row in range(len(table.lines))]


def _class_label(value: Any, where: str, column: str) -> str:
    if isinstance(value, list):
        raise UserError(f"{where} has several labels as {column!r}; --task=multi_label takes such files")
    if value is None or value == "":
        raise UserError(f"{where} has no {column!r}, expected a label")
    return str(value)


def _label_tuple(value: Any, where: str, column: str) -> tuple[str, ...]:
    if isinstance(value, str):
        if value.startswith("["):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise UserError(f"{where} has {value!r} as {column!r}, which is no JSON list: {error.msg}") from None
        else:
            value = [label for label in map(str.strip, value.split(",")) if label]
    if not isinstance(value, list):
        raise UserError(f"{where} has {value!r} as {column!r}, expected a list of labels")
    return tuple(dict.fromkeys(map(str, value)))


def _number(value: Any, where: str, column: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{where} has {value!r} as {column!r}, expected a number; --task=classification takes names")
    return number


_LABEL_READERS: dict[str, Callable[[Any, str, str], Any]] = {
    "classification": _class_label,
    "multi_label": _label_tuple,
    "regression": _number,
}


def with_swapped_pairs(examples: TextExamples) -> TextExamples:
    """The examples, then all of them again with their two texts exchanged, for tasks in which the order says nothing.

    Source: google-research/electra, `double_unordered`, which does so for MRPC and STS-B.
    """
    first, second = examples.texts
    return TextExamples(
        texts=(first + second, second + first),
        labels=None if examples.labels is None else examples.labels * 2,
        ids=examples.ids * 2,
        source=examples.source,
        lines=examples.lines * 2,
    )


def label_set(examples: TextExamples, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """The labels to learn, in the order of their numbers.

    Args:
        examples: of the training split, with labels of classification or `multi_label`.
        given: the labels in an order of the user's; None takes those of the examples in sorted order, as numbers if
            all of them are numbers.
    Raises: UserError: a label given twice, no label, or one class only.
    """
    flat = [name for label in examples.labels for name in ([label] if isinstance(label, str) else label)]
    labels = tuple(given) if given is not None else tuple(sorted(set(flat), key=_sort_key(set(flat))))
    if len(set(labels)) < len(labels):
        raise UserError(f"the labels {_listed(labels)} hold one twice; give each once")
    if not labels:
        raise UserError(f"{examples.source} has no labels; training needs at least one")
    if isinstance(examples.labels[0], str) and len(set(flat)) < 2:
        raise UserError(
            f"{examples.source} has one class only, {flat[0]!r} in all {len(flat)} examples; training needs two or more"
        )
    return labels


def _sort_key(labels: set[str]) -> Callable[[str], Any]:
    try:
        numbers = {label: float(label) for label in labels}
    except ValueError:
        return str
    return (lambda label: (numbers[label], label)) if all(map(math.isfinite, numbers.values())) else str


def class_targets(examples: TextExamples, labels: Sequence[str]) -> np.ndarray:
    """The number of each example's label: [N] int32. Raises: UserError: a label that is not among `labels`."""
    number_of = {label: number for number, label in enumerate(labels)}
    for index, label in enumerate(examples.labels):
        if label not in number_of:
            raise _unknown_label(examples.where(index), label, labels)
    return np.array([number_of[label] for label in examples.labels], np.int32)


def multi_label_targets(examples: TextExamples, labels: Sequence[str]) -> np.ndarray:
    """1 where an example has a label: [N, C] int32. Raises: UserError: a label that is not among `labels`."""
    number_of = {label: number for number, label in enumerate(labels)}
    targets = np.zeros((len(examples), len(labels)), np.int32)
    for index, names in enumerate(examples.labels):
        for name in names:
            if name not in number_of:
                raise _unknown_label(examples.where(index), name, labels)
            targets[index, number_of[name]] = 1
    return targets


def _unknown_label(where: str, label: str, labels: Sequence[str]) -> UserError:
    return UserError(
        f"{where} has the label {label!r}, expected one of the training file's: {_listed(labels)}; correct it or train "
        "with that label"
    )


def target_range(examples: TextExamples) -> tuple[float, float]:
    """The smallest and largest number of a training split. Raises: UserError: all are the same."""
    smallest, largest = min(examples.labels), max(examples.labels)
    if smallest == largest:
        raise UserError(f"{examples.source} has {smallest} as every label; regression needs different numbers")
    return smallest, largest


def scaled_targets(examples: TextExamples, smallest: float, largest: float) -> np.ndarray:
    """The numbers, `smallest` as 0 and `largest` as 1: [N] float32."""
    return ((np.array(examples.labels, np.float64) - smallest) / (largest - smallest)).astype(np.float32)


def class_weights(
    targets: np.ndarray, labels: Sequence[str], setting: Literal["balanced"] | Mapping[str, float]
) -> np.ndarray:
    """The weight of each class in the loss: [C] float32.

    Args:
        targets: [N] int32, of the training split.
        setting: "balanced" weighs a class by N / (C * its examples), as scikit-learn does; else weights by label, 1 for
            a label that is not named.
    Raises: UserError: a weight of an unknown label, or a class without an example where "balanced".
    """
    if setting == "balanced":
        counts = np.bincount(targets, minlength=len(labels))
        if not counts.all():
            missing = labels[int(np.argmin(counts))]
            raise UserError(f"class weights 'balanced': no training example has the label {missing!r}; give weights")
        return (len(targets) / (len(labels) * counts)).astype(np.float32)
    if unknown := [label for label in setting if label not in labels]:
        raise UserError(f"class weights name the label {unknown[0]!r}, expected one of {_listed(labels)}")
    return np.array([setting.get(label, 1.0) for label in labels], np.float32)


def _listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    shown = [name if len(name) <= 40 else f"{name[:37]}..." for name in list(names)[:_SHOWN_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
