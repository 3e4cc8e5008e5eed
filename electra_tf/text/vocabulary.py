"""Vocabularies: WordPiece's vocab.txt, a SentencePiece model, or the tokenizer.json of a byte-level BPE."""

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from electra_tf.config.errors import UserError, first_line
from electra_tf.files import read_bytes
from electra_tf.text.segment import ALREADY_SEGMENTED
from electra_tf.text.tokenizer_json import has_byte_alphabet, in_order, library_tokenizer, model_type

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION_PREFIX = "##"  # of a word piece that does not begin a word
MAX_BYTES_PER_TOKEN = 256  # without the prefix; tensorflow_text takes no longer one
WORD_MARKER = "\u2581"  # of a SentencePiece piece that begins a word

# The ideographs that BERT isolates; the other characters that it isolates are punctuation.
IDEOGRAPH_RANGES = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip

IDEOGRAPHS = "".join(f"{chr(first)}-{chr(last)}" for first, last in IDEOGRAPH_RANGES)  # in the brackets of a pattern

# Before these no space is written, nor before white space: kana, Chinese punctuation, wide forms and ideographs.
UNSPACED = f"\u3000-\u30ff\u31f0-\u31ff\uff01-\uff9f{IDEOGRAPHS}"  # in the brackets of a pattern
_UNSPACED_START = re.compile(rf"[\s{UNSPACED}]")

# Word tables are padded to multiples of up to 1,024. A table with more rows without a token is that of another
# vocabulary: BERT's cased one has 1,526 tokens fewer than its uncased one.
_MAX_SURPLUS_ROWS = 1024

BERT_UNICODE = 11  # the version of Unicode of the authors' code

# The names of the special tokens in a tokenizer.json, in the order in which they are looked up: Gemma's vocabulary,
# which mmBERT has, also holds <s> and </s>, as tags of HTML.
_SPECIAL_NAMES = {
    PAD: ("[PAD]", "<pad>"),
    UNK: ("[UNK]", "<unk>"),
    CLS: ("[CLS]", "<bos>", "<s>"),
    SEP: ("[SEP]", "<eos>", "</s>"),
    MASK: ("[MASK]", "<mask>"),
}

_ASCII_SPACE = " \t\r\n\v\f"
_LAYOUT = "a\n\tb\n\n  c  d"
_BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")

# A text that each of SentencePiece's rules changes except `identity`, and what `identity` makes of it.
_NOT_NORMAL, _EXPECTED_NORMAL = " \ufb01  E\u0301 ", "\u2581\ufb01\u2581E\u0301"


class TextSettings(NamedTuple):
    """How text is normalized before it is cut into word pieces. The defaults are BERT's.

    Attributes:
        lower_case: convert letters to lower case.
        strip_accents: decompose, and drop nonspacing marks; as in BERT, only if `lower_case` is set.
        isolate_cjk: make each CJK ideograph a word of its own.
        unicode: the version of the table of characters: 11 (unicode_11.txt), by which later characters are deleted, as
            in BERT; or 18, of new vocabularies. A stored version keeps its meaning when a newer one is added.
        format_characters: those that separate words, such as U+200B, are white space, and those that spell, such as
            joiners, are kept; in BERT all are deleted.
        segment: the program that cuts text into words, see `electra_tf.text.segment`; "" if none does.
    """

    lower_case: bool = True
    strip_accents: bool = True
    isolate_cjk: bool = True
    unicode: int = BERT_UNICODE
    format_characters: bool = False
    segment: str = ""

    @property
    def strips_accents(self) -> bool:
        """Whether accents are stripped: in BERT only from letters in lower case."""
        return self.lower_case and self.strip_accents

    @classmethod
    def from_mapping(cls, stated: Mapping[str, Any]) -> "TextSettings":
        """The settings among the entries of a JSON file. A setting that is newer than the file has BERT's value."""
        return cls(**{name: stated[name] for name in cls._fields if name in stated})

    @classmethod
    def of_flags(cls, flags: Mapping[str, Any]) -> "TextSettings":
        """The settings that a user gives (None: not given), and BERT's for the others; segmented words stay whole."""
        given = {name: value for name, value in flags.items() if value is not None}
        whole_words = {"isolate_cjk": False} if given.get("segment") else {}
        settings = cls(**{**whole_words, **given})
        return settings._replace(segment="") if settings.segment == ALREADY_SEGMENTED else settings


BERT_TEXT = TextSettings()
CASED_TEXT = TextSettings(lower_case=False, strip_accents=False)


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a vocabulary file.

    Attributes:
        content: the file's bytes.
        tokens: the token with id i has index i.
        file_name: the file's name in data sets, runs and exported folders.
        text_settings: the only settings that fit; None: any fit.
    """

    content: bytes
    tokens: tuple[str, ...]
    file_name: ClassVar[str]
    text_settings: ClassVar[TextSettings | None]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Vocabulary":
        """Reads a file or URL. Raises: UserError: the file does not exist; or see `from_bytes`."""
        return cls.from_bytes(read_vocabulary_file(path), path)

    @staticmethod
    def from_bytes(content: bytes, path: str | os.PathLike[str]) -> "Vocabulary":
        """Parses the content of a vocabulary file of any kind; `path` names the file in messages.

        Raises: UserError: see `tokens_of`; also: a special token is missing, or [PAD] has another id than 0 in a
            vocab.txt or spm.model.
        """
        kind = kind_of_vocabulary(content)
        vocabulary = kind(content, tokens_of(content, path))
        if missing := [token for token in SPECIAL_TOKENS if token not in vocabulary.special_ids]:
            raise UserError(
                f"vocabulary {path} ({vocabulary.size} tokens) lacks {', '.join(missing)}; give another vocabulary, or "
                "build one with electra-tf build-vocab"
            )
        if vocabulary.pad_id != 0 and kind is not ByteLevelVocabulary:
            raise UserError(
                f"vocabulary {path} has {PAD} on line {vocabulary.pad_id + 1}, expected line 1, as batches are padded "
                "with id 0; give another vocabulary"
            )
        return vocabulary

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal digest of the file's bytes, by which data sets and checkpoints identify their vocabulary."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size(self) -> int:
        """Number of tokens, V."""
        return len(self.tokens)

    def fits(self, num_rows: int) -> bool:
        """Whether a word table with this number of rows can be that of this vocabulary."""
        return 0 <= num_rows - self.size <= _MAX_SURPLUS_ROWS

    pad_id = property(lambda self: self.special_ids[PAD])
    unk_id = property(lambda self: self.special_ids[UNK])
    cls_id = property(lambda self: self.special_ids[CLS])
    sep_id = property(lambda self: self.special_ids[SEP])
    mask_id = property(lambda self: self.special_ids[MASK])
    keeps_layout = property(lambda self: False)

    @cached_property
    def special_ids(self) -> dict[str, int]:
        """The ids of those of `SPECIAL_TOKENS` that the vocabulary has, by BERT's names."""
        id_of = {token: i for i, token in enumerate(self.tokens)}
        return {token: id_of[token] for token in SPECIAL_TOKENS if token in id_of}

    def begins_word(self) -> list[bool]:
        """Whether each token begins a word: V entries."""
        raise NotImplementedError

    def in_context(self, texts: Sequence[str]) -> Sequence[str]:
        """The sentences or words of one text, which are tokenized one by one, each with the space that is before it."""
        return texts

    @property
    def byte_ids(self) -> tuple[int, ...]:
        """The ids of the tokens that stand for a byte of an unknown character."""
        return tuple(i for i, token in enumerate(self.tokens) if _BYTE_PIECE.fullmatch(token))


class WordPieceVocabulary(Vocabulary):
    """A file like BERT's vocab.txt: UTF-8, one token per line, in the order of the ids."""

    file_name = "vocab.txt"
    text_settings = None

    @classmethod
    def from_tokens(cls, tokens: Iterable[str]) -> "WordPieceVocabulary":
        """The vocabulary of tokens in the order of their ids."""
        tokens = tuple(tokens)
        return cls("".join(f"{token}\n" for token in tokens).encode(), tokens)

    @staticmethod
    def parse_tokens(content: bytes, path: str | os.PathLike[str]) -> tuple[str, ...]:
        """Returns the lines without the ASCII white space around them; every line has an id, as in BERT's loader.

        No text becomes an empty line, or a token that also stands on a later line: as in BERT's loader, the last line
        counts. In place of both there is `[line N]`, which no text contains as a word, so that all tokens differ.
        """
        # Not by str.splitlines, nor stripped of other white space: U+2028, U+00A0 and U+3000 are published tokens.
        lines = [line.strip(_ASCII_SPACE) for line in content.decode("utf-8").rstrip(_ASCII_SPACE).split("\n")]
        last = {token: number for number, token in enumerate(lines, start=1)}
        numbered = enumerate(lines, start=1)
        return tuple(token if token and last[token] == number else f"[line {number}]" for number, token in numbered)

    def begins_word(self) -> list[bool]:
        return [not token.startswith(CONTINUATION_PREFIX) for token in self.tokens]


class SentencePieceVocabulary(Vocabulary):
    """A SentencePiece model of electra-tf build-vocab. Its text is normalized to NFKC, and not by the model."""

    file_name = "spm.model"
    text_settings = TextSettings(lower_case=False, strip_accents=False, isolate_cjk=False)

    @staticmethod
    def parse_tokens(content: bytes, path: str | os.PathLike[str]) -> tuple[str, ...]:
        """Returns the pieces.

        Raises: UserError: the model has a normalization of its own, or its settings for spaces are not the library's
            defaults.
        """
        from sentencepiece import SentencePieceProcessor

        model = SentencePieceProcessor(model_proto=content)
        tokens = tuple(map(model.id_to_piece, range(model.get_piece_size())))
        # Hugging Face's tokenizers would give other ids, and no piece would show where a word begins.
        across = next((token for token in tokens if WORD_MARKER in token[1:]), "")
        if across or model.normalize(_NOT_NORMAL) != _EXPECTED_NORMAL:
            problem = f"has the piece {across!r}, across a space" if across else "has a normalization of its own"
            raise UserError(
                f"vocabulary {path} {problem}; train the model with identity, add_dummy_prefix, "
                "remove_extra_whitespaces and split_by_whitespace, or build one with electra-tf build-vocab"
            )
        return tokens

    def begins_word(self) -> list[bool]:
        # SentencePiece writes "Hello," as two pieces without a marker between them; a mark is a word of its own.
        return [token.startswith(WORD_MARKER) or not any(map(str.isalnum, token)) for token in self.tokens]


class ByteLevelVocabulary(Vocabulary):
    """The tokenizer.json of a byte-level BPE, as of ModernBERT, RoBERTa and, with pieces for bytes, mmBERT.

    The whole file is the vocabulary: it also says how text is normalized and split. Special tokens have the ids that
    the file gives them. If there is no unknown token, which no text needs, [PAD] takes its place.
    """

    file_name = "tokenizer.json"
    text_settings = TextSettings(lower_case=False, strip_accents=False, isolate_cjk=False)

    @staticmethod
    def parse_tokens(content: bytes, path: str | os.PathLike[str]) -> tuple[str, ...]:
        """Returns the tokens and the added ones; an id without a token has `[no token N]`.

        Raises: UserError: the content is not that of a BPE.
        """
        if (kind := model_type(json.loads(content))) != "BPE":
            raise UserError(f"vocabulary {path} is one of {kind}, expected BPE; give its vocab.txt or spm.model")
        token_of = {index: token for token, index in library_tokenizer(content).get_vocab().items()}
        tokens = enumerate(in_order(token_of))
        return tuple(f"[no token {index}]" if token is None else token for index, token in tokens)

    @cached_property
    def special_ids(self) -> dict[str, int]:
        tokenizer = library_tokenizer(self.content)
        added = {token.content: index for index, token in tokenizer.get_added_tokens_decoder().items()}
        found = {token: [added[name] for name in names if name in added] for token, names in _SPECIAL_NAMES.items()}
        ids = {token: indices[0] for token, indices in found.items() if indices}
        if len(around := tokenizer.encode("").ids) == 2:  # those that the file itself puts around a text
            ids[CLS], ids[SEP] = around
        return {UNK: ids[PAD], **ids} if PAD in ids else ids

    def in_context(self, texts: Sequence[str]) -> Sequence[str]:
        if library_tokenizer(self.content).encode("a", add_special_tokens=False).tokens != ["a"]:
            return texts  # the tokenizer puts a space before each text itself
        return [text if index == 0 or _UNSPACED_START.match(text) else f" {text}" for index, text in enumerate(texts)]

    @property
    def keeps_layout(self) -> bool:
        """Whether indentation, tabs and line ends have tokens, and nothing is put before a text."""
        tokenizer = library_tokenizer(self.content)
        kept = tokenizer.decode(tokenizer.encode(_LAYOUT, add_special_tokens=False).ids)
        return kept == _LAYOUT and self.in_context(["a", "b"])[1] == " b"

    def begins_word(self) -> list[bool]:
        from tokenizers.decoders import ByteLevel

        added = set(library_tokenizer(self.content).get_added_tokens_decoder())
        is_in_bytes, decoder = has_byte_alphabet(self.content), ByteLevel()

        def begins(token: str) -> bool:
            text = decoder.decode([token]) if is_in_bytes else token.replace(WORD_MARKER, " ")
            # As with SentencePiece, a mark is a word of its own. U+FFFD is a part of a character.
            return text[:1].isspace() or not any(c == "\ufffd" or unicodedata.category(c)[0] in "LMN" for c in text)

        return [
            index in added or (begins(token) and not _BYTE_PIECE.fullmatch(token))
            for index, token in enumerate(self.tokens)
        ]


def kind_of_vocabulary(
    content: bytes,
) -> type[WordPieceVocabulary] | type[SentencePieceVocabulary] | type[ByteLevelVocabulary]:
    """The class of a vocabulary file with this content, which may be damaged."""
    # A model begins with the tag of its first piece, which is a line break; the first line of a vocab.txt is [PAD].
    if content.startswith(b"\n"):
        return SentencePieceVocabulary
    return ByteLevelVocabulary if content.startswith(b"{") else WordPieceVocabulary


def tokens_of(content: bytes, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The tokens of a vocabulary file of any kind, in the order of their ids; `path` names the file in messages.

    Raises: UserError: the content is damaged; or see the classes of the kinds.
    """
    kind = kind_of_vocabulary(content)
    try:
        return kind.parse_tokens(content, path)
    except UserError:
        raise
    except Exception as error:  # `tokenizers` has no class of its own for its errors
        problem = f"is damaged, or no {kind.file_name}: {first_line(error)}"
        raise UserError(f"vocabulary {path} {problem}; give another file") from None


VOCABULARY_FILES = tuple(kind.file_name for kind in (WordPieceVocabulary, SentencePieceVocabulary, ByteLevelVocabulary))


class StoredTokenizer(NamedTuple):
    """A tokenizer as it is stored: all that determines the ids of a text.

    Attributes:
        content: the content of the vocabulary file; empty if there is none.
    """

    content: bytes
    settings: TextSettings = BERT_TEXT

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens in the order of their ids. Raises: UserError: see `tokens_of`."""
        return tokens_of(self.content, "of a run or its source")

    @classmethod
    def of(cls, content: bytes, settings: TextSettings) -> "StoredTokenizer":
        """The tokenizer of a vocabulary file, with these settings unless the file's kind has settings of its own."""
        return cls(content, kind_of_vocabulary(content).text_settings or settings)


def read_vocabulary_file(path: str | os.PathLike[str]) -> bytes:
    """The content of a vocabulary file. Raises: UserError: it does not exist or cannot be read."""
    content = read_bytes(path)
    if content is None:
        raise UserError(f"the vocabulary {path} does not exist; give a {' or '.join(VOCABULARY_FILES)}")
    return content


def find_vocabulary_file(directory: str) -> tuple[str, bytes | None]:
    """The vocabulary file in a directory, and its content; the first possible name and None if there is none."""
    paths = [os.path.join(directory, name) for name in VOCABULARY_FILES]
    found = ((path, content) for path in paths if (content := read_bytes(path)) is not None)
    return next(found, (paths[0], None))
