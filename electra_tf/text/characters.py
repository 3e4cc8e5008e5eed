"""The properties of characters that BERT's basic tokenization needs, as tables of code points.

Of unicode_11.txt for BERT's vocabularies, because the authors' code runs with Unicode 11 and deletes all later
characters; of unicode_18.txt for new vocabularies. So they depend on neither the version of Python nor that of a
library.
"""

import functools
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from electra_tf.text.vocabulary import BERT_TEXT, IDEOGRAPH_RANGES, TextSettings

# The bits of a table entry. The bits from LOWER_CASE_SHIFT on hold the distance to the character's lower case.
_BIT_NAMES = ("DELETED", "SPACE", "ISOLATED", "NONSPACING_MARK", "CASED", "CASE_IGNORABLE")
_BITS = {name: 1 << bit for bit, name in enumerate(_BIT_NAMES)}
DELETED, SPACE, ISOLATED, NONSPACING_MARK, CASED, CASE_IGNORABLE = _BITS.values()
LOWER_CASE_SHIFT = 8

# Of the controls and format characters, all of which BERT deletes, with `format_characters`: those that separate words,
# and those that are seen or spell (joiners, the Mongolian vowel separator, tags of flags, signs before numbers). What
# is left are hints for layout: soft hyphens, word joiners, marks of direction.
_FORMAT_CHARACTERS = (
    "SPACE B-C 1C-1F 85 200B 2061-2064 FFF9-FFFB",
    "CASE_IGNORABLE 600-605 6DD 70F 890-891 8E2 180E 200C-200D 110BD 110CD 13430-1343F 1BCA0-1BCA3 1D173-1D17A"
    " E0020-E007F",
)


def character_table(settings: TextSettings = BERT_TEXT) -> npt.NDArray[np.int32]:
    """[number of code points] int32: the property bits, plus the distance to the lower case << LOWER_CASE_SHIFT."""
    table = np.zeros(sys.maxunicode + 1, np.int32)
    path = Path(__file__).with_name(f"unicode_{settings.unicode}.txt")
    added = _FORMAT_CHARACTERS if settings.format_characters else ()
    for line in (*path.read_text(encoding="ascii").splitlines(), *added):
        name, *entries = line.split()
        for entry in entries if name in _BITS else ():
            first, _, last = entry.partition("-")
            table[int(first, 16) : int(last or first, 16) + 1] |= _BITS[name]
        for entry in entries if name == "LOWER_CASE" else ():
            code_points, _, step_and_distance = entry.partition("/")
            first, last = (int(bound, 16) for bound in code_points.split("-"))
            # The step is one digit, the distance has a sign: "2+1", "1-29E7".
            step, distance = int(step_and_distance[0]), int(step_and_distance[1:], 16)
            table[first : last + 1 : step] += distance << LOWER_CASE_SHIFT
    for first, last in () if settings.isolate_cjk else IDEOGRAPH_RANGES:
        table[first : last + 1] &= ~ISOLATED
    table[(table & (SPACE | CASE_IGNORABLE)) != 0] &= ~DELETED  # what is added is no longer deleted
    return table


@functools.cache
def character_class(bits: int, settings: TextSettings) -> str:
    """A regular expression, for any library: the characters with one of the properties, without those seen in ASCII."""
    code_points = np.flatnonzero(character_table(settings) & bits)
    of_ascii, surrogates = (code_points > 0x20) & (code_points < 0x7F), code_points >> 11 == 0x1B
    code_points = code_points[~of_ascii & ~surrogates]
    ranges = np.split(code_points, np.flatnonzero(np.diff(code_points) > 1) + 1)
    return f"[{''.join(f'{chr(each[0])}-{chr(each[-1])}' for each in ranges)}]"
