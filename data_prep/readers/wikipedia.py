"""Wikipedia dumps: the articles of a MediaWiki XML export as plain text.

In every export since 2005 (schemas 0.3 to 0.11), text is escaped. So the tag `<page>`, anywhere in a line and with any
attributes, begins a page. Each page is parsed separately: without the namespace of the schema, and without a document
type that could declare entities.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from data_prep.archives import BUFFER_BYTES, FileFault, error_of
from data_prep.counts import ReadCounts
from data_prep.documents import BYTE_ORDER_MARK, Document, Origin, RecordFault, read_or_skip
from data_prep.wikitext.names import Wiki, header_of, normalized, wiki_of
from data_prep.wikitext.prose import plain_text
from electra_tf.data.manifest import DatasetSettings

# Why a page was skipped: keys of `ReadCounts.num_documents_skipped`.
OTHER_NAMESPACE, REDIRECT, DISAMBIGUATION = "pages outside the article namespace", "redirects", "disambiguation pages"
NOT_WIKITEXT, PAGE_WITHOUT_TEXT = "pages that are not wikitext", "pages without text"

# `#REDIRECT [[X]]`, and the word in other languages. An article may begin with a numbered list: `# [[X]]`, `#1 [[X]]`.
_REDIRECT = re.compile(r"\s*([#＃][^\s\[\]{}|<>#:]{2,30})\s{0,9}:?\s{0,9}\[\[[^\[\]\n]+\]\]")
_TEMPLATE_NAME = re.compile(r"\{\{([^|{}<>\n]{1,80})[|}\n]")
_DISAMBIGUATION_TITLE = "(disambiguation)"
_DISAMBIGUATION_WORD = "__DISAMBIG__"
# Matches {{disambig}}, {{disambiguation}}, {{airport disambiguation}} and {{disambiguation cleanup}}, but not
# {{disambiguation needed}}, which marks a link, nor {{surname}} and {{given name}}, which articles also have.
_DISAMBIGUATION_TEMPLATE = re.compile(r"(?:.*\b)?disambig(?:uation)?(?: page)?(?:[ -]cleanup)?")

# Within a page nothing matches, because text is escaped.
PAGE_BEGIN = re.compile(rb"<page[\s/>]")
_PAGE_BEGIN_BYTES = 6
_PAGE_END = b"</page>"
_EXPORT_BEGIN = re.compile(rb"<(?:\?xml|mediawiki|!--|page[\s/>]|/mediawiki>)")


def read_wikipedia(stream: BinaryIO, origin: Origin, settings: DatasetSettings) -> Iterator[Document | ReadCounts]:
    """The articles of a MediaWiki XML export at their last revisions; the first line of each is its title.

    Other pages are counted as skipped. This depends on the page and on the header of the export, which is in
    `origin.header` if the stream is a part of a file.
    """
    wiki = wiki_of(origin.header, settings.language, settings.wikipedia_names)
    for offset, content in _parts_between_pages(stream, origin.offset):
        if not PAGE_BEGIN.match(content):
            begin = content.removeprefix(BYTE_ORDER_MARK).lstrip()
            if begin and not _EXPORT_BEGIN.match(begin):
                description = (
                    f"begins with {begin[:20]!r}; expected a MediaWiki XML export, or the right format in input"
                )
                raise FileFault("files in another format", description)
            wiki = wiki_of(header_of(content) or origin.header, settings.language, settings.wikipedia_names)
            continue
        source, end, _ = content.partition(_PAGE_END)
        page = read_or_skip(_parsed, source + end, Origin(origin.path, offset))
        if isinstance(page, ReadCounts):
            yield page
            continue
        title = page.findtext("title", "").strip()
        text = page.findtext("revision[last()]/text") or ""  # empty if it was suppressed or is stored elsewhere
        if reason := _reason_to_skip(page, title, text, settings, wiki):
            yield ReadCounts.skipped(reason)
            continue
        prose = read_or_skip(partial(plain_text, wiki=wiki), text, Origin(origin.path, offset), title)
        if isinstance(prose, ReadCounts):
            yield prose
            continue
        paragraphs, dropped = prose
        if dropped:
            yield ReadCounts(templates_dropped=dropped)
        if paragraphs:
            yield Document([title, *paragraphs] if title else paragraphs, has_paragraphs=True)
        else:
            yield ReadCounts.skipped(PAGE_WITHOUT_TEXT)


def _reason_to_skip(page: ElementTree.Element, title: str, text: str, settings: DatasetSettings, wiki: Wiki) -> str:
    # Exports before schema 0.6 have no namespaces, those before 0.4 do not mark redirects.
    namespace = page.findtext("ns", "").strip()
    prefix, colon, _ = title.partition(":")
    if namespace != "0" if namespace else colon and normalized(prefix) in wiki.other_namespaces:
        return OTHER_NAMESPACE
    redirect = None if wiki.marks_redirects else _REDIRECT.match(text)
    if page.find("redirect") is not None or redirect and normalized(redirect.group(1)) in wiki.redirect:
        return REDIRECT
    if (page.findtext("revision[last()]/model") or "wikitext").strip() != "wikitext":
        return NOT_WIKITEXT
    if not settings.keep_disambiguation_pages and is_disambiguation(title, text, wiki):
        return DISAMBIGUATION
    return ""


def is_disambiguation(title: str, text: str, wiki: Wiki) -> bool:
    """Whether a page of this wikitext lists articles of a name."""
    templates = (normalized(match.group(1)) for match in _TEMPLATE_NAME.finditer(text))
    return (
        title.endswith(_DISAMBIGUATION_TITLE)
        or _DISAMBIGUATION_WORD in text
        or any(name in wiki.disambiguation or _DISAMBIGUATION_TEMPLATE.fullmatch(name) for name in templates)
    )


def _parts_between_pages(stream: BinaryIO, offset: int) -> Iterator[tuple[int, bytes]]:
    """Cuts a stream before each page; yields the offset and the content of the parts."""
    content = bytearray()
    while block := stream.read(BUFFER_BYTES):
        begin, searched = 0, max(1, len(content) - _PAGE_BEGIN_BYTES + 1)
        content += block
        while tag := PAGE_BEGIN.search(content, searched):
            yield offset + begin, bytes(content[begin : tag.start()])
            begin, searched = tag.start(), tag.end()
        del content[:begin]
        offset += begin
    if _PAGE_END in content or not error_of(stream):  # else a fault cuts the page
        yield offset, bytes(content)


def _parsed(page: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(page)
    except ElementTree.ParseError as error:
        raise RecordFault("malformed pages", str(error)) from None
