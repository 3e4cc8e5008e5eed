"""Wikitext to plain text.

Fast passes take out what leaves no text behind (`wiki_elements`); mwparserfromhell takes apart what needs a parser: the
templates that stand for text, and lines with external links. What was measured, on the 319 articles (15.7 MB of
wikitext) of two heads of English dumps, of 2014 and 2016, on one core, with Python 3.11:

    what                                      MB/s of wikitext    lines with leftovers of markup
    this module                                            8.4    0 of 27,140
    mwparserfromhell 0.7.2, strip_code()                   1.2    76 of 40,386
    wikitextparser 3.0.0, remove_markup()                  3.8    7 of 10,809 (every fourth article)

wikitextparser is under the GPL, too, which this project is not. Both drop every template. Of 52,886 sentences that
WikiExtractor gives for the same articles in 2018, 30,861 stand word for word in the older wikitext: all come out.
"""

import re

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Node, Template
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

from data_prep.readers.wiki_elements import without_brackets, without_extension_tags, without_html
from data_prep.readers.wiki_lines import paragraphs_of
from data_prep.readers.wiki_templates import Arguments, find_template

_EXTERNAL_LINK = re.compile(r"\[(?=(?:https?:|ftps?:|mailto:|news:|irc:|gopher:)?//|mailto:)", re.IGNORECASE)
_UNPARSED_EXTERNAL_LINK = re.compile(r"\[[a-z]*:?//[^\s\[\]]*([^\[\]]*)\]?", re.IGNORECASE)
# The parser's time is quadratic in the brackets of external links that are not closed (1 MB with a bracket in every
# 12 characters: 6 s in pieces of this size), and exponential in HTML tags that are not, of which it sees none.
_MAX_PARSED_CHARACTERS = 4_000
_HIDDEN_LESS_THAN = "&#060;"


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
    try:
        # HTML is gone already: a `<` that is left is one of the text.
        return mwparserfromhell.parse(source.replace("<", _HIDDEN_LESS_THAN), skip_style_tags=True)
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
