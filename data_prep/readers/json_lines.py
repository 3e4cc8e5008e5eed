"""JSON lines: an object a line, whose field holds the text of a document."""

import json
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.readers.documents import Document, ReaderOptions, ReadReport, Source, decode
from data_prep.readers.lines import DocumentCollector, LineReader
from electra_tf.config.errors import UserError

# A line has to be parsed whole: this much, its text and the parsed text are held at once.
MAX_JSON_LINE_BYTES = 2**26


def read_json_lines(stream: BinaryIO, source: Source, options: ReaderOptions, report: ReadReport) -> Iterator[Document]:
    """Documents of JSON lines; see `TextFormat.documents`. `options.text_field` is the text; its lines are paragraphs.

    Raises: UserError: a line is no JSON object, has no such field, or a field that is no string.
    """
    return read_json_objects(stream, source, options.text_field, report)


def read_json_objects(stream: BinaryIO, source: Source, text_field: str, report: ReadReport) -> Iterator[Document]:
    """As `read_json_lines`. An unfinished last line of a file is where it was cut off."""
    collector = DocumentCollector(has_paragraphs=True, report=report)
    reader = LineReader(stream, source, MAX_JSON_LINE_BYTES)
    unfinished = b""
    for block in reader.blocks():
        if unfinished:
            raise UserError(
                f"{source.path} at offset {reader.offset - len(block) - len(unfinished)}: a line of more than"
                f" {MAX_JSON_LINE_BYTES} bytes; cut its text into several documents"
            )
        offset = reader.offset - len(block)
        *raw_lines, unfinished = block.split(b"\n")
        for raw_line in raw_lines:
            if raw_line and not raw_line.isspace():
                yield from collector.documents_of_text(_text(raw_line, source.path, offset, text_field))
            offset += len(raw_line) + 1
    if unfinished and not unfinished.isspace():
        offset = reader.offset - len(unfinished)
        if source.is_end and not _is_json(unfinished):
            report.truncations.append(f"{source.path} is cut off at byte {reader.offset}, in the middle of a JSON line")
        else:
            yield from collector.documents_of_text(_text(unfinished, source.path, offset, text_field))


def _is_json(raw_line: bytes) -> bool:
    try:
        json.loads(raw_line)
    except (ValueError, RecursionError):
        return False
    return True


def _text(raw_line: bytes, path: str, offset: int, text_field: str) -> str:
    line = decode(raw_line, path, offset)
    place = f"{path} at offset {offset}"
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: expected a JSON object on each line ({error}); mend or remove the line") from None
    if not isinstance(fields, dict):
        raise UserError(f"{place}: {line.strip()[:40]!r} is no JSON object; expected one on each line")
    if text_field not in fields:
        raise UserError(
            f"{place}: a JSON object without the field {text_field!r}; its fields are {', '.join(map(repr, fields))};"
            " name the one with the text in --text_field"
        )
    text = fields[text_field]
    if not isinstance(text, str):
        raise UserError(
            f"{place}: {json.dumps(text_field)} is {json.dumps(text)[:40]}, expected a string; mend or remove the line"
        )
    # An escape such as "\ud800" gives half of a surrogate pair, which is no character and has no UTF-8.
    return text.encode("utf-8", "ignore").decode("utf-8")


def begins_json_line(line: bytes) -> bool:
    """Every line that is not blank is a document."""
    return not line.isspace()
