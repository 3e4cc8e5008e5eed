"""The WordPiece vocabulary: a file with one token per line, in the order of the ids."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from electra_tf.config.errors import UserError
from electra_tf.files import read_bytes

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION_PREFIX = "##"  # a piece that does not begin a word


def read_vocabulary_file(path: str | Path) -> bytes:
    """The content of a vocabulary file. Raises: UserError: it does not exist or cannot be read."""
    content = read_bytes(path)
    if content is None:
        raise UserError(f"the vocabulary {path} does not exist; give a vocab.txt")
    return content


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a vocabulary file.

    Attributes:
        tokens: the token with id i has index i.
        sha256: hexadecimal digest of the file's bytes, by which data sets and checkpoints identify their vocabulary.
    """

    tokens: tuple[str, ...]
    sha256: str

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Reads a file, or a URL that TensorFlow reads, like BERT's vocab.txt: UTF-8, one token per line, stripped.

        Raises: UserError: the file does not exist; or see `from_bytes`.
        """
        return cls.from_bytes(read_vocabulary_file(path), path)

    @classmethod
    def from_bytes(cls, content: bytes, path: str | Path) -> "Vocabulary":
        """Parses the content of a vocabulary file; `path` names the file in messages.

        Raises: UserError: the content is empty, not UTF-8 or has a byte order mark; a line between tokens is empty; a
            token occurs twice; a special token is missing; or [PAD] has another id than 0.
        """
        try:
            # Not by str.splitlines: a token may contain U+2028 and other line separators.
            tokens = tuple(line.strip() for line in content.decode("utf-8").rstrip().split("\n"))
            problem = _problem_of(tokens)
        except UnicodeDecodeError as error:
            problem = f"is not UTF-8 at byte {error.start}; convert it or give another file"
        if problem:
            raise UserError(f"vocabulary {path} {problem}")
        return cls(tokens=tokens, sha256=hashlib.sha256(content).hexdigest())

    @property
    def size(self) -> int:
        """Number of tokens, V."""
        return len(self.tokens)

    pad_id = property(lambda self: self._id_of[PAD])
    unk_id = property(lambda self: self._id_of[UNK])
    cls_id = property(lambda self: self._id_of[CLS])
    sep_id = property(lambda self: self._id_of[SEP])
    mask_id = property(lambda self: self._id_of[MASK])

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}


def _problem_of(tokens: tuple[str, ...]) -> str:
    """The end of a message about the first mistake in a vocabulary file; "" if there is none."""
    if tokens[0].startswith("\ufeff"):
        return f"begins with a UTF-8 byte order mark, expected {PAD}; save it as UTF-8 without one"
    if tokens == ("",):
        return "is empty, expected one token per line; give another file, or build one with build_vocab.py"
    line_of: dict[str, int] = {}
    for line, token in enumerate(tokens, start=1):
        if not token:
            return f"has an empty line {line}, expected one token per line; remove the line"
        if token in line_of:
            return f"has the token {token!r} on lines {line_of[token]} and {line}; remove one of them"
        line_of[token] = line
    if missing := [token for token in SPECIAL_TOKENS if token not in line_of]:
        return (
            f"({len(tokens)} tokens) lacks {', '.join(missing)}; add the missing tokens, or build a vocabulary with"
            " build_vocab.py"
        )
    if line_of[PAD] != 1:
        return f"has {PAD} on line {line_of[PAD]}; move it to line 1: batches are padded with id 0"
    return ""
