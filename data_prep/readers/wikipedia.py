"""Wikipedia dumps: the articles of a MediaWiki XML export as plain text."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.readers.documents import Counts, Document, Source
from data_prep.readers.wiki_links import CATEGORY_NAMES, FILE_NAMES, NAMES, names_of
from data_prep.readers.wiki_pages import Page, begins_page, read_pages
from data_prep.readers.wikitext import plain_text
from electra_tf.text.manifest import DatasetSettings

__all__ = ["begins_page", "read_wikipedia"]

_ARTICLE_NAMESPACE = 0
_NON_ARTICLE_NAMES = FILE_NAMES | CATEGORY_NAMES | names_of(NAMES["other_namespace"])
_DISAMBIGUATION_TEMPLATES = names_of(NAMES["disambiguation"])
# `#REDIRECT [[X]]` in any language: `#WEITERLEITUNG`, `#перенаправление`, `#転送`. An article does not begin so.
_REDIRECT = re.compile(r"\s*#\s?[^\s\[\]{}|<>#:]{2,30}\s{0,9}:?\s{0,9}\[\[[^\[\]\n]+\]\]")
_TEMPLATE_NAME = re.compile(r"\{\{([^|{}<>\n]{1,80})[|}\n]")
_DISAMBIGUATION_TITLE = "(disambiguation)"
_DISAMBIGUATION_WORD = "__DISAMBIG__"
# {{disambig}}, {{disambiguation}}, {{airport disambiguation}}, {{disambiguation cleanup}}: but neither
# {{disambiguation needed}}, which marks a link, nor {{surname}} and {{given name}}, which stand under articles too.
_DISAMBIGUATION_TEMPLATE = re.compile(r"(?:.*\b)?disambig(?:uation)?(?: page)?(?:[ -]cleanup)?")


def read_wikipedia(stream: BinaryIO, source: Source, settings: DatasetSettings, counts: Counts) -> Iterator[Document]:
    """The articles of a MediaWiki XML export; the first line of each is its title. See `TextFormat`.

    Other pages are counted as skipped. The decision depends on the page alone, not on the header of the export, so that
    a part of a file gives the same documents as the whole.

    Raises: UserError: the stream is no such export, or a page is broken.
    """
    for page in read_pages(stream, source, counts):
        if reason := _reason_to_skip(page, settings):
            counts.num_documents_skipped[reason] += 1
        elif paragraphs := plain_text(page.text):
            yield Document([page.title, *paragraphs] if page.title else paragraphs, has_paragraphs=True)
        else:
            counts.num_documents_skipped["pages without text"] += 1


def _reason_to_skip(page: Page, settings: DatasetSettings) -> str:
    if not _is_in_article_namespace(page):
        return "pages outside the article namespace"
    if page.is_redirect or _REDIRECT.match(page.text):
        return "redirects"
    if page.model != "wikitext":
        return "pages that are not wikitext"
    if not settings.keep_disambiguation_pages and _is_disambiguation(page):
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
    return any(name in _DISAMBIGUATION_TEMPLATES or _DISAMBIGUATION_TEMPLATE.fullmatch(name) for name in names)
