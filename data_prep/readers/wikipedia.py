"""Dumps of Wikipedia: MediaWiki XML exports, of which the articles become documents of plain text."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.readers.documents import Document, ReaderOptions, ReadReport, Source
from data_prep.readers.wiki_names import CATEGORY_NAMES, DISAMBIGUATION_TEMPLATES, FILE_NAMES, OTHER_NAMESPACE_NAMES
from data_prep.readers.wiki_pages import Page, begins_page, read_pages
from data_prep.readers.wikitext import plain_text

__all__ = ["begins_page", "read_wikipedia"]

_ARTICLE_NAMESPACE = 0
_NON_ARTICLE_NAMES = FILE_NAMES | CATEGORY_NAMES | OTHER_NAMESPACE_NAMES
# `#REDIRECT [[X]]` in any language: `#WEITERLEITUNG`, `#перенаправление`, `#転送`. An article does not begin so.
_REDIRECT = re.compile(r"\s*#\s?[^\s\[\]{}|<>#:]{2,30}\s{0,9}:?\s{0,9}\[\[[^\[\]\n]+\]\]")
_TEMPLATE_NAME = re.compile(r"\{\{([^|{}<>\n]{1,80})[|}\n]")
_DISAMBIGUATION_TITLE = "(disambiguation)"
_DISAMBIGUATION_WORD = "__DISAMBIG__"
# {{disambig}}, {{disambiguation}}, {{airport disambiguation}}, {{disambiguation cleanup}}: but neither
# {{disambiguation needed}}, which marks a link, nor {{surname}} and {{given name}}, which stand under articles too.
_DISAMBIGUATION_TEMPLATE = re.compile(r"(?:.*\b)?disambig(?:uation)?(?: page)?(?:[ -]cleanup)?")


def read_wikipedia(stream: BinaryIO, source: Source, options: ReaderOptions, report: ReadReport) -> Iterator[Document]:
    """Documents of a MediaWiki XML export; see `TextFormat.documents`. An article is one, its title the first line.

    Pages that are no articles are counted by `report.skip`. Which ones these are follows from the page alone, not from
    the header of the export: a part of a file gives the same documents as the whole.

    Raises: UserError: the stream is no such export, or a page is broken.
    """
    for page in read_pages(stream, source, report):
        if reason := _reason_to_skip(page, options):
            report.skip(reason)
        elif paragraphs := plain_text(page.text):
            yield Document([page.title, *paragraphs] if page.title else paragraphs, has_paragraphs=True)
        else:
            report.skip("pages without text")


def _reason_to_skip(page: Page, options: ReaderOptions) -> str:
    if not _is_in_article_namespace(page):
        return "pages outside the article namespace"
    if page.is_redirect or _REDIRECT.match(page.text):
        return "redirects"
    if page.model != "wikitext":
        return "pages that are not wikitext"
    if not options.keep_disambiguation_pages and _is_disambiguation(page):
        return "disambiguation pages"
    return ""


def _is_in_article_namespace(page: Page) -> bool:
    if page.namespace is not None:
        return page.namespace == _ARTICLE_NAMESPACE
    prefix, colon, _ = page.title.partition(":")
    return not (colon and prefix.strip().replace("_", " ").lower() in _NON_ARTICLE_NAMES)


def _is_disambiguation(page: Page) -> bool:
    if page.title.endswith(_DISAMBIGUATION_TITLE) or _DISAMBIGUATION_WORD in page.text:
        return True
    names = (match.group(1).replace("_", " ").strip().lower() for match in _TEMPLATE_NAME.finditer(page.text))
    return any(name in DISAMBIGUATION_TEMPLATES or _DISAMBIGUATION_TEMPLATE.fullmatch(name) for name in names)
