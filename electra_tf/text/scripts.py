"""Which scripts BERT's cleaning of text damages, and how much of a text is in them.

Stripping accents drops nonspacing marks, which in many scripts are letters: voicing marks of kana, vowels of Thai and
of Indic scripts. It also decomposes Hangul. Isolation makes each ideograph a word, also where several are written as
one word: beside kana, or in text that is segmented already. In Chinese text it is what Chinese BERTs do.
"""

import re
from typing import NamedTuple

from electra_tf.text.vocabulary import IDEOGRAPH_RANGES, TextSettings

# The fraction of a text's letters that may be in scripts that a setting damages.
MAX_DAMAGED_FRACTION = 0.01

_KANA = "kana"
# Scripts whose marks are letters, with their blocks.
_DAMAGED_BY_STRIPPING = {
    _KANA: "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Hangul": "\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3",
    "Thai": "\u0e01-\u0e3a\u0e40-\u0e4e",
    "Lao": "\u0e81-\u0ece",
    "Khmer": "\u1780-\u17d3",
    "Myanmar": "\u1000-\u109f",
    "Tibetan": "\u0f40-\u0fbc",
    "Thaana": "\u0780-\u07b1",
    "Devanagari": "\u0900-\u0963\u0971-\u097f",
    "Bengali": "\u0980-\u09e3",
    "Gurmukhi": "\u0a01-\u0a4d\u0a59-\u0a5e\u0a70-\u0a75",
    "Gujarati": "\u0a81-\u0ae3",
    "Odia": "\u0b01-\u0b63",
    "Tamil": "\u0b82-\u0bd7",
    "Telugu": "\u0c00-\u0c63",
    "Kannada": "\u0c80-\u0ce3",
    "Malayalam": "\u0d00-\u0d63",
    "Sinhala": "\u0d81-\u0df3",
}
_IDEOGRAPH = "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in IDEOGRAPH_RANGES) + "]"
# In segmented text, a word has about 2 ideographs; elsewhere, spaces between ideographs are rare.
_MAX_IDEOGRAPHS_PER_SPACE = 5
_BLOCK_OF_LETTERS = {name: re.compile(f"[{blocks}]") for name, blocks in _DAMAGED_BY_STRIPPING.items()}
# Letters, and the marks of the scripts above, which `\w` does not have.
_LETTER = re.compile(rf"[^\W\d_]|[{''.join(_DAMAGED_BY_STRIPPING.values())}]")
_SPACE_BETWEEN_IDEOGRAPHS = re.compile(f"(?<={_IDEOGRAPH}) (?={_IDEOGRAPH})")


class Damage(NamedTuple):
    """What a setting does to a text.

    Attributes:
        setting: a field of `TextSettings`.
        script: of the letters that it damages.
        fraction: of all letters of the text.
    """

    setting: str
    script: str
    fraction: float


def damages(text: str, settings: TextSettings) -> list[Damage]:
    """The damages to more than `MAX_DAMAGED_FRACTION` of a text's letters, one for each setting at most."""
    num_letters = len(_LETTER.findall(text))
    share = {name: len(block.findall(text)) / max(num_letters, 1) for name, block in _BLOCK_OF_LETTERS.items()}
    found = []
    if settings.lower_case and settings.strip_accents:
        script = max(share, key=share.__getitem__)
        found.append(Damage("strip_accents", script, share[script]))
    if settings.isolate_cjk:
        num_ideographs = len(re.findall(_IDEOGRAPH, text))
        is_segmented = len(_SPACE_BETWEEN_IDEOGRAPHS.findall(text)) * _MAX_IDEOGRAPHS_PER_SPACE > num_ideographs
        if share[_KANA] > MAX_DAMAGED_FRACTION or is_segmented:
            script = "ideographs of segmented text" if is_segmented else "ideographs beside kana"
            found.append(Damage("isolate_cjk", script, num_ideographs / max(num_letters, 1)))
    return [damage for damage in found if damage.fraction > MAX_DAMAGED_FRACTION]
