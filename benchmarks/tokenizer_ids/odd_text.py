"""Lines of odd Unicode: all blocks, marks, compatibility forms, Hangul's parts, unusual spaces."""

import random
import unicodedata

_UNASSIGNED = ("Cn", "Cs", "Co", "Cc")
_SPACES = "\t\x0b\x0c\x85\xa0\u2581\u200b\u2028\u2029\u3000\u2003 "
_HANGUL_PARTS = [chr(code) for first, last in ((0x1100, 0x1113), (0x1161, 0x1176), (0x11A8, 0x11C3))
                 for code in range(first, last)]  # fmt: skip


def odd_lines(number: int, seed: int = 1) -> list[str]:
    """Lines of 3 to 40 random characters; the same for a version of Python, which brings its version of Unicode."""
    assigned = [chr(code) for code in range(0x20, 0x30000) if unicodedata.category(chr(code)) not in _UNASSIGNED]
    pools = {
        3: assigned,
        2: [each for each in assigned if unicodedata.category(each) == "Mn"],
        2.5: [each for each in assigned if unicodedata.decomposition(each).startswith("<")],
        1.5: list(_SPACES),
        4: list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        2.2: [chr(code) for code in range(0x3041, 0x3097)],
        1: _HANGUL_PARTS,
    }  # by how often a character is of the pool
    source = random.Random(seed)
    lines = []
    while len(lines) < number:
        chosen = source.choices(list(pools.values()), list(pools), k=source.randint(3, 40))
        line = "".join(map(source.choice, chosen))
        if line.strip():
            lines.append(line)
    return lines
