"""Pages of a MediaWiki XML export, one at a time.

The layout is that of every export since 2005 (schemas 0.3 to 0.11): elements on lines of their own, text escaped. So a
line that begins with `<page>` begins a page, and what stands between such lines is parsed by itself: without the
namespace of the schema, and without a document type that could declare entities.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from data_prep.readers.documents import BYTE_ORDER_MARK, Counts, Source
from electra_tf.config.errors import UserError

_PAGE_BEGIN = b"<page>"
_PAGE_END = b"</page>"
_REVISION_BEGIN = b"<revision>"
_EXPORT_BEGIN = re.compile(rb"<(?:\?xml|mediawiki|!--|page>|/mediawiki>)")
_EXPORT_END = b"</mediawiki>"
_NAMESPACE = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True)
class Page:
    """One page at its last revision.

    Attributes:
        namespace: its number as the export states it; None before schema 0.6, which had none.
        is_redirect: as the export states it; schemas before 0.4 do not, whatever the page.
        model: of the content, such as "wikitext", "css" or "json"; "wikitext" where the export states none.
        text: the source of the page; empty where it was suppressed or is stored elsewhere.
    """

    title: str
    namespace: int | None
    is_redirect: bool
    model: str
    text: str


def begins_page(line: bytes) -> bool:
    """Whether `line` begins a page. The text of pages is escaped: no line of it can."""
    return line.lstrip().startswith(_PAGE_BEGIN)


def read_pages(stream: BinaryIO, source: Source, counts: Counts) -> Iterator[Page]:
    """The pages of (a part of) an export, in its order.

    Of a page with its history only the last revision is held. A file that ends inside a page or without `</mediawiki>`
    gives the pages before, and one line in `counts.truncations`.

    Args:
        stream: whole pages; may begin with the header, may end with `</mediawiki>`.
    Raises: UserError: the stream is no such export, or a page is broken.
    """
    offset = source.offset
    pending: _PendingPage | None = None
    is_first = True
    is_closed = False
    for line in iter(stream.readline, b""):
        stripped = line.strip()
        if is_first and stripped:
            _check_beginning(stripped, source)
            is_first = False
        if stripped.startswith(_PAGE_BEGIN):
            if pending:
                raise UserError(f"{pending.place()} has no </page> before the next <page>; {_MEND}")
            pending = _PendingPage(source.path, offset)
        if pending:
            pending.add(line, stripped, offset)
            if stripped.endswith(_PAGE_END):
                yield pending.parse()
                pending = None
                is_closed = False
        elif stripped.endswith(_EXPORT_END):
            is_closed = True
        offset += len(line)

    if pending and not source.is_end:
        raise UserError(f"{pending.place()} has no </page>; {_MEND}")
    if source.is_end and not is_closed:
        where = "between two pages" if pending is None else f"inside the page that begins at byte {pending.offset}"
        counts.truncations.append(
            f"{source.path} is truncated at byte {offset}: {where}, expected </mediawiki> at its end"
        )


_MEND = "the file is damaged, download it anew"


def _check_beginning(line: bytes, source: Source) -> None:
    if not _EXPORT_BEGIN.match(line.removeprefix(BYTE_ORDER_MARK)):
        raise UserError(
            f"{source.path} at byte {source.offset} begins with {line[:20]!r}; expected a MediaWiki XML export:"
            " <mediawiki ...> or a line with <page>; name the right format in --input=FORMAT:GLOB"
        )


class _PendingPage:
    """The lines of a page so far: up to its first revision, and of its latest one."""

    def __init__(self, path: str, offset: int) -> None:
        self.offset = offset
        self._path = path
        self._head: list[bytes] = []
        self._revision: list[bytes] = []
        self._revision_offset = 0

    def place(self) -> str:
        return f"{self._path}: the page that begins at byte {self.offset}"

    def add(self, line: bytes, stripped: bytes, offset: int) -> None:
        if stripped.startswith(_REVISION_BEGIN):
            self._revision = []
            self._revision_offset = offset
        (self._revision if self._revision or stripped.startswith(_REVISION_BEGIN) else self._head).append(line)

    def parse(self) -> Page:
        lines = self._head + self._revision
        try:
            page = ElementTree.fromstring(b"".join(lines))
        except ElementTree.ParseError as error:
            at = self._line_offset(error.position[0])
            raise UserError(f"{self.place()} is not well-formed XML at byte {at} ({error}); {_MEND}") from None
        namespace = page.findtext("ns", "").strip()
        revision = page.findall("revision")[-1:] or [ElementTree.Element("revision")]
        return Page(
            title=page.findtext("title", "").strip(),
            namespace=int(namespace) if _NAMESPACE.fullmatch(namespace) else None,
            is_redirect=page.find("redirect") is not None,
            model=(revision[0].findtext("model") or "wikitext").strip(),
            text=revision[0].findtext("text") or "",
        )

    def _line_offset(self, line_number: int) -> int:
        """Where line `line_number` of the parsed lines, counted from 1, begins in the file."""
        index = line_number - 1
        if index < len(self._head):
            return self.offset + sum(map(len, self._head[:index]))
        return self._revision_offset + sum(map(len, self._revision[: index - len(self._head)]))
