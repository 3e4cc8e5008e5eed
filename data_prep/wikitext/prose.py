"""Wikitext to plain text.

`wiki_elements` removes elements without text; mwparserfromhell parses the rest: templates that stand for text, and
lines with external links. On the 321 pages (15.7 MB) at the beginning of two English dumps, this reaches 8 MB/s on one
core, and no line contains markup. `strip_code()` of mwparserfromhell 0.7.2 reaches 1.2 MB/s and leaves markup in 76
lines; wikitextparser 3.0.0 (under the GPL) reaches 3.8 MB/s; both drop the text of every template.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Node, Template
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

from data_prep.wikitext.elements import FIRST_MARKER, MARKER, without_brackets, without_extension_tags, without_html
from data_prep.wikitext.lines import paragraphs_of
from data_prep.wikitext.names import Wiki, normalized
from data_prep.wikitext.templates import UNFIT, Arguments, Locale, text_of

ParserFunction = Callable[[str, Arguments, Locale], str]

_SCHEME = r"(?:(?:https?:|ftps?:|news:|irc:|gopher:)?//|mailto:)"
_EXTERNAL_LINK = re.compile(rf"\[(?={_SCHEME})", re.IGNORECASE)
# The parser backtracks at unclosed links, so their brackets are removed first.
_UNCLOSED_EXTERNAL_LINK = re.compile(rf"\[(?={_SCHEME}[^\[\]]*(?:\[|\Z))", re.IGNORECASE)
_UNPARSED_EXTERNAL_LINK = re.compile(rf"\[{_SCHEME}[^\s\[\]]*([^\[\]]*)\]", re.IGNORECASE)
# The first argument of a parser function is any text, except of these two, where it is a name.
_PARSER_FUNCTION = re.compile(r"^(?!#(?:tag|invoke):)(#?\w+):.*")
_MAX_NAME_CHARACTERS, _MAX_NAMES = 80, 2_000  # of the dropped templates that are counted on a page
# The parser also backtracks at HTML tags. None are left here: every `<` is text.
_HIDDEN_LESS_THAN = "&#060;"
# In the dumps, templates and lines with links have less than 4,000 characters. The parser's time is at most quadratic
# in the length; with this limit, 1 MB takes at most 6 s.
_MAX_PARSED_CHARACTERS = 5_000


def plain_text(wikitext: str, wiki: Wiki) -> tuple[list[str], Counter[str]]:
    """The prose of a page: headings, paragraphs and list items, each as a line without markup; none is blank.

    Takes linear time for any text, including broken markup.

    Returns: the lines, and the number of templates that were dropped in a line with other text, by name.
    """
    text = without_html(without_extension_tags(wikitext))
    names: dict[str, str] = {}
    text = without_brackets(text, partial(_template_text, wiki, names), wiki.invisible)
    if names:
        # Markers go behind the text of a line, whose first character says what it is. Those without text go.
        lines = ((line, MARKER.sub("", line)) for line in text.split("\n"))
        text = "\n".join(plain + "".join(MARKER.findall(line)) * bool(plain.strip()) for line, plain in lines)
    dropped: Counter[str] = Counter()
    return paragraphs_of(text, partial(_line_text, wiki, names, dropped), wiki.reference_sections), dropped


def _template_text(wiki: Wiki, names: dict[str, str], content: str) -> str:
    """The text of the template `{{content}}`; "" if it has none, the marker of its name in `names` if it is dropped."""
    name, _, arguments = content.partition("|")
    rule = wiki.rule_of(name)
    text = "" if rule == [] else UNFIT
    if rule or _parser_function(name):
        code = _parse("{{" + content + "}}")
        text = arguments if code is None else _text_of(code, wiki).replace(_HIDDEN_LESS_THAN, "<")
    if UNFIT not in text:
        return text
    # The name is that of a rule in a file of names: a parser function `#if:` has the pattern `/#if:.*/`.
    name = _PARSER_FUNCTION.sub(r"/\1:.*/", normalized(name))
    # One that spans lines, such as an infobox, is in no sentence.
    is_marked = name and "\n" not in content and len(name) <= _MAX_NAME_CHARACTERS and len(names) < _MAX_NAMES
    return text.replace(UNFIT, names.setdefault(name, chr(FIRST_MARKER + len(names))) if is_marked else "")


def _line_text(wiki: Wiki, names: dict[str, str], dropped: Counter[str], line: str) -> str:
    """The text of a line with its external links replaced; counts its markers if it has a word.

    `[http://example.org]` has no text. Bare addresses stay.
    """
    if names and (markers := MARKER.findall(line)):
        line = MARKER.sub("", line)
        if any(map(str.isalnum, line)):
            dropped.update(list(names)[ord(marker) - FIRST_MARKER] for marker in markers)
    if not _EXTERNAL_LINK.search(line):
        return line
    if (code := _parse(line)) is None:
        return _UNPARSED_EXTERNAL_LINK.sub(r"\1", line)
    return _text_of(code, wiki).replace(_HIDDEN_LESS_THAN, "<")


def _parser_function(name: str) -> ParserFunction | None:
    """The function of a text before the first `|` such as "formatnum: 5000", where its first argument follows."""
    function, colon, _ = name.partition(":")
    return _PARSER_FUNCTIONS.get(function.strip().lower()) if colon else None


def _format_number(text: str, arguments: Arguments, locale: Locale) -> str:
    """{{formatnum:5000}}: "5,000"; {{formatnum:5,000|R}}: "5000"; {{formatnum:5000|NOSEP}}: "5000"."""
    if arguments.get("1") == "R":
        return text.replace(locale.thousands, "").replace(locale.decimal, ".")
    return locale.number(text) if arguments.get("1") != "NOSEP" else text


_PARSER_FUNCTIONS: dict[str, ParserFunction] = {
    "formatnum": _format_number,
    "lc": lambda text, *_: text.lower(),
    "uc": lambda text, *_: text.upper(),
    "lcfirst": lambda text, *_: text[:1].lower() + text[1:],
    "ucfirst": lambda text, *_: text[:1].upper() + text[1:],
}


def _parse(source: str) -> Wikicode | None:
    """The tree of a text; None if parsing would take too long or fails."""
    if len(source) > _MAX_PARSED_CHARACTERS:
        return None
    source = _UNCLOSED_EXTERNAL_LINK.sub("", source).replace("<", _HIDDEN_LESS_THAN)
    try:
        return mwparserfromhell.parse(source, skip_style_tags=True)
    except (ParserError, RecursionError):
        return None


def _text_of(code: Wikicode | None, wiki: Wiki) -> str:
    return "".join(_text_of_node(node, wiki) for node in code.nodes) if code is not None else ""


def _text_of_node(node: Node, wiki: Wiki) -> str:
    if isinstance(node, ExternalLink) and node.brackets:
        return _text_of(node.title, wiki)
    if not isinstance(node, Template):
        return str(node)
    name = str(node.name).strip()
    # The parser numbers arguments without a name. Of two with the same name, the last one counts.
    values = {str(each.name).strip().lower(): _text_of(each.value, wiki).strip() for each in node.params}
    if function := _parser_function(name):
        return function(name.partition(":")[2].strip(), values, wiki.locale)
    return text_of(wiki.rule_of(name) or [], {**values, "@name": name}, wiki.locale)
