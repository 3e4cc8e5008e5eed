"""Output of WikiExtractor, in its `<doc>` layout or its `--json` layout."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

from data_prep.archives import FileFault, begin_of, buffered
from data_prep.readers.documents import BYTE_ORDER_MARK, Document, Origin, ReadCounts
from data_prep.readers.json_lines import read_json_lines
from data_prep.readers.lines import LineReader, collect_documents
from electra_tf.text.manifest import DatasetSettings

_ARTICLE_BEGIN = re.compile(rb"""<doc [\w:-]+=["'][^\r\n]*>\s*?(?:[\r\n]|\Z)""")  # not any text after "<doc "
_ARTICLE_END = b"</doc>"


def read_wikiextractor(
    stream: BinaryIO, origin: Origin, settings: DatasetSettings, counts: ReadCounts
) -> Iterator[Document]:
    """The articles of a WikiExtractor file; the first line of each is its title. See `TextFormat`.

    Raises: FileFault: the content is in neither layout.
    """
    stream = buffered(stream)
    begin = begin_of(stream).removeprefix(BYTE_ORDER_MARK).lstrip()
    if is_json_layout(begin):
        settings = settings.model_copy(update={"text_field": "text"})
        return read_json_lines(stream, origin, settings, counts, convert=_unescaped)
    if not begin or begins_wikiextractor_article(begin):
        return collect_documents(_lines_of_articles(stream, origin, counts), has_paragraphs=True, counts=counts)
    description = f"begins with {begin[:20]!r}; expected WikiExtractor output, or the right format in --input"
    raise FileFault("files in another format", description)


def begins_wikiextractor_article(line: bytes) -> bool:
    """Whether an article of the `<doc>` layout begins with `line`."""
    return bool(_ARTICLE_BEGIN.match(line))


def is_json_layout(begin: bytes) -> bool:
    """Whether a file that begins with `begin` has the layout of `--json`: an article a line."""
    return begin.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{")


def _lines_of_articles(stream: BinaryIO, origin: Origin, counts: ReadCounts) -> Iterator[str | None]:
    """The lines between tags, and None at the end of each article. An article without an end is left out."""
    article: list[str] = []  # the lines of an article whose end was not read yet
    begin = 0
    for offset, line in chain(LineReader(stream, origin).raw_lines(), [(0, b"<doc id='end'>")]):
        if begins_wikiextractor_article(line):
            if article:
                counts.leave_out("articles without </doc>", origin.path, begin, article[0][:80])
            article, begin = [line.decode()], offset
        elif article and line.strip() == _ARTICLE_END:
            yield from map(_unescaped, article[1:])
            article = []
            yield None
        elif article:
            article.append(line.decode().strip())


def _unescaped(text: str) -> str:
    """The characters of an article: version 3 of WikiExtractor escapes those of HTML unless told otherwise."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
