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
_MARKED_LETTERS = "йёїўѓќ\u0622-\u0626"  # of Cyrillic and Arabic: letters of the alphabet, not accents

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

    Of the distinct words of English, German, French, Spanish and Czech, up to 0.8 % have unusual capitals, and 2.6 %
    merge without accents; of SMILES 27 % have such capitals, of Vietnamese 54 % merge. How many words merge in lower
    case tells nothing: in any language, capitals of sentences and headings make it 4 to 11 %.

    Returns: the number of distinct words before and after, and by setting what it merges, if that is much.
    """
    words = set(filter(None, _BORDERS.split(text)))
    lowered = {word.lower() for word in words} if settings.lower_case else words
    strips = settings.lower_case and settings.strip_accents
    stripped = {_without_marks(word) for word in lowered} if strips else lowered
    # Not a name, the first of a sentence, or a heading; but both CO and Co, without co.
    capitals = [
        word for word in words
        if word not in (word.lower(), word.capitalize())
        and (word != word.upper() or (word.capitalize() in words and word.lower() not in words))
    ]  # fmt: skip
    accented = sorted(lowered - stripped)
    num_letters = max(sum(map(str.isalpha, text)), 1)
    found = {}
    if settings.lower_case and len(capitals) > MAX_MERGED_FRACTION * len(words):
        found["lower_case"] = f"{100 * len(capitals) / len(words):.0f} % of the distinct words, such as {min(capitals)}"
    elif settings.lower_case and text.count("ı") > MAX_DAMAGED_FRACTION * num_letters:
        found["lower_case"] = "words with I, whose small letter here is ı"
    if len(lowered) - len(stripped) > MAX_MERGED_FRACTION * len(lowered):
        merged = 1 - len(stripped) / len(lowered)
        found["strip_accents"] = f"{100 * merged:.0f} % of the distinct words with others, such as {accented[0]}"
    elif strips and len(re.findall(f"[{_MARKED_LETTERS}]", text.lower())) > MAX_DAMAGED_FRACTION * num_letters:
        found["strip_accents"] = (
            f"letters with others, as in {next(filter(re.compile(f'[{_MARKED_LETTERS}]').search, accented))}"
        )
    return len(words), len(stripped), found


def _without_marks(word: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFD", word) if unicodedata.category(each) != "Mn")
