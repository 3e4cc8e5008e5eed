"""Wikipedia dumps: the articles of a MediaWiki XML export as plain text.

The layout is that of every export since 2005 (schemas 0.3 to 0.11): elements on lines of their own, text escaped. So a
line that begins with `<page>` begins a page. Each page is parsed by itself: without the namespace of the schema, and
without a document type that could declare entities.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from data_prep.readers.documents import BYTE_ORDER_MARK, Document, Origin, ReadCounts
from data_prep.readers.wiki_elements import CATEGORY_NAMES, FILE_NAMES, NAMES, names_of
from data_prep.readers.wikitext import plain_text
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import DatasetSettings

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

_PAGE_BEGIN = b"<page>"
_PAGE_END = b"</page>"
_REVISION_BEGIN = b"<revision>"
_EXPORT_BEGIN = re.compile(rb"<(?:\?xml|mediawiki|!--|page>|/mediawiki>)")
_NAMESPACE = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True)
class Page:
    """One page at its last revision.

    Attributes:
        namespace: its number in the export; None before schema 0.6, which had none.
        is_redirect: according to the export; False before schema 0.4, which does not state it.
        model: of the content, such as "wikitext", "css" or "json"; "wikitext" if the export states none.
        text: its wikitext; empty if it was suppressed or is stored elsewhere.
    """

    title: str
    namespace: int | None
    is_redirect: bool
    model: str
    text: str


def read_wikipedia(
    stream: BinaryIO, origin: Origin, settings: DatasetSettings, counts: ReadCounts
) -> Iterator[Document]:
    """The articles of a MediaWiki XML export; the first line of each is its title. See `TextFormat`.

    Other pages are counted as skipped. The decision depends on the page alone, not on the header of the export, so that
    a part of a file gives the same documents as the whole.
    """
    for page in _read_pages(stream, origin):
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
        return page.namespace == 0
    prefix, colon, _ = page.title.partition(":")
    return not (colon and prefix.strip().replace("_", " ").lower() in _NON_ARTICLE_NAMES)


def _is_disambiguation(page: Page) -> bool:
    if page.title.endswith(_DISAMBIGUATION_TITLE) or _DISAMBIGUATION_WORD in page.text:
        return True
    names = (match.group(1).replace("_", " ").strip().lower() for match in _TEMPLATE_NAME.finditer(page.text))
    return any(name in _DISAMBIGUATION_TEMPLATES or _DISAMBIGUATION_TEMPLATE.fullmatch(name) for name in names)


def begins_page(line: bytes) -> bool:
    """Whether `line` begins a page. No line of a page's text does, as it is escaped."""
    return line.lstrip().startswith(_PAGE_BEGIN)


def _read_pages(stream: BinaryIO, origin: Origin) -> Iterator[Page]:
    """The pages of an export or of a part of one, in order, at their last revisions.

    Raises: UserError: the stream is no such export, or a page is broken.
    """
    offset = origin.offset
    pending: _PendingPage | None = None
    is_first = True
    for line in iter(stream.readline, b""):
        stripped = line.strip()
        if is_first and stripped:
            is_first = False
            if not _EXPORT_BEGIN.match(stripped.removeprefix(BYTE_ORDER_MARK)):
                raise UserError(
                    f"{origin.path} at byte {origin.offset} begins with {stripped[:20]!r}; expected a MediaWiki XML"
                    " export, or give the right format in --input=FORMAT:GLOB"
                )
        if stripped.startswith(_PAGE_BEGIN):
            if pending:
                raise UserError(f"{pending.location()} has no </page>")
            pending = _PendingPage(origin.path, offset)
        if pending:
            pending.add(line, stripped)
            if stripped.endswith(_PAGE_END):
                yield pending.parse()
                pending = None
        offset += len(line)
    if pending:
        raise UserError(f"{pending.location()} has no </page>")


class _PendingPage:
    """The lines of an incomplete page: those before its first revision, and those of its latest one."""

    def __init__(self, path: str, offset: int) -> None:
        self.offset = offset
        self._path = path
        self._head: list[bytes] = []
        self._revision: list[bytes] = []

    def location(self) -> str:
        return f"{self._path}: the page that begins at byte {self.offset}"

    def add(self, line: bytes, stripped: bytes) -> None:
        if stripped.startswith(_REVISION_BEGIN):
            self._revision = [line]
        else:
            (self._revision or self._head).append(line)

    def parse(self) -> Page:
        try:
            page = ElementTree.fromstring(b"".join(self._head + self._revision))
        except ElementTree.ParseError as error:
            raise UserError(f"{self.location()} is not well-formed XML ({error})") from None
        namespace = page.findtext("ns", "").strip()
        revision = page.findall("revision")[-1:] or [ElementTree.Element("revision")]
        return Page(
            title=page.findtext("title", "").strip(),
            namespace=int(namespace) if _NAMESPACE.fullmatch(namespace) else None,
            is_redirect=page.find("redirect") is not None,
            model=(revision[0].findtext("model") or "wikitext").strip(),
            text=revision[0].findtext("text") or "",
        )
