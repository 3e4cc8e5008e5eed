"""Output of WikiExtractor, in its `<doc>` layout or its `--json` layout."""

from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

from data_prep.archives import begin_of, buffered
from data_prep.readers.documents import BYTE_ORDER_MARK, Document, Origin, ReadCounts
from data_prep.readers.json_lines import read_json_lines
from data_prep.readers.lines import LineReader, collect_documents
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import DatasetSettings

_ARTICLE_BEGIN = "<doc "
_ARTICLE_END = "</doc>"


def read_wikiextractor(
    stream: BinaryIO, origin: Origin, settings: DatasetSettings, counts: ReadCounts
) -> Iterator[Document]:
    """The articles of a WikiExtractor file; the first line of each is its title. See `TextFormat`.

    Raises: UserError: the content is in neither layout, an article has no end, or a line is not JSON.
    """
    stream = buffered(stream)
    begin = begin_of(stream).removeprefix(BYTE_ORDER_MARK).lstrip()
    if is_json_layout(begin):
        settings = settings.model_copy(update={"text_field": "text"})
        return read_json_lines(stream, origin, settings, counts, convert=_unescaped)
    if not begin or begins_wikiextractor_article(begin):
        return collect_documents(_lines_of_articles(stream, origin), has_paragraphs=True, counts=counts)
    raise UserError(
        f"{origin.path} at offset {origin.offset} begins with {begin[:20]!r}; expected WikiExtractor output, or give"
        " the right format in --input=FORMAT:GLOB"
    )


def begins_wikiextractor_article(line: bytes) -> bool:
    """Whether an article of the `<doc>` layout begins with `line`."""
    return line.startswith(b"<doc ")


def is_json_layout(begin: bytes) -> bool:
    """Whether a file that begins with `begin` has the layout of `--json`: an article a line."""
    return begin.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{")


def _lines_of_articles(stream: BinaryIO, origin: Origin) -> Iterator[str | None]:
    """The lines between tags, and None at the end of each article."""
    tag = ""
    for line in chain(LineReader(stream, origin), [_ARTICLE_BEGIN]):
        if line.startswith(_ARTICLE_BEGIN):
            if tag:
                raise UserError(f"{origin.path} after offset {origin.offset}: the article {tag[:80]} has no </doc>")
            tag = line
        elif tag and line == _ARTICLE_END:
            tag = ""
            yield None
        elif tag:
            yield _unescaped(line)


def _unescaped(text: str) -> str:
    """The characters of an article: version 3 of WikiExtractor escapes those of HTML unless told otherwise."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
