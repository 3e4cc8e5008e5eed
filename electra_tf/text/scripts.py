"""How much of a text is in scripts that BERT's cleaning damages.

Stripping accents drops nonspacing marks, which in many scripts are letters: voicing marks of kana, vowels of Thai and
of Indic scripts. It also decomposes Hangul. Isolation makes each ideograph a word, also where several are written as
one word, beside kana. In Chinese text it is what Chinese BERTs do.
"""

import re

from electra_tf.text.vocabulary import IDEOGRAPH_RANGES, TextSettings

# The fraction of a text's letters that may be in scripts that a setting damages.
MAX_DAMAGED_FRACTION = 0.01

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
