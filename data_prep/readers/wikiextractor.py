"""Output of WikiExtractor, many articles a file, in its `<doc>` layout or its `--json` layout."""

import io
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.readers.documents import BYTE_ORDER_MARK, Document, Origin, ReadCounts
from data_prep.readers.json_lines import read_json_lines
from data_prep.readers.lines import LineReader, collect_documents
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import DatasetSettings

_ARTICLE_BEGIN = "<doc "
_ARTICLE_END = "</doc>"
# Read to detect the layout; at most this much white space may stand before the first article.
_PEEK_BYTES = 1024


def read_wikiextractor(
    stream: BinaryIO, origin: Origin, settings: DatasetSettings, counts: ReadCounts
) -> Iterator[Document]:
    """The articles of a WikiExtractor file; the first line of each is its title. See `TextFormat`.

    Raises: UserError: the content is in neither layout, an article has no end, or a line is not JSON.
    """
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)
    begin = buffered.peek(_PEEK_BYTES)[:_PEEK_BYTES].removeprefix(BYTE_ORDER_MARK).lstrip()
    if is_json_layout(begin):
        return read_json_lines(buffered, origin, settings.model_copy(update={"text_field": "text"}), counts)
    if not begin or begin.startswith(b"<doc "):
        return collect_documents(_lines_of_articles(buffered, origin), has_paragraphs=True, counts=counts)
    raise UserError(
        f"{origin.path} at offset {origin.offset} begins with {begin[:20]!r}; expected WikiExtractor output, or give"
        " the right format in --input=FORMAT:GLOB"
    )


def begins_wikiextractor_article(line: bytes) -> bool:
    """Whether an article of the `<doc>` layout begins with `line`."""
    return line.startswith(b"<doc ")


def is_json_layout(begin: bytes) -> bool:
    """Whether a file that begins with `begin` has one article a line, as JSON."""
    return begin.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{")


def _lines_of_articles(stream: BinaryIO, origin: Origin) -> Iterator[str | None]:
    """The lines between tags, and None at the end of each article."""
    tag = ""
    for line in LineReader(stream, origin):
        if not tag:
            tag = line if line.startswith(_ARTICLE_BEGIN) else ""
        elif line == _ARTICLE_END:
            tag = ""
            yield None
        elif line.startswith(_ARTICLE_BEGIN):
            raise _unended(origin, tag)
        else:
            yield line
    if tag:
        raise _unended(origin, tag)


def _unended(origin: Origin, tag: str) -> UserError:
    return UserError(f"{origin.path} after offset {origin.offset}: the article {tag[:80]} has no </doc>")
