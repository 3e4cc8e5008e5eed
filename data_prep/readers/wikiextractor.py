"""Output of WikiExtractor, many articles a file, in its `<doc>` layout or its `--json` layout."""

import io
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.readers.documents import BYTE_ORDER_MARK, Counts, Document, Source
from data_prep.readers.json_lines import read_json_lines
from data_prep.readers.lines import LineReader, collect_documents
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import DatasetSettings

_ARTICLE_BEGIN = "<doc "
_ARTICLE_END = "</doc>"
# Read to detect the layout; at most this much white space may stand before the first article.
_PEEK_BYTES = 1024


def read_wikiextractor(
    stream: BinaryIO, source: Source, settings: DatasetSettings, counts: Counts
) -> Iterator[Document]:
    """The articles of a WikiExtractor file; the first line of each is its title. See `TextFormat`.

    Raises: UserError: the content is in neither layout, an article has no end, or is no JSON object with `text`.
    """
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)
    begin = buffered.peek(_PEEK_BYTES)[:_PEEK_BYTES].removeprefix(BYTE_ORDER_MARK).lstrip()
    if is_json_layout(begin):
        return read_json_lines(buffered, source, settings.model_copy(update={"text_field": "text"}), counts)
    if not begin or begin.startswith(b"<doc "):
        return collect_documents(_lines_of_articles(buffered, source, counts), has_paragraphs=True, counts=counts)
    raise UserError(
        f"{source.path} at offset {source.offset} begins with {begin[:20]!r}; expected WikiExtractor output: <doc"
        " id=...> or a JSON object a line; give the right format in --input=FORMAT:GLOB"
    )


def begins_wikiextractor_article(line: bytes) -> bool:
    """Whether an article of the `<doc>` layout begins with `line`."""
    return line.startswith(b"<doc ")


def is_json_layout(begin: bytes) -> bool:
    """Whether a file that begins with `begin` has one article a line, as JSON."""
    return begin.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{")


def _lines_of_articles(stream: BinaryIO, source: Source, counts: Counts) -> Iterator[str | None]:
    """The lines between tags, and None at the end of each article."""
    tag = ""
    reader = LineReader(stream, source)
    for line in reader:
        if not tag:
            tag = line if line.startswith(_ARTICLE_BEGIN) else ""
        elif line == _ARTICLE_END:
            tag = ""
            yield None
        elif line.startswith(_ARTICLE_BEGIN):
            raise _unended(source, tag)
        else:
            yield line
    if tag and not source.is_end:
        raise _unended(source, tag)
    if tag:
        counts.truncations.append(f"{source.path} is truncated at byte {reader.offset}, in the article {tag[:80]}")


def _unended(source: Source, tag: str) -> UserError:
    return UserError(
        f"{source.path} after offset {source.offset}: the article {tag[:80]} has no </doc>; the file is broken, extract"
        " it again"
    )
