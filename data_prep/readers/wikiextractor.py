"""Output of WikiExtractor: many articles a file, in its `<doc>` layout or its `--json` layout, told by the content."""

import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.readers.documents import BYTE_ORDER_MARK, Document, decode, seek_line, without_byte_order_mark
from electra_tf.config.errors import UserError

_ARTICLE_BEGIN = b"<doc "
_JSON_BEGIN = b"{"
_ARTICLE = re.compile(rb"^<doc [^\n]*\n(.*?)^</doc>[ \t\r]*$", re.MULTILINE | re.DOTALL)


def read_wikiextractor(content: bytes, path: str, offset: int) -> Iterator[Document]:
    """Documents of a WikiExtractor file; see `TextFormat.documents`. Each article is one, its title the first line.

    Raises: UserError: if the content is in neither layout, or an article is cut off or no JSON object with `text`.
    """
    content, offset = without_byte_order_mark(content, offset)
    begin = content.lstrip()
    if not begin:
        return iter(())
    if begin.startswith(_ARTICLE_BEGIN):
        return _read_tagged(content, path, offset)
    if begin.startswith(_JSON_BEGIN):
        return _read_json(content, path, offset)
    raise UserError(
        f"{path} at offset {offset} begins with {begin[:20]!r}; expected WikiExtractor output: <doc id=...> or a JSON"
        " object a line; name the right format in --input=FORMAT:GLOB"
    )


def next_wikiextractor_document(file: BinaryIO, position: int) -> int:
    """The first line at or after `position` that begins an article."""
    file.seek(0)
    is_json = file.read(1024).removeprefix(BYTE_ORDER_MARK).lstrip().startswith(_JSON_BEGIN)
    begin = _JSON_BEGIN if is_json else _ARTICLE_BEGIN
    line_begin = seek_line(file, position)
    while (line := file.readline()) and not line.startswith(begin):
        line_begin = file.tell()
    return line_begin


def _read_tagged(content: bytes, path: str, offset: int) -> Iterator[Document]:
    num_read = 0
    for match in _ARTICLE.finditer(content):
        num_read += 1
        text = decode(match.group(1), path, offset + match.start(1))
        if lines := _lines(text):
            yield Document(offset + match.start(), lines)
    num_begun = len(re.findall(rb"^<doc ", content, re.MULTILINE))
    if num_read != num_begun:
        raise UserError(
            f"{path} after offset {offset}: {num_begun} articles begin with <doc ...> and {num_read} end with </doc>;"
            " the file is cut off or broken, extract it anew"
        )


def _read_json(content: bytes, path: str, offset: int) -> Iterator[Document]:
    for raw_line in content.split(b"\n"):
        line = decode(raw_line, path, offset).strip()
        if line and (lines := _lines(_text_of(line, path, offset))):
            yield Document(offset, lines)
        offset += len(raw_line) + 1


def _text_of(line: str, path: str, offset: int) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f'{path} at offset {offset}: expected a JSON object with "text" on each line ({error!r})'
        ) from None
    if not isinstance(text, str):
        raise UserError(
            f'{path} at offset {offset}: "text" is {json.dumps(text)[:40]}, expected a string; mend or remove the line'
        )
    # An escape such as "\ud800" gives half of a surrogate pair, which is no character and has no UTF-8.
    return text.encode("utf-8", "ignore").decode("utf-8")


def _lines(text: str) -> list[str]:
    return [stripped for line in text.split("\n") if (stripped := line.strip())]
