"""The schemes by which the tags of words mark spans."""

import functools
import re
from collections.abc import Sequence
from typing import Literal

# As seqeval names them (bioes is its IOBES). plain: tags without spans, such as parts of speech.
TagScheme = Literal["iob1", "iob2", "ioe1", "ioe2", "bioes", "bilou", "plain"]
_SEQEVAL_NAMES = {"bioes": "IOBES"}  # the other schemes have their own name there, in upper case


def fits_scheme(tag: str, scheme: TagScheme) -> bool:
    """Returns True if a tag belongs to a scheme. All tags belong to `plain`."""
    return scheme == "plain" or re.fullmatch(f"O|[{scheme_prefixes(scheme)}](-.+)?", tag) is not None


@functools.cache
def scheme_prefixes(scheme: TagScheme) -> str:
    from seqeval import scheme as schemes

    allowed = getattr(schemes, _SEQEVAL_NAMES.get(scheme, scheme.upper())).allowed_prefix
    return "".join(letter for letter in "BIESLU" if schemes.Prefix[letter] in allowed)


def as_bioes(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns the tags of sentences with L and U renamed to E and S, as seqeval's conlleval expects, and "" to O."""
    begins = {"L": "E", "U": "S", "": "O"}
    return [[begins.get(tag[:1], tag[:1]) + tag[1:] for tag in sentence] for sentence in sentences]
