"""Wikimedia's exports of its search index, CirrusSearch: the text of articles as MediaWiki expands their templates.

Before each page, a line of JSON, stands one with its number: `{"index": {"_id": "7"}}`. The text of an article is one
paragraph: without headings, tables, captions and marks of references, but with the references. The TeX of a formula,
after its characters, is dropped. Exports since 2026 (`index_name=svwiki_content`) also list redirects as pages.
Source: MediaWiki, includes/content/WikiTextStructure.php.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

from data_prep.counts import ReadCounts
from data_prep.documents import Document, Origin
from data_prep.readers import wikipedia
from data_prep.readers.text import parsed_json, read_json_lines, text_in
from data_prep.wikitext.names import wiki_of
from electra_tf.data.manifest import DatasetSettings

_IN_BRACES = r"(?:\\.|[^\\{}])*+"
for _ in range(9):  # levels of braces in braces
    _IN_BRACES = rf"(?:\\.|[^\\{{}}]|\{{{_IN_BRACES}\}})*+"
_TEX = re.compile(rf"(?<!\s)\s*\{{\\(?:display|text)style\b{_IN_BRACES}\}}")


def read_cirrus(stream: BinaryIO, origin: Origin, settings: DatasetSettings) -> Iterator[Document | ReadCounts]:
    """The articles of an export; the first line of each is its title. Other pages are counted as skipped."""
    settings = settings.model_copy(update={"layout": "join"})
    return read_json_lines(stream, origin, settings, partial(_article, settings=settings))


def _article(line: bytes, settings: DatasetSettings) -> str | ReadCounts:
    page = parsed_json(line)
    if isinstance(page, dict):
        if page.keys() == {"index"}:
            return ReadCounts()
        if reason := _reason_to_skip(page, settings):
            return ReadCounts.skipped(reason)
    text = text_in(page, "text", line)
    if not text or text.isspace():
        return ReadCounts.skipped(wikipedia.PAGE_WITHOUT_TEXT)
    if "{\\" in text:  # a tenth of the time of the search
        text = _TEX.sub("", text)
    return f"{page.get('title') or ''}\n{text}"


def _reason_to_skip(page: dict[str, Any], settings: DatasetSettings) -> str:
    if page.get("namespace", 0) != 0:
        return wikipedia.OTHER_NAMESPACE
    if page.get("page_type") == "redirect":
        return wikipedia.REDIRECT
    if page.get("content_model", "wikitext") != "wikitext":
        return wikipedia.NOT_WIKITEXT
    if not settings.keep_disambiguation_pages:
        wiki = wiki_of(b"", str(page.get("language") or settings.language), settings.wikipedia_names)
        # Not its field `template`: with all modules that run, it has Module:Disambiguation for most English articles.
        if wikipedia.is_disambiguation(str(page.get("title")), str(page.get("source_text")), wiki):
            return wikipedia.DISAMBIGUATION
    return ""
