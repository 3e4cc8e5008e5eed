"""Splits wikitext without nested elements into paragraphs, headings and list items, and cleans each line."""

import html
import re
from collections.abc import Callable, Set

from data_prep.wikitext.elements import HIDDEN_BAR

_HEADING = re.compile(r"(={1,6})(.+?)\1\s*([\ud800-\udfff]*)")  # markers of dropped templates may follow
_LINE_MARKERS = " \t=*#:;|!-"
_LIST_MARKER = re.compile(r"[*#:;][*#:; \t]*")
_RULE = re.compile(r"-{4,}")
# Lines of unclosed tables and templates; no prose begins like this.
_TABLE_LINE = re.compile(r"\||!.*(?:\||!!)")

_QUOTES = re.compile(r"'{2,}")
# A text in several scripts or dialects, as in Chinese and Serbian: `-{zh-hans:a;zh-hant:b}-`, `-{a}-`, `-{T|a}-`.
_VARIANTS = re.compile(r"-\{([^{}]*)\}-")
_CODE = r"\s*(?:ban|crh|gan|iu|kk|ku|sh|shi|sr|tg|tly|uz|wuu|zh)(?:-[a-z]+)*\s*"
_VARIANT = re.compile(rf"(?:^|;){_CODE}:")
_FLAGS = re.compile(rf"(?:(?:^|;)(?:\s*[AHTRDNS+-]?\s*|{_CODE}))*")
_HIDDEN_FLAGS = frozenset("HT-")  # of rules and titles
# Elsewhere the same characters stand in names of chemistry and in mathematics: N-{2-[4-(a)]ethyl}-N, {a}-{b}-{c}.
_ALONE = re.compile(r"(?<![0-9A-Za-z})\]])-\{[^{}]*\}-(?![0-9A-Za-z{(\[])")
_MAGIC_WORD = re.compile(r"__[^\W\da-z_](?:[^\W\da-z])+?__")
_LEFTOVER = re.compile(
    r"""\[\[|\]\]|\{\{|\}\}|\{\||\|\}|<!--|-->|</?ref[^\s<>]*(?:\s+(?:name|group)\s*=\s*(?:"[^"<>]*"|[^\s<>]+))?\s*/?>?"""
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,31});", re.IGNORECASE)
# Hints for layout: soft hyphen, direction marks, word joiner, byte order mark.
_INVISIBLE = re.compile("[\u00ad\u200e\u200f\u202a-\u202e\u2060\ufeff]")
_SPACES = re.compile(r"\s+")
# Only after a space: "printf()" is a name.
_EMPTY_BRACKETS = re.compile(r"(?:(?<=\s)|^)(?:\([\s,;:/–—-]*\)|\[[\s,;:]*\]|\{\s*\})")
_CJK_GAPS = re.compile(r"（[\s、，；：]*）|(?<=（)[\s、，；：]+|[、，；：]+(?=[、，；：）])")
_LEADING_SEPARATORS = re.compile(r"\((?:\s*[,;])+\s*")
_TRAILING_SEPARATORS = re.compile(r"(?:\s*[,;])+\s*\)")
_REPEATED_SEPARATORS = re.compile(r"([,;:])(?:\s?[,;])+")
_SEPARATOR_BEFORE_STOP = re.compile(r"[,;:]\s?(?=\.(?:\s|$))")
_INNER_SPACE = re.compile(r"(?<=\()\s+|\s+(?=\))")
_SPACE_BEFORE_POINT = re.compile(r"\s+(?=[,.](?:\s|$))")


def paragraphs_of(text: str, render: Callable[[str], str], reference_sections: Set[str]) -> list[str]:
    """The headings, paragraphs and list items of a text, each as a clean line without its marker.

    As in MediaWiki, consecutive lines form a paragraph. A heading without text under it is dropped. `render` replaces
    the markup inside a line with text. Lists are left out under headings in `reference_sections`, in lower case.
    """
    outline = _Outline(reference_sections)
    paragraph: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line and line[0] not in _LINE_MARKERS and not line.isspace():
            paragraph.append(line)
            continue
        if paragraph:
            outline.add_text(clean_line(render(" ".join(paragraph))))
            paragraph = []
        if not (line := line.strip()) or _TABLE_LINE.match(line) or _RULE.fullmatch(line):
            continue
        if heading := _HEADING.fullmatch(line):
            outline.add_heading(len(heading.group(1)), clean_line(render(heading.group(2) + heading.group(3))))
        elif marker := _LIST_MARKER.match(line):
            if outline.reference_level == 0:
                outline.add_text(clean_line(render(line[marker.end() :])))
        else:
            outline.add_text(clean_line(render(line)))
    return outline.lines


class _Outline:
    """The lines of a page so far, and the headings that have no text under them yet."""

    def __init__(self, reference_sections: Set[str]) -> None:
        self.lines: list[str] = []
        self._reference_sections = reference_sections
        self._pending_headings: list[tuple[int, str]] = []
        self.reference_level = 0  # of the heading of citations above; 0 if there is none

    def add_heading(self, level: int, title: str) -> None:
        while self._pending_headings and self._pending_headings[-1][0] >= level:
            self._pending_headings.pop()
        if title:
            self._pending_headings.append((level, title))
        if self.reference_level == 0 or level <= self.reference_level:
            self.reference_level = level if title.lower() in self._reference_sections else 0

    def add_text(self, line: str) -> None:
        if not line:
            return
        self.lines += [title for _, title in self._pending_headings]
        self._pending_headings.clear()
        self.lines.append(line)


def clean_line(line: str) -> str:
    """Decodes entities; removes emphasis, magic words, and empty brackets and spaces left by dropped templates.

    Of a text in several scripts or dialects, the first remains.

    Returns: the stripped line; "" if it has no letter or digit.
    """
    if "''" in line:
        # Emphasis is 2, 3 or 5 apostrophes, the last 3 of 4, and the last 5 of more than 5.
        line = _QUOTES.sub(lambda quotes: "'" * (1 if len(quotes[0]) == 4 else max(len(quotes[0]) - 5, 0)), line)
    if "-{" in line:
        line = _VARIANTS.sub(_first_variant, line)
    if "__" in line:
        line = _MAGIC_WORD.sub("", line)
    # The space keeps the characters around it from forming another bracket.
    line = _LEFTOVER.sub(" ", line.replace(HIDDEN_BAR, "|"))
    if "&" in line:
        line = _ENTITY.sub(lambda match: html.unescape(match.group()), line)
    line = _SPACES.sub(" ", _INVISIBLE.sub("", line))
    line = _REPEATED_SEPARATORS.sub(r"\1", line)
    if "、" in line or "（" in line:
        line = _CJK_GAPS.sub("", line)
    if "(" in line or "[" in line or "{" in line:
        line = _TRAILING_SEPARATORS.sub(")", _LEADING_SEPARATORS.sub("(", line))
        line = _SPACES.sub(" ", _INNER_SPACE.sub("", _EMPTY_BRACKETS.sub("", line)))
    line = _SPACE_BEFORE_POINT.sub("", _SEPARATOR_BEFORE_STOP.sub("", line)).strip()
    return line if any(map(str.isalnum, line)) else ""


def _first_variant(match: re.Match[str]) -> str:
    flags, bar, text = match.group(1).rpartition("|")
    variants = _VARIANT.split(text)
    is_markup = bar or len(variants) > 1 or not text.isascii() or _ALONE.match(match.string, match.start())
    if not is_markup or not _FLAGS.fullmatch(flags):
        return match.group()
    if _HIDDEN_FLAGS.intersection(flag.strip() for flag in flags.split(";")):
        return ""
    return variants[1] if len(variants) > 1 else text
