"""Rules for the text of templates, such as "{2:day} {1:month}< ({3})>". They stand in wikipedia_names.yaml.

`{1}` is the first argument without a name, `{lt}` the argument `lt`, `{lt|1}` the first of these that is not empty.
`{1:number}` passes it through one of `_FUNCTIONS`. `{lc?}` is empty and demands that `lc` is given; `{3=6}` demands its
value. `{@name}` is the template's own name, `{@all}` are all arguments without a name, `{@words}` the same with spaces,
`{@last}` the last of them; `{@language}` is the language in the name of a template such as lang-de or deS; `{@convert}`
is a quantity (see `_convert`). Text in `<...>` is left out if an argument in it is missing. After `||` follows the text
for a template whose arguments do not fit; without one, the template is dropped and counted.
"""

import html
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

# The arguments of a template by name in lower case, as stripped plain text. Those without a name are "1", "2" and so
# on; "@name" is the template's own name.
Arguments = Mapping[str, str]


def positional(arguments: Arguments) -> list[str]:
    """The arguments without a name, or with a number as a name, in the order of their numbers."""
    numbered = sorted((len(name), name) for name in arguments if name.isdecimal())
    return [arguments[name] for _, name in numbered]


class Locale(NamedTuple):
    """How a wiki writes numbers, dates and the names of languages.

    Attributes:
        thousands, decimal: separators. `min_grouped_digits`: shorter integers have no separator.
        months: their names within a date, January first.
        languages: names by code, as templates write them before a foreign text.
    """

    thousands: str
    decimal: str
    min_grouped_digits: int
    months: tuple[str, ...]
    languages: Mapping[str, str]

    def number(self, text: str) -> str:
        """Writes the numbers in a text as the wiki does, like {{formatnum:}}; numbers of over 1,000 digits stay."""

        def written(match: re.Match[str]) -> str:
            integer, separator, fraction = match.groups()
            if separator == "," and self.decimal != ",":
                return match.group()
            if len(integer) >= self.min_grouped_digits:
                integer = _GROUP_END.sub(self.thousands, integer)
            return integer + (self.decimal + fraction if fraction else "")

        return _NUMBER.sub(written, _MINUS.sub("−", text))

    def month(self, text: str) -> str:
        """The name of a month from its number or name; "" for other text."""
        if text.isdecimal() and len(text) <= 2 and 1 <= int(text) <= 12:
            return self.months[int(text) - 1]
        return text if text.lower() in map(str.lower, self.months) else ""


# Not a part of a longer or already formatted number.
_NUMBER = re.compile(r"(?<![\d.,])(\d{1,1000}+)(?:([.,])(\d{1,1000}+))?(?![\d.,]*\d)")
_MINUS = re.compile(r"^-(?=\d)")
_GROUP_END = re.compile(r"(?<=\d)(?=(?:\d{3})+$)")
_CODE_IN_NAME = re.compile(r"lang-([a-z]{2,3})(?:-short)?|([a-z]{2,3})s", re.IGNORECASE)
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*")

Parts = list["str | Part | Parts"]
Part = Callable[[Arguments, Locale], str | None]  # None: it does not fit
Rule = list[Parts]  # alternatives; empty for a template without text
UNFIT = "\udfff"  # stands in no decoded text
_TOKEN = re.compile(r"\{[^{}]+\}|[<>]|[^{}<>]+")


def text_of(rule: Rule, arguments: Arguments, locale: Locale) -> str:
    """The text of a template; `UNFIT` if its arguments do not fit its rule."""
    texts = (_joined(parts, arguments, locale) for parts in rule)
    return next((text for text in texts if text is not None), UNFIT)


def _joined(parts: Parts, arguments: Arguments, locale: Locale) -> str | None:
    pieces = []
    for part in parts:
        if callable(part):
            if (piece := part(arguments, locale)) is None:
                return None
            pieces.append(piece)
        else:
            pieces.append(part if isinstance(part, str) else _joined(part, arguments, locale) or "")
    return "".join(pieces)


def parse_rule(text: str) -> Rule:
    """Reads a rule. Raises: ValueError: brackets do not match. KeyError: a function is unknown."""
    rule = []
    for alternative in text.split("||") if text else ():
        tokens = _TOKEN.findall(alternative)
        rule.append(_parts(remaining := iter(tokens)))
        has_pairs = next(remaining, None) is None and alternative.count("<") == alternative.count(">")
        if "".join(tokens) != alternative or not has_pairs:
            raise ValueError(f"{text!r}: one of {{ }} < > without the other")
    return rule


def _parts(tokens: Iterator[str]) -> Parts:
    """The parts up to the next `>` that closes no part within."""
    parts: Parts = []
    for token in iter(lambda: next(tokens, ">"), ">"):
        parts.append(_parts(tokens) if token == "<" else _field(token[1:-1]) if token[0] == "{" else token)
    return parts


def _field(text: str) -> Part:
    if text.endswith("?"):
        return lambda arguments, locale: "" if arguments.get(text[:-1]) else None
    if "=" in text:
        name, _, wanted = text.partition("=")
        return lambda arguments, locale: "" if arguments.get(name, "").lstrip("0") == wanted else None
    source, colon, function_name = text.partition(":")
    names = source.split("|")
    function = _FUNCTIONS[function_name] if colon else None
    special = {name: _SPECIAL[name] for name in names if name[:1] == "@"}

    def value(arguments: Arguments, locale: Locale) -> str | None:
        values = (special[name](arguments, locale) if name in special else arguments.get(name) for name in names)
        given = next(filter(None, values), "")
        return (function(given, locale) if function and given else given) or None

    return value


_FUNCTIONS: dict[str, Callable[[str, Locale], str]] = {
    "number": lambda text, locale: locale.number(text),
    "long_number": lambda text, locale: locale._replace(min_grouped_digits=5).number(text),  # 1234 as it is
    "month": lambda text, locale: locale.month(text),
    "day": lambda text, locale: text.lstrip("0"),
    "language": lambda text, locale: locale.languages.get(text, ""),
    "upper": lambda text, locale: text.upper(),
    "raised": lambda text, locale: re.sub(r"^(?=[-−]?\d+$)", "^", text),  # 10{{sup|6}} is not 106
    "power": lambda text, locale: {"2": "²", "3": "³"}.get(text, f"^{text}"),
    # The uncertainties of {{val}}: 0.3, +0.3, (7)
    "unsigned": lambda text, locale: "".join(re.findall(r"^[-+−]?([\d.]+)$", text)),
    "uncertainty": lambda text, locale: re.sub("^(?=[^+(])", "±", "".join(re.findall(r"^\+?[\d.]+$|^\(\d+\)$", text))),
    "book_number": lambda text, locale: text if re.fullmatch("[1-4]|I{1,3}|IV", text) else "",  # 2 Kings
    # {{ill|fr|Titre}}, the older form of {{ill|Title|fr|Titre}}
    "no_code": lambda text, locale: "" if _LANGUAGE_CODE.fullmatch(text) else text,
}

_UNITS = {"c": "°C", "f": "°F", "k": "K", "sqmi": "sq mi", "sqft": "sq ft", "sqkm": "km2", "cuft": "cu ft"}
_UNITS |= {"cumi": "cu mi", "cuin": "cu in", "kph": "km/h", "impgal": "imp gal", "usgal": "US gal", "lbf": "lbf"}
_POWERS = {"e3": " thousand", "e6": " million", "e9": " billion", "e12": " trillion"}
_SMALLER_UNITS = ("in", "oz", "lb", "ft", "yd")
_RANGE_WORDS = {"-": "–", "–": "–", "to": " to ", "and": " and ", "or": " or ", "by": " by ", "x": " × ", "×": " × "}
_RANGE_WORDS |= {"+/-": " ± ", "±": " ± ", "to(-)": " to ", "to about": " to about ", "and(-)": " and ", "*": "×"}
_RANGE_WORDS |= {",": ", ", ", and": ", and ", ", or": ", or ", "xx": " × ", "by(x)": " by ", "+": " + ", "/": " / "}


def _language(arguments: Arguments, locale: Locale) -> str:
    match = _CODE_IN_NAME.fullmatch(arguments["@name"])
    return locale.languages.get((match.group(1) or match.group(2)).lower(), "") if match else ""


def _convert(arguments: Arguments, locale: Locale) -> str:
    """{{convert|5|to|8|km}}: "5 to 8 km"; {{convert|6|ft|2|in}}: "6 ft 2 in"; {{convert|2|e6km}}: "2 million km"."""
    number, *rest = [*positional(arguments), ""]
    text = locale.number(number)
    while len(rest) >= 2 and (word := _RANGE_WORDS.get(html.unescape(rest[0]))):
        text += word + locale.number(rest[1])
        rest = rest[2:]
    power, unit = re.fullmatch(r"(e(?:3|6|9|12)(?=\D))?((?s:.*))", rest[0] if rest else "").groups("")
    unit = _UNITS.get(unit.lower(), unit)
    unit = re.sub(r"(?<=[a-z])2$", "²", re.sub(r"(?<=[a-z])3$", "³", unit))
    text = f"{text}{_POWERS.get(power, '')} {unit}".strip()
    if len(rest) >= 3 and unit in ("ft", "lb", "st", "mi", "yd") and rest[1].isdecimal() and rest[2] in _SMALLER_UNITS:
        text += f" {rest[1]} {rest[2]}"
    elif len(rest) >= 3 and rest[1][:1].isdecimal() and rest[2] and not rest[2][0].isdecimal():
        return ""  # an unknown range or pair of units
    return text


_SPECIAL: dict[str, Callable[[Arguments, Locale], str]] = {
    "@name": lambda arguments, locale: arguments["@name"],
    "@all": lambda arguments, locale: "".join(positional(arguments)),
    "@words": lambda arguments, locale: " ".join(filter(None, positional(arguments))),
    "@last": lambda arguments, locale: "".join(positional(arguments)[-1:]),
    "@language": _language,
    "@convert": _convert,
}
