"""The names of a wiki: from `wikipedia_names.yaml`, from a user's file, and from the header of its export.

A worker that reads a part of an export does not see its beginning. So the planning process cuts off the header, and it
travels with each part; see `header_of`.
"""

import functools
import re
import xml.etree.ElementTree as ElementTree
from collections import ChainMap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic
import yaml

from data_prep.wikitext.templates import Locale, Rule, parse_rule
from electra_tf.config.errors import UserError
from electra_tf.config.validation import validate

_BUILT_IN = Path(__file__).with_name("wikipedia_names.yaml")
_EVERY_WIKI = "all"  # the section whose names hold on every wiki
_NAME = re.compile(r"\s*(/[^/]+/|[^|]+)")  # a regular expression may contain |

_MAX_HEADER_BYTES = 2**18  # a wiki has at most some hundred namespaces
_HEADER = re.compile(rb"<mediawiki\b[^>]*>(?:\s*<siteinfo>.*?</siteinfo>)?", re.DOTALL)
_INVISIBLE_KEYS = ("-2", "6", "14")  # media, files and categories
_MARKS_REDIRECTS_SINCE = (0, 4)  # the version of the schema


def normalized(name: str) -> str:
    """The form of a name in which names are compared."""
    return name.replace("_", " ").strip().lower()


def _names(table: str) -> list[str]:
    return [name for part in _NAME.findall(table) if (name := normalized(part))]


def _rules(templates: dict[str, str]) -> dict[str | re.Pattern[str], Rule]:
    """The rules of templates by name or by a pattern of names. Raises: ValueError: one is wrong."""
    try:
        return {
            re.compile(name[1:-1]) if name[0] == name[-1] == "/" else name: parse_rule(rule)
            for rule, names in templates.items()
            for name in _names(names)
        }
    except (KeyError, re.error) as error:
        raise ValueError(f"unknown function or wrong pattern: {error}") from None


class _Section(pydantic.BaseModel):
    """The section of a language in a file of names, which describes its entries."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)
    file: str = ""
    category: str = ""
    other_namespace: str = ""
    disambiguation: str = ""
    redirect: str = ""
    reference_sections: str = ""
    thousands: str = ","
    decimal: str = "."
    min_grouped_digits: int = 4
    months: str = pydantic.Field("", pattern=r"^([^|]+\|){11}[^|]+$")
    languages: str = pydantic.Field("", pattern=r"^([^|=]+=[^|=]+(\||$))*$")
    templates: Annotated[dict[str, str], pydantic.AfterValidator(_rules)] = {}


@dataclass(frozen=True, eq=False)
class Wiki:
    """The names and rules of one wiki. All names are lower case, with spaces for underscores.

    Attributes:
        patterns: regular expressions of names of templates, with their rules.
        invisible: namespaces of files and categories. `other_namespaces`: all whose pages are no articles.
        marks_redirects: whether its export marks redirects, so that their text need not be looked at.
    """

    locale: Locale
    templates: dict[str, Rule]
    patterns: list[tuple[re.Pattern[str], Rule]]
    invisible: frozenset[str]
    other_namespaces: frozenset[str]
    disambiguation: frozenset[str]
    redirect: frozenset[str]
    reference_sections: frozenset[str]
    marks_redirects: bool

    @functools.lru_cache(maxsize=2**13)  # noqa: B019  a process reads few wikis
    def rule_of(self, name: str) -> Rule | None:
        """The rule of the template `name`; None if it is unknown."""
        name = normalized(name)
        if name in self.templates:
            return self.templates[name]
        return next((rule for pattern, rule in self.patterns if pattern.fullmatch(name)), None)


@functools.lru_cache(maxsize=8)
def wiki_of(header: bytes, language: str, user_names: str) -> Wiki:
    """The names of the wiki of an export.

    Args:
        header: see `header_of`; b"" if there is none.
        language: the language of a wiki whose header does not tell it.
        user_names: the content of a file of names, or "".
    """
    # Without the namespace of the schema.
    source = re.sub(rb"""\sxmlns=("[^"]*"|'[^']*')""", b"", header, count=1) or b"<mediawiki>"
    try:
        root = ElementTree.fromstring(source + b"</mediawiki>")
    except ElementTree.ParseError:
        root = ElementTree.Element("mediawiki")
    language = root.get("{http://www.w3.org/XML/1998/namespace}lang", language).lower()
    keys = dict.fromkeys((_EVERY_WIKI, language.partition("-")[0], language))
    files = (parsed_names(_BUILT_IN.read_text(encoding="utf-8")), parsed_names(user_names))
    sections = [names[key] for names in files for key in keys if key in names]
    last = ChainMap(*({key: getattr(each, key) for key in each.model_fields_set} for each in reversed(sections)))
    templates = {name: rule for section in sections for name, rule in section.templates.items()}
    in_header = [(each.get("key"), normalized(each.text or "")) for each in root.iterfind("siteinfo/namespaces/*")]

    def names_of(*kinds: str) -> frozenset[str]:
        return frozenset().union(*(_names(getattr(section, kind)) for section in sections for kind in kinds))

    invisible = names_of("file", "category").union(name for key, name in in_header if key in _INVISIBLE_KEYS)
    return Wiki(
        Locale(
            *(last[name] for name in ("thousands", "decimal", "min_grouped_digits")),
            months=tuple(map(str.strip, last["months"].split("|"))),
            languages=dict(map(str.strip, pair.split("=")) for pair in last.get("languages", "").split("|") if pair),
        ),
        {name: rule for name, rule in templates.items() if isinstance(name, str)},
        [(name, rule) for name, rule in reversed(templates.items()) if isinstance(name, re.Pattern)],
        invisible,
        invisible.union(names_of("other_namespace"), (name for _, name in in_header if name)),
        names_of("disambiguation"),
        names_of("redirect"),
        names_of("reference_sections"),
        tuple(map(int, re.findall(r"\d{1,9}", root.get("version", "")))) >= _MARKS_REDIRECTS_SINCE,
    )


@functools.lru_cache(maxsize=4)
def parsed_names(content: str, path: str = "") -> dict[str, _Section]:
    """The sections of a file of names, by language. Raises: UserError: it has a mistake; names `path`."""
    try:
        # The loader in C, which PyYAML usually has, takes a tenth of the time.
        sections = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}  # noqa: S506
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(sections, dict) or not all(isinstance(key, str) for key in sections):
        raise UserError(f'{path}: expected a section for each language, such as de:, or all: (in quotes: "no":)')
    return {name: validate(section or {}, _Section, f"{path}, section {name}") for name, section in sections.items()}


def header_of(begin: bytes) -> bytes:
    """The header of an export, `<mediawiki>` and `<siteinfo>` if it has one, from its first bytes; else b""."""
    match = _HEADER.search(begin, 0, _MAX_HEADER_BYTES)
    return match.group() if match else b""
