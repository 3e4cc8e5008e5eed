"""What identifies a document, and all that is drawn from it.

Whether a document is held out, how it is cut and where its examples lie follow from the seed and the document's place
in the input alone: not from the number of processes, the order of work, or the machine.
"""

import hashlib
import random

_DIGEST_SIZE = 32
_UNITS_IN_ONE = 2**64


def document_digest(seed: int, input_index: int, name: str, offset: int) -> bytes:
    """A stable hash of a document's identity.

    Args:
        input_index: which --input found the file.
        name: the file's name relative to the fixed part of that input's glob.
        offset: the byte of the file that the document begins at.
    """
    identity = f"{seed}\0{input_index}\0{name}\0{offset}".encode()
    return hashlib.blake2b(identity, digest_size=_DIGEST_SIZE, person=b"document").digest()


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
