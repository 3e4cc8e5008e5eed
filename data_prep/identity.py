"""What identifies a document, and all that is drawn from it.

A document is its text. Whether it is held out, how it is cut and where its examples lie follow from the seed and the
text alone: not from the file it came in, the number of processes, the order of work, or the machine. So the same
document twice gives the same examples in the same shard, where one of each is dropped, and never stands in both splits.
"""

import hashlib
import random
from collections.abc import Sequence

_DIGEST_SIZE = 32
_UNITS_IN_ONE = 2**64


def document_digest(seed: int, lines: Sequence[str]) -> bytes:
    """A stable hash of a seed and a document's text.

    Args:
        lines: without line ends; equal lines give equal digests, the same text cut elsewhere does not.
    """
    hasher = hashlib.blake2b(f"{seed}\0".encode(), digest_size=_DIGEST_SIZE, person=b"document")
    hasher.update("\n".join(lines).encode())
    return hasher.digest()


def is_held_out(digest: bytes, held_out_fraction: float) -> bool:
    """Whether a document belongs to the held-out part, which it does with probability `held_out_fraction`."""
    return int.from_bytes(digest[:8], "little") < held_out_fraction * _UNITS_IN_ONE


def random_source(digest: bytes) -> random.Random:
    """The generator of all draws that a document's segments need."""
    return random.Random(int.from_bytes(digest[8:24], "little"))


def sort_key(digest: bytes, example_index: int) -> int:
    """Where an example of the document stands in the global shuffle: uniform in [0, 2**64)."""
    key = hashlib.blake2b(digest + example_index.to_bytes(8, "little"), digest_size=8, person=b"example").digest()
    return int.from_bytes(key, "little")
