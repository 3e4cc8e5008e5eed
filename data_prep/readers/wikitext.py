"""Wikitext to plain text.

`wiki_elements` removes elements without text; mwparserfromhell parses the rest: templates that stand for text, and
lines with external links. On the 321 pages (15.7 MB) at the beginning of two English dumps, this reaches 8 MB/s on one
core, and no line contains markup. `strip_code()` of mwparserfromhell 0.7.2 reaches 1.2 MB/s and leaves markup in 76
lines; wikitextparser 3.0.0 (under the GPL) reaches 3.8 MB/s; both drop the text of every template.
"""

import re

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Node, Template
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

from data_prep.readers.wiki_elements import without_brackets, without_extension_tags, without_html
from data_prep.readers.wiki_lines import paragraphs_of
from data_prep.readers.wiki_templates import Arguments, find_template

_SCHEME = r"(?:(?:https?:|ftps?:|news:|irc:|gopher:)?//|mailto:)"
_EXTERNAL_LINK = re.compile(rf"\[(?={_SCHEME})", re.IGNORECASE)
# The parser backtracks at unclosed links, so their brackets are removed first.
_UNCLOSED_EXTERNAL_LINK = re.compile(rf"\[(?={_SCHEME}[^\[\]]*(?:\[|\Z))", re.IGNORECASE)
_UNPARSED_EXTERNAL_LINK = re.compile(rf"\[{_SCHEME}[^\s\[\]]*([^\[\]]*)\]", re.IGNORECASE)
# The parser also backtracks at HTML tags. None are left here: every `<` is text.
_HIDDEN_LESS_THAN = "&#060;"
# In the dumps, templates and lines with links have less than 4,000 characters. The parser's time is at most quadratic
# in the length; with this limit, 1 MB takes at most 6 s.
_MAX_PARSED_CHARACTERS = 5_000


def plain_text(wikitext: str) -> list[str]:
    """The prose of a page: headings, paragraphs and list items, each as a line without markup; none is blank.

    Takes linear time for any text, including broken markup.
    """
    text = without_html(without_extension_tags(wikitext))
    return paragraphs_of(without_brackets(text, _template_text), _external_links_text)


def _template_text(content: str) -> str:
    """The text of the template `{{content}}`; "" if it has none."""
    name, _, arguments = content.partition("|")
    if find_template(name) is None:
        return ""
    code = _parse("{{" + content + "}}")
    return arguments if code is None else _text_of(code).replace(_HIDDEN_LESS_THAN, "<")


def _external_links_text(line: str) -> str:
    """Replaces external links with their labels; `[http://example.org]` has none. Bare addresses stay."""
    if not _EXTERNAL_LINK.search(line):
        return line
    code = _parse(line)
    if code is None:
        return _UNPARSED_EXTERNAL_LINK.sub(r"\1", line)
    return _text_of(code).replace(_HIDDEN_LESS_THAN, "<")


def _parse(source: str) -> Wikicode | None:
    """The tree of a text; None if parsing would take too long or fails."""
    if len(source) > _MAX_PARSED_CHARACTERS:
        return None
    source = _UNCLOSED_EXTERNAL_LINK.sub("", source).replace("<", _HIDDEN_LESS_THAN)
    try:
        return mwparserfromhell.parse(source, skip_style_tags=True)
    except (ParserError, RecursionError):
        return None


def _text_of(code: Wikicode | None) -> str:
    return "".join(map(_text_of_node, code.nodes)) if code is not None else ""


def _text_of_node(node: Node) -> str:
    if isinstance(node, ExternalLink) and node.brackets:
        return _text_of(node.title)
    if not isinstance(node, Template):
        return str(node)
    name = str(node.name).strip()
    template_text = find_template(name)
    if template_text is None:
        return ""
    arguments = Arguments(name, [], {})
    for parameter in node.params:
        key, value = str(parameter.name).strip(), _text_of(parameter.value).strip()
        if parameter.showkey and not key.isdecimal():
            arguments.named[key.lower()] = value
        else:
            arguments.positional.append(value)
    return template_text(arguments)
