"""How much of a text is in scripts that BERT's cleaning damages.

Stripping accents drops nonspacing marks, which in many scripts are letters: voicing marks of kana, vowels of Thai and
of Indic scripts. It also decomposes Hangul. Isolation makes each ideograph a word, also where several are written as
one word, beside kana. In Chinese text it is what Chinese BERTs do.
"""

import re
import unicodedata

from electra_tf.text.vocabulary import IDEOGRAPH_RANGES, TextSettings

# The fraction of a text's letters that may be in scripts that a setting damages.
MAX_DAMAGED_FRACTION = 0.01

# The fraction of a text's distinct words that a setting may merge or mar.
MAX_MERGED_FRACTION = 0.05

_BORDERS = re.compile(
    "[\\s!-/:-@[-`{-~\xa1-\xbf\u060c\u061b\u061f\u06d4\u0964\u0965\u2010-\u205e\u3000-\u3030\uff01-\uff0f]+"
)
_OWN_LETTERS = frozenset("йёїўѓќآأؤإئ")  # letters of the alphabet, of which stripping makes others

_KANA = "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"
# Thaana, Devanagari to Myanmar (with Thai and Tibetan), Khmer, kana and Hangul.
_DAMAGED_BY_STRIPPING = f"\u0780-\u07b1\u0900-\u109f\u1780-\u17d3{_KANA}\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
_IDEOGRAPHS = "".join(f"{chr(first)}-{chr(last)}" for first, last in IDEOGRAPH_RANGES)
# Letters, and the marks of the scripts above, which `\w` does not have.
_LETTERS = rf"[^\W\d_]|[{_DAMAGED_BY_STRIPPING}]"


def damages(text: str, settings: TextSettings) -> dict[str, float]:
    """By setting, the fraction of a text's letters that it damages, if it is more than `MAX_DAMAGED_FRACTION`."""
    num_letters = max(len(re.findall(_LETTERS, text)), 1)
    stripped, kana, ideographs = (
        len(re.findall(f"[{characters}]", text)) / num_letters
        for characters in (_DAMAGED_BY_STRIPPING, _KANA, _IDEOGRAPHS)
    )
    found = {
        "strip_accents": stripped * (settings.lower_case and settings.strip_accents),
        "isolate_cjk": ideographs * (settings.isolate_cjk and kana > MAX_DAMAGED_FRACTION),
    }
    return {name: fraction for name, fraction in found.items() if fraction > MAX_DAMAGED_FRACTION}


def merges(text: str, settings: TextSettings) -> tuple[int, int, dict[str, str]]:
    """What a normalization merges.

    How many words merge in lower case tells nothing: in any language, capitals of sentences and headings make it 4 to
    11 %. So counted are words with other capitals (up to 0.8 % in English, German, French, Spanish and Czech, 27 % in
    SMILES), words of which another is left without accents, and those with `_OWN_LETTERS`.

    Returns: the number of distinct words before and after, and by setting what it merges, if that is much.
    """
    words = set(filter(None, _BORDERS.split(text)))
    lowered = {word.lower() for word in words} if settings.lower_case else words
    without_marks = {word: _without_marks(word) for word in lowered}
    lost = {
        # Not a name, the first of a sentence, or a heading; but both CO and Co, without co.
        "lower_case": [
            word for word in words
            if "ı" in word or (word not in (word.lower(), word.capitalize())
            and (word != word.upper() or (word.capitalize() in words and word.lower() not in words)))
        ],
        "strip_accents": [
            word for word in lowered
            if _OWN_LETTERS.intersection(word) or (without_marks[word] != word and without_marks[word] in lowered)
        ],
    }  # fmt: skip
    found = {
        name: f"{100 * len(of_setting) / len(words):.0f} % of the distinct words, such as {min(of_setting)},"
        for name, of_setting in lost.items()
        if settings.lower_case and getattr(settings, name) and len(of_setting) > MAX_MERGED_FRACTION * len(words)
    }
    strips = settings.lower_case and settings.strip_accents
    return len(words), len(set(without_marks.values()) if strips else lowered), found


def _without_marks(word: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFD", word) if unicodedata.category(each) != "Mn")
