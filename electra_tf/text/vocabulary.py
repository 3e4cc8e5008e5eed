"""The WordPiece vocabulary: one token a line, the line number is the id."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from electra_tf.config.errors import UserError
from electra_tf.files import read_bytes

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION_PREFIX = "##"  # a piece that does not begin a word
MAX_BYTES_PER_TOKEN = 256  # of FastWordpieceTokenizer, the prefix not counted


def read_vocabulary_file(path: str | Path) -> bytes:
    """The bytes that `Vocabulary.from_bytes` takes. Raises: UserError: no such file, or one that cannot be read."""
    content = read_bytes(path)
    if content is None:
        raise UserError(f"the vocabulary {path} does not exist; give a vocab.txt")
    return content


@dataclass(frozen=True)
class Vocabulary:
    """The tokens in the order of their ids, and what identifies the file they came from.

    Attributes:
        tokens: token i has id i.
        sha256: hexadecimal digest of the file's bytes; data sets and checkpoints name their vocabulary by it.
    """

    tokens: tuple[str, ...]
    sha256: str

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Reads a vocabulary file: UTF-8, one token a line, white space around a token ignored.

        Args:
            path: a file, or a URL, in the layout of BERT's vocab.txt.
        Raises: UserError: no such file, or one that `from_bytes` refuses.
        """
        return cls.from_bytes(read_vocabulary_file(path), path)

    @classmethod
    def from_bytes(cls, content: bytes, path: str | Path) -> "Vocabulary":
        """The vocabulary that a file at `path` holds, which is only named in messages.

        Raises: UserError: empty, not UTF-8 or with a byte order mark, an empty line between tokens, a token that occurs
            twice, is too long or has a NUL character, a special token missing, [PAD] with another id than 0 (batches
            are padded with zeros), or no piece of a word.
        """
        try:
            # Only "\n" ends a line: U+2028 and its like, at which str.splitlines would cut, may occur in a token.
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
    """What is wrong with the lines of a vocabulary file, as the rest of a message; "" if nothing is."""
    if tokens[0].startswith("\ufeff"):
        return f"begins with a UTF-8 byte order mark, expected {PAD}; save it as UTF-8 without one"
    if tokens == ("",):
        return "is empty, expected one token a line; give another file, or build one with build_vocab.py"
    line_of: dict[str, int] = {}
    for line, token in enumerate(tokens, start=1):
        num_bytes = len(token.removeprefix(CONTINUATION_PREFIX).encode("utf-8"))
        if not token:
            return f"has an empty line {line}, expected one token a line; remove the line"
        if num_bytes > MAX_BYTES_PER_TOKEN:
            return (
                f"has a token of {num_bytes} bytes on line {line}, {token[:20]!r}..., expected at most"
                f" {MAX_BYTES_PER_TOKEN}; give a WordPiece vocabulary, one token a line"
            )
        if "\0" in token:
            return f"has a NUL character in the token {token[:20]!r} on line {line}; give another file"
        if token in line_of:
            return f"has the token {token!r} on lines {line_of[token]} and {line}, expected it once; remove one of them"
        line_of[token] = line
    if missing := [token for token in SPECIAL_TOKENS if token not in line_of]:
        return (
            f"({len(tokens)} tokens) lacks {', '.join(missing)}, expected all of {' '.join(SPECIAL_TOKENS)}; add it or"
            " build a vocabulary with build_vocab.py"
        )
    if line_of[PAD] != 1:
        return (
            f"has {PAD} as id {line_of[PAD] - 1}, expected id 0 because batches are padded with zeros; move it to the"
            " first line"
        )
    # tensorflow_text leaves out every longer token with a punctuation mark in it and fails if no other is there.
    if not any(len(token) == 1 or token.removeprefix(CONTINUATION_PREFIX).isalnum() for token in tokens):
        return (
            f"has no piece of a word among its {len(tokens)} tokens, expected some beside the special ones; build a"
            " vocabulary with build_vocab.py"
        )
    return ""
