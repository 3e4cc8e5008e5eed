"""JSON lines: each line is an object, one field of which holds the text of a document."""

import json
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.readers.documents import Counts, Document, Source, decode
from data_prep.readers.lines import LineReader, collect_documents, split_lines
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import DatasetSettings

# A line is parsed in one piece: its bytes, its text and the parsed text are in memory at once.
MAX_JSON_LINE_BYTES = 2**26


def read_json_lines(stream: BinaryIO, source: Source, settings: DatasetSettings, counts: Counts) -> Iterator[Document]:
    """Documents of JSON lines. The lines of the field `settings.text_field` are paragraphs. See `TextFormat`.

    An incomplete last line of a file means that the file is truncated.

    Raises: UserError: a line is no JSON object, lacks the field, or the field is no string.
    """
    text_field = settings.text_field

    def lines() -> Iterator[str | None]:
        reader = LineReader(stream, source, MAX_JSON_LINE_BYTES)
        unfinished = b""
        for block in reader.blocks():
            offset = reader.offset - len(block)
            if unfinished:
                raise UserError(
                    f"{source.path} at offset {offset - len(unfinished)}: a line of more than {MAX_JSON_LINE_BYTES}"
                    " bytes; cut its text into several documents"
                )
            *raw_lines, unfinished = block.split(b"\n")
            for raw_line in raw_lines:
                if raw_line and not raw_line.isspace():
                    yield from split_lines(_text(raw_line, source.path, offset, text_field))
                    yield None
                offset += len(raw_line) + 1
        if source.is_end and unfinished.strip() and not is_json(unfinished):
            counts.truncations.append(
                f"{source.path} is truncated at byte {reader.offset}, in the middle of a JSON line"
            )
        elif unfinished.strip():
            yield from split_lines(_text(unfinished, source.path, reader.offset - len(unfinished), text_field))
            yield None

    return collect_documents(lines(), has_paragraphs=True, counts=counts)


def is_json(raw_line: bytes) -> bool:
    try:
        json.loads(raw_line)
    except (ValueError, RecursionError):
        return False
    return True


def _text(raw_line: bytes, path: str, offset: int, text_field: str) -> str:
    line = decode(raw_line, path, offset)
    position = f"{path} at offset {offset}"
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{position}: expected a JSON object on each line ({error}); fix or remove the line") from None
    if not isinstance(fields, dict):
        raise UserError(f"{position}: {line.strip()[:40]!r} is no JSON object; expected one on each line")
    if text_field not in fields:
        names = ", ".join(map(repr, fields))
        raise UserError(
            f"{position}: a JSON object without the field {text_field!r}; its fields are {names};"
            " name the one with the text in --text_field"
        )
    text = fields[text_field]
    if not isinstance(text, str):
        raise UserError(
            f"{position}: {json.dumps(text_field)} is {json.dumps(text)[:40]}, expected a string; fix or"
            " remove the line"
        )
    # An escape such as "\ud800" gives half of a surrogate pair, which UTF-8 cannot represent.
    return text.encode("utf-8", "ignore").decode("utf-8")


def begins_json_line(line: bytes) -> bool:
    """Whether the line is a document: it is unless it is blank."""
    return not line.isspace()
