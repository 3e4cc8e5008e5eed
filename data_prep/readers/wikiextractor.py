"""Output of WikiExtractor, in its `<doc>` layout or its `--json` layout."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

from data_prep.archives import FileFault, begin_of, buffered
from data_prep.counts import ReadCounts
from data_prep.readers.documents import BYTE_ORDER_MARK, Document, Origin
from data_prep.readers.lines import LineReader, collect_documents
from data_prep.readers.text import read_json_lines
from electra_tf.text.manifest import DatasetSettings

# Not any text after "<doc ": a tag is alone on its line, or has two attributes.
_ARTICLE_BEGIN = re.compile(
    rb"""\s*<doc\s+[\w:-]+=(?:[^\r\n]*>\s*?(?:[\r\n]|\Z)|(?:"[^"\r\n]*"|'[^'\r\n]*')\s+[\w:-]+=)"""
)
_BEGIN_OUTSIDE = re.compile(rb"\s*<doc\s+[\w:-]+=")  # where no article is open
_ARTICLE_END = b"</doc>"
_BETWEEN_ARTICLES = re.compile(rb"(</doc>)\s*(?=<doc\s+[\w:-]+=)")
# A title may have a line break, ">" or quotes in it.
_TAG = re.compile(
    r"""\s*<doc(?:(?:\s+[\w:-]+=(?:"[^"]*"|'[^']*'|[^\s"'>]+))+\s*>|[^\n]*>(?=\n|\Z)|[^\n]*?["']>|[^\n]*)"""
)


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
    if not begin or _BEGIN_OUTSIDE.match(begin):
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
    """The lines between tags, and None at the end of each article. What is no whole article is left out."""
    article: list[bytes] = []  # the lines, none blank, of an article whose end was not read yet
    begin = 0
    is_outside = False  # in a text outside articles, which is counted
    parts = (
        (offset, part, begins_wikiextractor_article(part if i else line))
        for offset, line in LineReader(stream, origin).raw_lines()
        for i, part in enumerate(_BETWEEN_ARTICLES.split(line.rstrip()))
        if part and not part.isspace()
    )
    for offset, part, begins_article in chain(parts, [(0, b"<doc id='end'>", True)]):
        is_open = bool(article) and not article[-1].endswith(_ARTICLE_END)
        if begins_article or not is_open and _BEGIN_OUTSIDE.match(part):
            if is_open:
                counts.leave_out("articles without </doc>", origin.path, begin, article[0].decode()[:80])
            elif article:
                yield from _lines_of(article)
            article, begin, is_outside = [part], offset, False
        elif article:
            article.append(part)
        elif not is_outside:
            counts.leave_out("text outside articles", origin.path, offset, part.decode()[:80])
            is_outside = True
        if article and (part.strip() == _ARTICLE_END or article == [part] and part.endswith(_ARTICLE_END)):
            yield from _lines_of(article)
            article = []


def _lines_of(article: list[bytes]) -> Iterator[str | None]:
    text = b"\n".join(article).decode().removesuffix("</doc>")
    yield from (_unescaped(line.strip()) for line in _TAG.sub("", text, 1).split("\n"))
    yield None


def _unescaped(text: str) -> str:
    """The characters of an article: version 3 of WikiExtractor escapes those of HTML unless told otherwise."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
