"""JSON lines: each line is an object with a field that holds the text of a document."""

import functools
import json
from collections.abc import Callable, Iterator
from typing import BinaryIO

from data_prep.counts import ReadCounts
from data_prep.readers.documents import WITHOUT_TEXT, Document, Origin, RecordFault, read_or_skip
from data_prep.readers.lines import LineReader, collect_documents, split_lines
from electra_tf.text.manifest import DatasetSettings

# A line is parsed in one piece, which takes a multiple of its size in memory. A longer line is cut, and left out.
MAX_JSON_LINE_BYTES = 2**26


def read_json_lines(
    stream: BinaryIO,
    origin: Origin,
    settings: DatasetSettings,
    counts: ReadCounts,
    convert: Callable[[str], str] = str,
) -> Iterator[Document]:
    """Documents of JSON lines: the lines of the field `settings.text_field` are paragraphs. See `TextFormat`.

    A line with null or white space in this field is counted as skipped, and so is one that is no JSON object with a
    string or null in it. `convert` is applied to each document's text.
    """

    def lines() -> Iterator[str | None]:
        read = functools.partial(_text, text_field=settings.text_field, counts=counts)
        for offset, raw_line in LineReader(stream, origin, MAX_JSON_LINE_BYTES).raw_lines():
            if raw_line and not raw_line.isspace():
                text = read_or_skip(read, raw_line, Origin(origin.path, offset), "", counts)
                yield from split_lines(convert(text or ""))
                yield None

    return collect_documents(lines(), has_paragraphs=True, counts=counts)


def _text(raw_line: bytes, text_field: str, counts: ReadCounts) -> str:
    line = raw_line.decode()
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise RecordFault("lines that are not JSON", str(error)) from None
    text = fields.get(text_field, ...) if isinstance(fields, dict) else ...
    if text is not None and not isinstance(text, str):
        raise RecordFault(f"lines without a string in --text_field={text_field}", line.strip()[:100])
    if not text or text.isspace():
        counts.num_documents_skipped[WITHOUT_TEXT] += 1
        return ""
    # An escape such as "\ud800" gives half of a surrogate pair, which UTF-8 cannot represent.
    return text.encode("utf-8", "ignore").decode("utf-8")


def begins_json_line(line: bytes) -> bool:
    """Whether a document begins at `line`: true unless the line is blank."""
    return not line.isspace()
