"""JSON lines: each line is an object with a field that holds the text of a document."""

import functools
import json
from collections.abc import Callable, Iterator
from typing import BinaryIO

from data_prep.readers.documents import WITHOUT_TEXT, Document, Origin, ReadCounts, decode, read_or_skip
from data_prep.readers.lines import LineReader, collect_documents, split_lines
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import DatasetSettings

# A line is parsed in one piece, which takes a multiple of its size in memory. A longer line is cut and refused.
MAX_JSON_LINE_BYTES = 2**26


def read_json_lines(
    stream: BinaryIO,
    origin: Origin,
    settings: DatasetSettings,
    counts: ReadCounts,
    convert: Callable[[str], str] = str,
) -> Iterator[Document]:
    """Documents of JSON lines: the lines of the field `settings.text_field` are paragraphs. See `TextFormat`.

    A line with null or white space in this field is counted as skipped. `convert` is applied to each document's text.

    Raises: UserError: a line is not a JSON object with a string or null in this field.
    """

    def lines() -> Iterator[str | None]:
        reader = LineReader(stream, origin, MAX_JSON_LINE_BYTES)
        for block in reader.blocks():
            offset = reader.offset - len(block)
            for raw_line in block.split(b"\n"):
                if raw_line and not raw_line.isspace():
                    place = Origin(origin.path, offset)
                    read = functools.partial(_text, place=place, text_field=settings.text_field, counts=counts)
                    yield from split_lines(convert(read_or_skip(read, raw_line, place, "", counts) or ""))
                    yield None
                offset += len(raw_line) + 1

    return collect_documents(lines(), has_paragraphs=True, counts=counts)


def is_json(raw_line: bytes) -> bool:
    try:
        json.loads(raw_line)
    except (ValueError, RecursionError):
        return False
    return True


def _text(raw_line: bytes, place: Origin, text_field: str, counts: ReadCounts) -> str:
    line = decode(raw_line, place.path, place.offset)
    where = f"{place.path} at offset {place.offset}"
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: the line is not JSON ({error})") from None
    text = fields.get(text_field, ...) if isinstance(fields, dict) else ...
    if text is not None and not isinstance(text, str):
        raise UserError(
            f"{where}: the line has no string field {text_field!r}; name the field with the text in --text_field:"
            f" {line.strip()[:100]}"
        )
    if not text or text.isspace():
        counts.num_documents_skipped[WITHOUT_TEXT] += 1
        return ""
    # An escape such as "\ud800" gives half of a surrogate pair, which UTF-8 cannot represent.
    return text.encode("utf-8", "ignore").decode("utf-8")


def begins_json_line(line: bytes) -> bool:
    """Whether a document begins at `line`: true unless the line is blank."""
    return not line.isspace()
