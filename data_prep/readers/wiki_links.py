"""Internal links of wikitext as visible text, and the names of namespaces and templates in many languages."""

import re
from pathlib import Path

import yaml

# The tables of names; see the file.
NAMES = yaml.safe_load(Path(__file__).with_name("wikipedia_names.yaml").read_text(encoding="utf-8"))


def names_of(table: str) -> frozenset[str]:
    """The names in a string of `wikipedia_names.yaml`."""
    return frozenset(name.strip() for name in table.split("|"))


FILE_NAMES, CATEGORY_NAMES = names_of(NAMES["file"]), names_of(NAMES["category"])
_INVISIBLE_NAMESPACES = FILE_NAMES | CATEGORY_NAMES
_MEDIA_TARGET = re.compile(
    r"[^|\]:]+:[^|]+\.(?:jpe?g|png|svg|gif|tiff?|og[agv]|oga|webm|webp|pdf|djvu|mid|flac|wav)\s*", re.IGNORECASE
)
# [[de:Anarchismus]] names the article in another language. Longer prefixes are sister projects, whose links are read.
_LANGUAGE_PREFIX = re.compile(r"[a-z]{2,3}(?:-[a-z]{2,8}){0,2}|simple")
_PROJECT_PREFIXES = frozenset({"mw", "wmf", "rfc", "wp", "doi"})
_MAX_TARGET_CHARACTERS = 255  # of a title, in MediaWiki; what is longer is no link
# The pipe trick: [[Project:Boston, Massachusetts|]] reads "Boston", [[Pipe (computing)|]] "Pipe".
_PIPE_TRICK = re.compile(r"(?:[^:]*:)?(.*?)(?:\s*\([^()]*\)|,.*)?")


def link_text(content: str) -> str:
    """The visible text of `[[content]]`: its label or target; "" for files, categories and other languages.

    A leading colon (`[[:File:Example.png]]`) makes a link to a file or category visible.
    """
    target, has_label, label = content.partition("|")
    if "\n" in target or len(target) > _MAX_TARGET_CHARACTERS:
        return content
    target = target.strip()
    prefix, colon, rest = target.partition(":")
    if colon and prefix:
        prefix = prefix.strip().replace("_", " ")
        if prefix.lower() in _INVISIBLE_NAMESPACES or _MEDIA_TARGET.fullmatch(target):
            return ""
        is_language = _LANGUAGE_PREFIX.fullmatch(prefix) and prefix not in _PROJECT_PREFIXES
        if is_language and rest and not rest[0].isspace():
            return ""
    target = target.removeprefix(":")
    if has_label:
        return label if label.strip() else _PIPE_TRICK.fullmatch(target).group(1)
    return target
