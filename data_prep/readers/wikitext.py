"""Wikitext to plain text."""

import re

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Node, Template
from mwparserfromhell.wikicode import Wikicode

from data_prep.readers.wiki_elements import without_brackets, without_extension_tags, without_html
from data_prep.readers.wiki_lines import paragraphs_of
from data_prep.readers.wiki_templates import Arguments, find_template

_EXTERNAL_LINK = re.compile(r"\[(?=(?:https?:|ftps?:|mailto:|news:|irc:|gopher:)?//|mailto:)", re.IGNORECASE)
_UNPARSED_EXTERNAL_LINK = re.compile(r"\[[a-z]*:?//[^\s\[\]]*([^\[\]]*)\]?", re.IGNORECASE)
# The parser's time is quadratic in the brackets of external links that are not closed (of 1 MB with a bracket in every 12
# characters: 6 s in pieces of this size), and exponential in HTML tags that are not, of which it sees none.
_MAX_PARSED_CHARACTERS = 4_000


def plain_text(wikitext: str) -> list[str]:
    """The prose of a page: headings, paragraphs and list items, each a line without markup; none blank."""
    text = without_html(without_extension_tags(wikitext))
    return paragraphs_of(without_brackets(text, _template_text), _external_links_text)


def _template_text(content: str) -> str:
    """The text that `{{content}}` stands for, if any."""
    name, _, arguments = content.partition("|")
    if find_template(name) is None:
        return ""
    if len(content) > _MAX_PARSED_CHARACTERS:
        return arguments
    return _text_of(_parse("{{" + content + "}}"))


def _external_links_text(line: str) -> str:
    """The line with external links as their labels; `[http://example.org]` has none, bare addresses stay."""
    if not _EXTERNAL_LINK.search(line):
        return line
    if len(line) > _MAX_PARSED_CHARACTERS:
        return _UNPARSED_EXTERNAL_LINK.sub(r"\1", line)
    return _text_of(_parse(line))


def _parse(source: str) -> Wikicode:
    # HTML is gone already: a `<` that is left is one of the text.
    return mwparserfromhell.parse(source.replace("<", "&lt;"), skip_style_tags=True)


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
