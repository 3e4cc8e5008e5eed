"""How much of a text is in scripts that BERT's cleaning damages.

Stripping accents drops nonspacing marks, which in many scripts are letters: voicing marks of kana, vowels of Thai and
of Indic scripts. It also decomposes Hangul. Isolation makes each ideograph a word, also where several are written as
one word, beside kana. In Chinese text it is what Chinese BERTs do.
"""

import re
import unicodedata

from electra_tf.text.vocabulary import IDEOGRAPHS, TextSettings

# The fraction of a text's letters that may be in scripts that a setting damages.
MAX_DAMAGED_FRACTION = 0.01

# The fraction of a text's distinct words that a setting may merge.
MAX_MERGED_FRACTION = 0.05

_WORD = re.compile(r"[^\W_]+")

_KANA = "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"
# Thaana, Devanagari to Myanmar (with Thai and Tibetan), Khmer, kana and Hangul.
_DAMAGED_BY_STRIPPING = f"\u0780-\u07b1\u0900-\u109f\u1780-\u17d3{_KANA}\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
# Letters, and the marks of the scripts above, which `\w` does not have.
_LETTERS = rf"[^\W\d_]|[{_DAMAGED_BY_STRIPPING}]"


def damages(text: str, settings: TextSettings) -> dict[str, float]:
    """By setting, the fraction of a text's letters that it damages, if it is more than `MAX_DAMAGED_FRACTION`."""
    num_letters = max(len(re.findall(_LETTERS, text)), 1)
    stripped, kana, ideographs = (
        len(re.findall(f"[{characters}]", text)) / num_letters
        for characters in (_DAMAGED_BY_STRIPPING, _KANA, IDEOGRAPHS)
    )
    found = {
        "strip_accents": stripped * settings.strips_accents,
        "isolate_cjk": ideographs * (settings.isolate_cjk and kana > MAX_DAMAGED_FRACTION),
    }
    return {name: fraction for name, fraction in found.items() if fraction > MAX_DAMAGED_FRACTION}


def merges(text: str, settings: TextSettings) -> tuple[int, int, dict[str, str]]:
    """The number of distinct words before and after lower case, and by setting what it merges, if that is much.

    The capital that begins a word counts as small: sentences and names have it. Marred are words that become another
    one of the text, words with capitals within (up to 3 % in English novels, 18 % in SMILES), and those with a dotless
    i, whose capital becomes "i".
    """
    all_words = set(_WORD.findall(unicodedata.normalize("NFC", text)))
    words = {word[:1].lower() + word[1:] for word in all_words}
    lowered = {word.lower() for word in words}
    stripped = {word: without_marks(word) if settings.strips_accents else word for word in lowered}
    marred = {
        "lower_case": [
            word for word in words
            if "ı" in word or (word not in lowered and (word.lower() in words or not word[1:].isupper()))
        ],
        "strip_accents": [word for word in lowered if stripped[word] != word and stripped[word] in lowered],
    }  # fmt: skip
    found = {
        name: f"{100 * len(of_setting) / len(words):.0f} % of the distinct words, such as {min(of_setting)},"
        for name, of_setting in marred.items()
        if len(of_setting) > MAX_MERGED_FRACTION * len(words)
    }
    return len(all_words), len(set(stripped.values())), found


def without_marks(text: str) -> str:
    """The text without accents, as BERT strips them."""
    return "".join(each for each in unicodedata.normalize("NFD", text) if unicodedata.category(each) != "Mn")
