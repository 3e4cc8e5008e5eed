"""Wikitext to plain text."""

import re

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Tag, Template, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

from data_prep.readers.wiki_elements import without_brackets, without_extension_tags, without_html
from data_prep.readers.wiki_lines import paragraphs_of
from data_prep.readers.wiki_links import link_text
from data_prep.readers.wiki_templates import Arguments, find_template

_EXTERNAL_LINK = re.compile(r"\[(?=(?:https?:|ftps?:|mailto:|news:|irc:|gopher:)?//|mailto:)", re.IGNORECASE)
_UNPARSED_EXTERNAL_LINK = re.compile(r"\[[a-z]*:?//[^\s\[\]]*([^\[\]]*)\]?", re.IGNORECASE)
# The parser takes time that is quadratic in the unclosed brackets of external links: 0.1 s for 1,000 in a line.
_MAX_PARSED_CHARACTERS = 20_000


def plain_text(wikitext: str) -> list[str]:
    """The prose of a page: headings, paragraphs and list items, each a line without markup; none blank."""
    text = without_html(without_extension_tags(wikitext))
    text = without_brackets(text, lambda name: find_template(name) is not None, _render_source)
    return paragraphs_of(text, _render_line)


def _render_line(line: str) -> str:
    if not _EXTERNAL_LINK.search(line):
        return line
    if len(line) > _MAX_PARSED_CHARACTERS:
        return _UNPARSED_EXTERNAL_LINK.sub(r"\1", line)
    return _render_source(line)


def _render_source(source: str) -> str:
    """Text of a balanced piece of wikitext that needs the parser."""
    return _render(mwparserfromhell.parse(source, skip_style_tags=True))


def _render(code: Wikicode | None) -> str:
    return "".join(map(_render_node, code.nodes)) if code is not None else ""


def _render_node(node: object) -> str:
    if isinstance(node, Text):
        return node.value
    if isinstance(node, Wikilink):
        label = "|" + _render(node.text) if node.text is not None else ""
        return link_text(_render(node.title) + label)
    if isinstance(node, ExternalLink):
        return _render(node.title) if node.brackets else str(node.url)
    if isinstance(node, Template):
        return _render_template(node)
    if isinstance(node, Tag):
        return _render(node.contents)
    if isinstance(node, HTMLEntity):
        return str(node)
    if isinstance(node, Heading):
        return _render(node.title)
    return ""


def _render_template(template: Template) -> str:
    name = _render(template.name)
    template_text = find_template(name)
    if template_text is None:
        return ""
    arguments = Arguments([], {})
    for parameter in template.params:
        key, value = _render(parameter.name).strip(), _render(parameter.value).strip()
        if parameter.showkey and not key.isdecimal():
            arguments.named[key.lower()] = value
        else:
            arguments.positional.append(value)
    return template_text(arguments)
