"""Passes over wikitext that take out, in linear time, what leaves no text behind: what the parser need not see.

They follow the order of MediaWiki's own preprocessor: comments and extension tags first, whichever begins first, then
brackets, innermost first. What comes out is balanced, and its nesting is bounded: on such text the parser neither
backtracks nor recurses deeply.
"""

import html
import re
from collections.abc import Callable

from data_prep.readers.wiki_links import link_text

# Extension tags: MediaWiki takes their content out before it looks at anything else.
_DROPPED_TAGS = (
    "ce|categorytree|chem|gallery|graph|hiero|imagemap|includeonly|indicator|inputbox|mapframe|maplink|math|pre|ref"
    "|references|score|source|syntaxhighlight|templatedata|templatestyles|timeline"
)
_EXTENSION_TAG = re.compile(rf"<!--|<(nowiki|{_DROPPED_TAGS})(?=[\s/>])([^<>]*)>", re.IGNORECASE)
_CLOSING_TAGS = {name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in ("nowiki", *_DROPPED_TAGS.split("|"))}
# <math>n</math> is a word of its sentence; <math>\frac{1}{2}</math> is no text.
_PLAIN_FORMULA = re.compile(r"\s*[\w+=,. ]{1,20}\s*")
_MARKUP_CHARACTER = re.compile(r"[\[\]{}|'*#:;=<>_~!-]")

# HTML that wikitext allows, and tags of extensions whose content is text of the page or which were left without an end.
# Their content stays.
_HTML_TAG = re.compile(
    rf"""</?(?:{_DROPPED_TAGS}|nowiki|noinclude|onlyinclude|section|poem|abbr|b|bdi|bdo|big|blockquote|caption|center|cite
    |code|col|colgroup|data|dd|del|dfn|div|dl|dt|em|font|h[1-6]|hr|i|ins|kbd|li|link|mark|meta|ol|p|q|rb|rp|rt|rtc|ruby
    |s|samp|small|span|strike|strong|sub|sup|table|tbody|td|tfoot|th|thead|time|tr|tt|u|ul|var|wbr)
    (?=[\s/>])[^<>]*>""",
    re.IGNORECASE | re.VERBOSE,
)
_LINE_BREAK = re.compile(r"<br\b[^<>]*>|</br>", re.IGNORECASE)
_HTML_TABLE = re.compile(r"<(/?)table(?=[\s/>])[^<>]*>", re.IGNORECASE)

# Tables open and close at the beginning of a line. `|}}` there ends a template, `|}}}` a table in one.
_BRACKET = re.compile(r"\[\[|\]\]|\{\{+|\}\}+|^[ \t:*#]*\{\|(?!\})|^[ \t]*\|\}(?!\}(?!\}))", re.MULTILINE)
_OPENING_OF = {"]]": "[[", "}}": "{{", "|}": "{|"}
_MAX_DEPTH = 24  # of templates and links in the dumps of 2014 and 2016: 9
_MAX_ELEMENT_CHARACTERS = 20_000  # of a template or link that the parser sees: its worst case is quadratic


def without_extension_tags(text: str) -> str:
    """Takes out comments and extension tags with their content; that of `<nowiki>` stays, as entities.

    An unclosed comment goes on to the end, as in MediaWiki; an unclosed tag goes alone.
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
            pieces.append(_kept_content(name, text[position : closing.start()]))
            position = closing.end()
        else:
            unclosed.add(name)
    pieces.append(text[position:])
    return "".join(pieces)


def _kept_content(name: str, content: str) -> str:
    if name == "nowiki" or (name == "math" and _PLAIN_FORMULA.fullmatch(content)):
        return _MARKUP_CHARACTER.sub(lambda match: f"&#{ord(match.group())};", html.unescape(content))
    return ""


def without_html(text: str) -> str:
    """Takes out HTML tables, and the tags of other HTML, whose content stays."""
    if "<" not in text:
        return text
    pieces = []
    position = depth = 0
    for match in _HTML_TABLE.finditer(text):
        if depth == 0:
            pieces.append(text[position : match.start()])
        depth = max(depth - 1, 0) if match.group(1) else depth + 1
        position = match.end()
    pieces.append(text[position:])  # of a table without an end, too: its tags go, its text stays
    return _HTML_TAG.sub("", _LINE_BREAK.sub(" ", "".join(pieces)))


def without_brackets(text: str, is_kept: Callable[[str], bool], render: Callable[[str], str]) -> str:
    """Takes out tables, templates and links, innermost first; puts in the text that stands for them.

    Brackets without their counterpart go alone. Links that hold no template become text here, which is exact; what
    needs a parser (templates that are kept, with all that they hold, and links that hold one) is left to `render`.

    Args:
        is_kept: (what stands in a template before the first `|`) -> whether it stands for text.
        render: (balanced wikitext of a template or link) -> text.
    """
    output: list[str] = []
    open_brackets: list[tuple[str, int]] = []  # bracket, index in `output`
    num_open = {"[[": 0, "{{": 0, "{|": 0}
    position = 0
    for match in _BRACKET.finditer(text):
        output.append(text[position : match.start()])
        position = match.end()
        token = match.group()
        bracket = token.lstrip(" \t:*#")[:2]
        if bracket in num_open:
            if bracket == "{{" and len(token) % 2:
                output.append("{")
            for _ in range(len(token) // 2 if bracket == "{{" else 1):
                open_brackets.append((bracket, len(output)))
                num_open[bracket] += 1
                output.append("")
            continue
        opening = _OPENING_OF[bracket]
        for _ in range(len(token) // 2 if opening == "{{" else 1):
            if num_open[opening]:
                _close(opening, output, open_brackets, num_open, is_kept, render)
        if opening == "{{" and len(token) % 2:
            output.append("}")
    output.append(text[position:])
    return "".join(output)


def _close(
    opening: str,
    output: list[str],
    open_brackets: list[tuple[str, int]],
    num_open: dict[str, int],
    is_kept: Callable[[str], bool],
    render: Callable[[str], str],
) -> None:
    """Closes the last `opening`, and with it whatever was opened in it and not closed."""
    bracket = ""
    while bracket != opening:
        bracket, begin = open_brackets.pop()
        num_open[bracket] -= 1
    content = "".join(output[begin:])
    del output[begin:]
    if opening == "{|" or len(open_brackets) >= _MAX_DEPTH or len(content) > _MAX_ELEMENT_CHARACTERS:
        return
    if opening == "{{":
        if not is_kept(content.partition("|")[0]):
            return
        element = "{{" + content + "}}"
    elif "{{" not in content and not num_open["{{"]:
        output.append(link_text(content))
        return
    else:
        element = "[[" + content + "]]"
    output.append(element if num_open["{{"] or num_open["[["] else render(element))
