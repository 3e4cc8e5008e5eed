"""Removes elements without text from wikitext, and resolves links, in linear time.

The order is that of MediaWiki's preprocessor: comments and extension tags from left to right, then brackets, innermost
first. So the parser of `wikitext` gets single templates, never nested ones, and does not backtrack.
"""

import html
import re
from collections import deque
from collections.abc import Callable, Set

_MEDIA_TARGET = re.compile(
    r"[^|\]:]+:[^|]+\.(?:jpe?g|png|svg|gif|tiff?|og[agv]|oga|webm|webp|pdf|djvu|mid|flac|wav)\s*", re.IGNORECASE
)
# [[de:Anarchismus]] links to the article in another language. Longer prefixes are sister projects, which have text.
_LANGUAGE_PREFIX = re.compile(r"[a-z]{2,3}(?:-[a-z]{2,8}){0,2}|simple")
_PROJECT_PREFIXES = frozenset({"mw", "wmf", "rfc", "wp", "doi"})
_MAX_TARGET_CHARACTERS = 255  # MediaWiki's limit of a title; a longer target makes no link
# The pipe trick: [[Project:Boston, Massachusetts|]] is shown as "Boston", [[Pipe (computing)|]] as "Pipe".
_PIPE_TRICK = re.compile(r"(?:[^:]*:)?(.*?)(?:\s*\([^()]*\)|,.*)?")

# Extension tags. MediaWiki removes them with their content before everything else.
_DROPPED_TAGS = (
    "ce|categorytree|chem|gallery|graph|hiero|imagemap|includeonly|indicator|inputbox|mapframe|maplink|math|pre|ref"
    "|references|score|source|syntaxhighlight|templatedata|templatestyles|timeline"
)
_EXTENSION_TAG = re.compile(rf"<!--|<(nowiki|{_DROPPED_TAGS})(?=[\s/>])([^<>]*)>", re.IGNORECASE)
_CLOSING_TAGS = {name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in ("nowiki", *_DROPPED_TAGS.split("|"))}
# <math>n</math> is kept as a word of its sentence; <math>\frac{1}{2}</math> is dropped.
_PLAIN_FORMULA = re.compile(r"[\w+=,. ]{1,20}")
# A number beyond Unicode, as which `html.unescape` reads it; Python converts at most 4,300 digits.
_LONG_REFERENCE = re.compile("&#[0-9]{1000,};?")
_MARKUP_CHARACTER = re.compile(r"[\[\]{}|'*#:;=<>_~!-]")

# HTML tags whose content is kept: those that wikitext allows, extension tags around text, unclosed tags.
_HTML_TAG = re.compile(
    rf"""</?(?:{_DROPPED_TAGS}|nowiki|noinclude|onlyinclude|section|abbr|b|bdi|bdo|big|cite|code|col|colgroup|data|del|dfn
    |em|font|i|ins|kbd|link|mark|meta|q|rb|rp|rt|rtc|ruby|s|samp|small|span|strike|strong|sub|sup|time|tt|u|var|wbr)
    (?=[\s/>])[^<>]*>""",
    re.IGNORECASE | re.VERBOSE,
)
# Tags of elements that a browser shows apart from the text around them.
_BLOCK_TAGS = re.compile(
    r"""(?:</?(?:blockquote|br|caption|center|dd|div|dl|dt|h[1-6]|hr|li|ol|p|poem|table|tbody|td|tfoot|th|thead|tr|ul)
    (?=[\s/>])[^<>]*>[ \t]*)+""",
    re.IGNORECASE | re.VERBOSE,
)
# 10<sup>7</sup> without its tags would be another number.
_POWER = re.compile(r"(?<=\d)<sup>\s*(?=[-−]?\d+\s*</sup>)", re.IGNORECASE)
_HTML_TABLE = re.compile(r"<(/?)table(?=[\s/>])[^<>]*>", re.IGNORECASE)

# Tables open and close at the beginning of a line. `|}}` there ends a template, `|}}}` a table within a template.
_BRACKET = re.compile(r"\[\[|\]\]+|\{\{+|\}\}+|^[ \t:*#]*\{\|(?!\})|^[ \t]*\|\}(?!\}(?!\}))", re.MULTILINE)
_OPENING_OF = {"]]": "[[", "}}": "{{", "|}": "{|"}
# MediaWiki's limit for the nesting of templates; the dumps of 2014 and 2016 reach 14. Beyond it, the outermost bracket
# counts as unclosed, because the time grows with length times depth.
_MAX_OPEN_BRACKETS = 100
_ARGUMENT_CHARACTER = re.compile(r"[|=]")
# A `|` that would split the label or argument around it. It is markup, unlike {{!}} and the `&#124;` of a page, and may
# belong to a bracket of a table.
HIDDEN_BAR = "&#0124;"
# A character for a template that was dropped; see `without_brackets`. Surrogates stand in no decoded text.
FIRST_MARKER, MARKER = 0xD800, re.compile("[\ud800-\udfff]")


def without_extension_tags(text: str) -> str:
    """Removes comments, and extension tags with their content; the content of `<nowiki>` stays, its markup as entities.

    As in MediaWiki, an unclosed comment extends to the end. An unclosed tag is removed without its content.
    """
    pieces = []
    position = 0
    unclosed = set()
    while match := _EXTENSION_TAG.search(text, position):
        pieces.append(text[position : match.start()])
        position = match.end()
        if match.group(1) is None:
            end = text.find("-->", position)
            position = len(text) if end < 0 else end + 3
            continue
        name = match.group(1).lower()
        if match.group(2).endswith("/") or name in unclosed:
            continue
        if closing := _CLOSING_TAGS[name].search(text, position):
            content, position = text[position : closing.start()], closing.end()
            if name == "nowiki" or (name == "math" and _PLAIN_FORMULA.fullmatch(content.strip())):
                content = html.unescape(_LONG_REFERENCE.sub("\ufffd", content))
                pieces.append(_MARKUP_CHARACTER.sub(_as_entity, content))
        else:
            unclosed.add(name)
    pieces.append(text[position:])
    return "".join(pieces)


def without_html(text: str) -> str:
    """Removes HTML tables, and the tags (not the content) of other HTML elements and of unclosed tables."""
    if "<" not in text:
        return text
    tables: list[tuple[int, int]] = []  # begin and end of each outermost table
    open_tables = []
    for match in _HTML_TABLE.finditer(text):
        if not match.group(1):
            open_tables.append(match.start())
        elif open_tables:
            begin = open_tables.pop()
            while tables and tables[-1][0] > begin:
                tables.pop()
            tables.append((begin, match.end()))
    begins = [0, *(end for _, end in tables)]
    ends = [*(begin for begin, _ in tables), len(text)]
    text = "".join(text[begin:end] for begin, end in zip(begins, ends, strict=True))
    # No space at the beginning of a line, whose first character says what the line is.
    text = _POWER.sub("^", text)
    text = _BLOCK_TAGS.sub(lambda tags: " " if tags.start() and text[tags.start() - 1] != "\n" else "", text)
    return _HTML_TAG.sub("", text)


def without_brackets(text: str, template_text: Callable[[str], str], invisible_namespaces: Set[str]) -> str:
    """Replaces tables, templates and links with their text, innermost first.

    Unpaired brackets are removed, and the first line of an unclosed table.

    Args:
        template_text: (content of a template between its braces, without nested elements) -> its text, or a `MARKER`.
            Templates and links do not see the markers of templates inside them; these follow their text if any.
        invisible_namespaces: in lower case, those of links without text.
    """
    brackets = _Brackets(template_text, invisible_namespaces)
    position = 0
    for match in _BRACKET.finditer(text):
        brackets.output.append(text[position : match.start()])
        position = match.end()
        token = match.group().lstrip(" \t:*#")
        num_brackets, is_odd = divmod(len(token), 2)
        if token[:2] in _OPENING_OF:
            # The odd bracket is innermost in `[[File:A.jpg|[http://b c]]]`, outermost in `{{{x}}}`, `[http://a [[b]]]`.
            is_first = is_odd and brackets.has_open_address()
            brackets.output.append(token[0] if is_first else "")
            for _ in range(num_brackets):
                brackets.close(_OPENING_OF[token[:2]])
            brackets.output.append(token[0] if is_odd and not is_first else "")
        else:
            brackets.output.append(token[0] if is_odd else "")
            for _ in range(num_brackets):
                brackets.open(token[:2])
    brackets.output.append(text[position:])
    return brackets.text()


class _Brackets:
    """The output of `without_brackets` so far, and the open brackets."""

    def __init__(self, template_text: Callable[[str], str], invisible_namespaces: Set[str]) -> None:
        self.output: list[str] = []
        self._template_text = template_text
        self._invisible_namespaces = invisible_namespaces
        # A bracket, and the index in `output` where its content begins.
        self._open: deque[tuple[str, int]] = deque(maxlen=_MAX_OPEN_BRACKETS)

    def open(self, bracket: str) -> None:
        self._open.append((bracket, len(self.output)))

    def has_open_address(self) -> bool:
        """Whether a single `[` is open inside the last open `[[`."""
        if not self._open or self._open[-1][0] != "[[":
            return False
        content = "".join(self.output[self._open[-1][1] :])
        return content.count("[") > content.count("]")

    def close(self, bracket: str) -> None:
        """Closes the last open `bracket`, if there is one, and all brackets opened after it."""
        if all(other != bracket for other, _ in self._open):
            return
        closed = ""
        while closed != bracket:
            closed, begin = self._open.pop()
        content = "".join(self.output[begin:])
        del self.output[begin:]
        if bracket == "{|":
            return
        markers = "" if content.isascii() else "".join(MARKER.findall(content))
        content = MARKER.sub("", content) if markers else content
        is_link = bracket == "[["
        text = link_text(content, self._invisible_namespaces) if is_link else self._template_text(content)
        if markers and text:
            end = len(text.rstrip())
            text = text[:end] + markers + text[end:]
        if self._open:
            # `|` and `=` would split the label or argument that contains this text.
            hidden = text if content.strip() == "!" else text.replace("|", HIDDEN_BAR)
            text = _ARGUMENT_CHARACTER.sub(_as_entity, hidden)
        self.output.append(text)

    def text(self) -> str:
        for bracket, begin in self._open:
            if bracket == "{|":
                _, newline, rest = self.output[begin].partition("\n")
                self.output[begin] = newline + rest
        return "".join(self.output)


def _as_entity(match: re.Match[str]) -> str:
    return f"&#{ord(match.group())};"


def link_text(content: str, invisible_namespaces: Set[str]) -> str:
    """The visible text of `[[content]]`: its label or target; "" for files, categories and other languages.

    With a leading colon (`[[:File:Example.png]]`), a link to a file or category is visible.
    """
    target, has_label, label = content.partition("|")
    if "\n" in target or len(target) > _MAX_TARGET_CHARACTERS:
        return content
    target = target.strip()
    prefix, colon, rest = target.partition(":")
    if colon and prefix:
        prefix = prefix.strip().replace("_", " ")
        if prefix.lower() in invisible_namespaces or _MEDIA_TARGET.fullmatch(target):
            return ""
        is_language = _LANGUAGE_PREFIX.fullmatch(prefix) and prefix not in _PROJECT_PREFIXES
        if is_language and rest and not rest[0].isspace():
            return ""
    target = target.removeprefix(":")
    if has_label:
        return label if label.strip() else _PIPE_TRICK.fullmatch(target).group(1)
    return target
