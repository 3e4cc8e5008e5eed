"""Replaces templates that are words of a sentence with their text. Their names are in wikipedia_names.yaml.

In 321 pages of two English dumps (2014 and 2016), 4,849 templates are within a line of prose. 2,396 of them get
a text here: 818 {{convert}}, about 800 {{lang}} and its variants, and others. About 400 are pronunciations, which are
dropped. Nearly all of the rest are citations and editors' remarks, without which the sentence is complete. The names
are those of the English Wikipedia; other languages use many of them.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from data_prep.readers.wiki_elements import NAMES, names_of


@dataclass(frozen=True)
class Arguments:
    """The arguments of a template as stripped plain text.

    Attributes:
        template: the name of the template.
        positional: the arguments without a name, or with a number as a name.
        named: the other arguments.
    """

    template: str
    positional: list[str]
    named: dict[str, str]

    def get(self, index: int) -> str:
        """The positional argument `index`, counted from 0 (-1: the last one); "" if there is none."""
        return self.positional[index] if index < len(self.positional) and self.positional else ""


TemplateText = Callable[[Arguments], str]


def find_template(name: str) -> TemplateText | None:
    """The function that gives the text of a template; None for a template without text.

    Args:
        name: the text before the first `|`; for a parser function, with its first argument ("formatnum: 5000").
    """
    function, colon, argument = name.partition(":")
    if colon and (change := _TEXT_FUNCTIONS.get(function.strip().lower())):
        return lambda arguments: change(argument.strip())
    name = name.replace("_", " ").strip().lower()
    if name in _TEMPLATES:
        return _TEMPLATES[name]
    if name.startswith(("lang-", "script/")):
        return _FUNCTIONS["first"]
    return None


_TEXT_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "formatnum": str,
    "lc": str.lower,
    "uc": str.upper,
    "lcfirst": lambda text: text[:1].lower() + text[1:],
    "ucfirst": lambda text: text[:1].upper() + text[1:],
}


def _quoted(arguments: Arguments) -> str:
    """{{quote|text|author}}: a paragraph of its own."""
    text = arguments.named.get("text") or arguments.named.get("quote") or arguments.get(0)
    return f"\n\n{text}\n\n"


def _as_of(arguments: Arguments) -> str:
    """{{as of|2015|3|lc=y}}: "as of March 2015"."""
    words = "as of" if arguments.named.get("lc") else "As of"
    return arguments.named.get("alt") or " ".join([words, *_day_month_year(arguments.positional)])


def _date(arguments: Arguments) -> str:
    """{{birth date|1879|3|14}}: "14 March 1879"."""
    return " ".join(_day_month_year([number for number in arguments.positional if number.isdecimal()]))


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def _day_month_year(numbers: list[str]) -> list[str]:
    year, month, day = [*numbers[:3], "", "", ""][:3]
    if month.isdecimal() and len(month) <= 2 and 1 <= int(month) <= 12:
        month = _MONTHS[int(month) - 1]
    return [part for part in (day.lstrip("0"), month, year) if part]


_UNITS = {"c": "°C", "f": "°F", "k": "K", "sqmi": "sq mi", "sqft": "sq ft", "sqkm": "km2", "cuft": "cu ft"}
_UNITS |= {"cumi": "cu mi", "cuin": "cu in", "kph": "km/h", "impgal": "imp gal", "usgal": "US gal", "lbf": "lbf"}
_SMALLER_UNITS = ("in", "oz", "lb", "ft", "yd")
_RANGE_WORDS = {"-": "–", "–": "–", "to": " to ", "and": " and ", "or": " or ", "by": " by ", "x": " × ", "×": " × "}
_RANGE_WORDS |= {"+/-": " ± ", "±": " ± ", "to(-)": " to ", "to about": " to about ", "and(-)": " and "}
_INTEGER = re.compile(r"\d{5,1000}")  # Python converts at most 4,300 digits


def _convert(arguments: Arguments) -> str:
    """{{convert|5|km|mi}}: "5 km"; {{convert|5|to|8|km}}: "5 to 8 km"; {{convert|6|ft|2|in}}: "6 ft 2 in"."""
    number, *rest = [*arguments.positional, ""]
    text = _with_commas(number)
    while len(rest) >= 2 and rest[0] in _RANGE_WORDS:
        text += _RANGE_WORDS[rest[0]] + _with_commas(rest[1])
        rest = rest[2:]
    unit = _UNITS.get(rest[0].lower(), rest[0]) if rest else ""
    unit = re.sub(r"(?<=[a-z])2$", "²", re.sub(r"(?<=[a-z])3$", "³", unit))
    text = f"{text} {unit}".strip()
    if len(rest) >= 3 and unit in ("ft", "lb", "st", "mi", "yd") and rest[1].isdecimal() and rest[2] in _SMALLER_UNITS:
        text += f" {rest[1]} {rest[2]}"
    return text


def _with_commas(number: str) -> str:
    """Groups the digits of an integer with 5 to 1,000 digits; other text stays as it is."""
    return f"{int(number):,}" if _INTEGER.fullmatch(number) else number


def _value(arguments: Arguments) -> str:
    """{{val|6.241|e=18|u=C}}: "6.241×10^18 C"."""
    uncertainty = f"±{arguments.get(1)}" if arguments.get(1) else ""
    exponent = f"×10^{arguments.named['e']}" if arguments.named.get("e") else ""
    unit = arguments.named.get("u") or arguments.named.get("ul") or ""
    return f"{_with_commas(arguments.get(0))}{uncertainty}{exponent} {unit}".strip()


def _fraction(arguments: Arguments) -> str:
    """{{frac|2}}: "1/2"; {{frac|3|4}}: "3/4"; {{frac|1|3|4}}: "1 3/4"."""
    numbers = [number for number in arguments.positional if number]
    if len(numbers) == 3:
        return f"{numbers[0]} {numbers[1]}/{numbers[2]}"
    return "/".join(numbers if len(numbers) == 2 else ["1", *numbers])


def _height(arguments: Arguments) -> str:
    """{{height|ft=6|in=2}}: "6 ft 2 in"."""
    units = ("m", "cm", "ft", "in")
    return " ".join(f"{arguments.named[unit]} {unit}" for unit in units if arguments.named.get(unit))


def _nihongo(arguments: Arguments) -> str:
    """{{nihongo|Aikido|合気道|Aikidō}}: "Aikido (合気道, Aikidō)"."""
    english, *others = [argument for argument in arguments.positional[:3] if argument] or [""]
    return f"{english} ({', '.join(others)})" if others else english


def _interlanguage_link(arguments: Arguments) -> str:
    """{{ill|Title|fr|Titre}} and the older {{ill|fr|Title|Titre}}: "Title"."""
    label = arguments.named.get("lt") or arguments.get(0)
    return arguments.get(1) if re.fullmatch(r"[a-z]{2,3}", label) and arguments.get(1) else label


def _old_style_date(arguments: Arguments) -> str:
    """{{OldStyleDate|February 2|1905|January 20}}: "February 2 [O.S. January 20] 1905"."""
    old = f"[O.S. {arguments.get(2)}]" if arguments.get(2) else ""
    return " ".join(part for part in (arguments.get(0), old, arguments.get(1)) if part)


def _authors_and_year(arguments: Arguments) -> str:
    """{{harvtxt|Boolos|Jeffrey|1974}}: "Boolos and Jeffrey (1974)"."""
    *authors, year = arguments.positional or [""]
    if len(authors) > 1:
        authors = [", ".join(authors[:-1]) + " and " + authors[-1]]
    return f"{authors[0]} ({year})" if authors else year


_FUNCTIONS: dict[str, TemplateText] = {
    "first": lambda arguments: arguments.get(0),
    "second": lambda arguments: arguments.get(1),
    "last": lambda arguments: arguments.get(-1),
    "format_number": lambda arguments: _with_commas(arguments.get(0)),
    "joined": lambda arguments: "".join(arguments.positional),
    "joined_by_spaces": lambda arguments: " ".join(filter(None, arguments.positional)),
    "angle_brackets": lambda arguments: f"⟨{arguments.get(0)}⟩",
    # {{USS|Hornet|CV-12|6}}: "USS Hornet"; {{BCE|44}}: "44 BCE".
    "ship": lambda arguments: f"{arguments.template.upper()} {arguments.get(0)}".strip(),
    "era": lambda arguments: f"{arguments.get(-1)} {arguments.template.upper()}".strip(),
    "quoted": _quoted,
    "convert": _convert,
    "fraction": _fraction,
    "as_of": _as_of,
    "date": _date,
    "interlanguage_link": _interlanguage_link,
    "nihongo": _nihongo,
    "value": _value,
    "height": _height,
    "authors_and_year": _authors_and_year,
    "old_style_date": _old_style_date,
}


def _with_prefix(prefix: str, arguments: Arguments) -> str:
    return arguments.get(0) and prefix + arguments.get(0)


def _templates() -> dict[str, TemplateText]:
    templates = {}
    for kind, names in NAMES["templates"].items():
        templates |= dict.fromkeys(names_of(names), _FUNCTIONS[kind])
    for prefix, names in NAMES["prefixes"].items():
        templates |= dict.fromkeys(names_of(names), functools.partial(_with_prefix, prefix))
    for text, names in NAMES["constants"].items():
        templates |= dict.fromkeys(names_of(names), functools.partial(lambda text, arguments: text, text))
    return templates


_TEMPLATES = _templates()
