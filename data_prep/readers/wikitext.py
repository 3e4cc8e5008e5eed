"""Wikitext to plain text.

Fast passes take out what leaves no text behind (`wiki_elements`); mwparserfromhell takes apart what needs a parser:
templates that stand for text, and lines with external links. What was measured on the 321 pages (15.7 MB of wikitext)
of two heads of English dumps, of 2014 and 2016, on one core of a machine that others used, too, with Python 3.11:

    what                                      MB/s of wikitext    lines with leftovers of markup
    this module                                            8      0 of 27,140
    mwparserfromhell 0.7.2, strip_code()                   1.2    76 of 40,386
    wikitextparser 3.0.0, remove_markup()                  3.8    7 of 10,809 (every fourth page)

wikitextparser is under the GPL, besides, which this project is not. Both drop every template. Of 53,139 sentences that
WikiExtractor gives for the same articles in 2018, 31,023 stand word for word in the older wikitext: all come out.
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
# The parser tries every way to end a link that is not closed: such a bracket is one of the text.
_UNCLOSED_EXTERNAL_LINK = re.compile(rf"\[(?={_SCHEME}[^\[\]]*(?:\[|\Z))", re.IGNORECASE)
_UNPARSED_EXTERNAL_LINK = re.compile(rf"\[{_SCHEME}[^\s\[\]]*([^\[\]]*)\]", re.IGNORECASE)
# So it does with HTML tags, of which none are left: a `<` is one of the text.
_HIDDEN_LESS_THAN = "&#060;"
# Longest template or line with a link in the dumps: under 4,000. Its square bounds the time: 6 s for 1 MB at worst.
_MAX_PARSED_CHARACTERS = 5_000


def plain_text(wikitext: str) -> list[str]:
    """The prose of a page: headings, paragraphs and list items, each a line without markup; none blank.

    Takes any text, markup broken or not, in time that grows with its length.
    """
    text = without_html(without_extension_tags(wikitext))
    return paragraphs_of(without_brackets(text, _template_text), _external_links_text)


def _template_text(content: str) -> str:
    """The text that `{{content}}` stands for, if any."""
    name, _, arguments = content.partition("|")
    if find_template(name) is None:
        return ""
    code = _parse("{{" + content + "}}")
    return arguments if code is None else _text_of(code).replace(_HIDDEN_LESS_THAN, "<")


def _external_links_text(line: str) -> str:
    """The line with external links as their labels; `[http://example.org]` has none, bare addresses stay."""
    if not _EXTERNAL_LINK.search(line):
        return line
    code = _parse(line)
    if code is None:
        return _UNPARSED_EXTERNAL_LINK.sub(r"\1", line)
    return _text_of(code).replace(_HIDDEN_LESS_THAN, "<")


def _parse(source: str) -> Wikicode | None:
    """The parser's tree; None where it would take too long, or gives up."""
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
    if isinstance(node, Template):
        return _text_of_template(node)
    if isinstance(node, ExternalLink) and node.brackets:
        return _text_of(node.title)
    return str(node)


def _text_of_template(template: Template) -> str:
    template_text = find_template(str(template.name))
    if template_text is None:
        return ""
    arguments = Arguments([], {})
    for parameter in template.params:
        name, value = str(parameter.name).strip(), _text_of(parameter.value).strip()
        if parameter.showkey and not name.isdecimal():
            arguments.named[name.lower()] = value
        else:
            arguments.positional.append(value)
    return template_text(arguments)
