"""Output of WikiExtractor, in its `<doc>` layout or its `--json` layout."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

from data_prep.archives import FileFault, begin_of, buffered, error_of
from data_prep.counts import ReadCounts
from data_prep.documents import BYTE_ORDER_MARK, Document, Origin
from data_prep.readers.lines import LineReader, collect_documents
from data_prep.readers.text import parsed_json, read_json_lines, text_in
from electra_tf.data.manifest import DatasetSettings

# How files begin: `--json` writes an article a line.
_TAG_LAYOUT, JSON_LAYOUT = b"<doc ", b"{"
_ARTICLE_BEGIN = re.compile(rb"<doc id=.*>\s*\Z")
_ARTICLE_END = "</doc>"


def read_wikiextractor(stream: BinaryIO, origin: Origin, settings: DatasetSettings) -> Iterator[Document | ReadCounts]:
    """The articles of a WikiExtractor file; the first line of each is its title. Raises: see `layout_of`."""
    stream = buffered(stream)
    if (origin.header or layout_of(begin_of(stream))) == JSON_LAYOUT:
        settings = settings.model_copy(update={"layout": "join"})
        return read_json_lines(
            stream, origin, settings, lambda line: _unescaped(text_in(parsed_json(line), "text", line))
        )
    return collect_documents(_lines_of_articles(stream, origin), has_paragraphs=True)


def layout_of(begin: bytes) -> bytes:
    """The layout of a file that begins with `begin`. Raises: FileFault: it is in neither layout."""
    begin = begin.removeprefix(BYTE_ORDER_MARK).lstrip()
    if begin and not begin.startswith((_TAG_LAYOUT, JSON_LAYOUT)):
        description = f"begins with {begin[:20]!r}; expected WikiExtractor output, or the right format in input"
        raise FileFault("files in another format", description)
    return JSON_LAYOUT if begin.startswith(JSON_LAYOUT) else _TAG_LAYOUT


def begins_article(line: bytes) -> bool:
    """Whether an article of the `<doc>` layout begins with `line`."""
    return bool(_ARTICLE_BEGIN.match(line))


def _lines_of_articles(stream: BinaryIO, origin: Origin) -> Iterator[str | ReadCounts | None]:
    """The lines between tags, and None at the end of each article. What is no whole article is left out."""
    article: list[str] = []  # the tag and the lines of an article whose end was not read yet
    begin = 0
    is_outside = False  # in a text outside articles, which is counted
    for offset, raw_line in chain(LineReader(stream, origin).raw_lines(), [(0, b"<doc id=end>")]):
        line = raw_line.decode().strip()
        if begins_article(raw_line):
            if article and not (offset == 0 and error_of(stream)):  # else the fault is counted
                yield ReadCounts.of_fault("articles without </doc>", origin.path, begin, article[0][:80])
            article, begin, is_outside = [line], offset, False
        elif article and line == _ARTICLE_END:
            yield from map(_unescaped, article[1:])
            yield None
            article = []
        elif article:
            article.append(line)
        elif line and not is_outside:
            yield ReadCounts.of_fault("text outside articles", origin.path, offset, line[:80])
            is_outside = True


def _unescaped(text: str) -> str:
    """The characters of an article: version 3 of WikiExtractor escapes those of HTML unless told otherwise."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
