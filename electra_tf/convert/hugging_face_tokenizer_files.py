"""The vocabulary of one of Hugging Face's folders, and how its text is tokenized."""

import os
from typing import NamedTuple

from electra_tf.config.errors import UserError
from electra_tf.convert.hugging_face_files import read_file, read_json_object


class TokenizerFiles(NamedTuple):
    """What the files say.

    Attributes:
        vocabulary_file: the content of vocab.txt, or of one that holds the same; None if there is no vocabulary.
        path: of the file that it comes from, for messages.
    """

    vocabulary_file: bytes | None
    path: str
    lower_case: bool
    strip_accents: bool


def read_tokenizer_files(folder: str) -> TokenizerFiles:
    """Reads vocab.txt, else tokenizer.json; tokenizer_config.json, else tokenizer.json, else transformers' defaults.

    Raises: UserError: if one of them is damaged.
    """
    config = read_json_object(os.path.join(folder, "tokenizer_config.json")) or {}
    fast_file = os.path.join(folder, "tokenizer.json")
    fast = read_json_object(fast_file) or {}
    normalizer = fast.get("normalizer") or {}
    lower_case = _first_of(config.get("do_lower_case"), normalizer.get("lowercase"), True)
    strip_accents = _first_of(config.get("strip_accents"), normalizer.get("strip_accents"), lower_case)
    path = os.path.join(folder, "vocab.txt")
    vocabulary = read_file(path)
    if vocabulary is None and fast:
        path, vocabulary = fast_file, _listed(fast, fast_file)
    # As in BERT, accents are stripped only where letters are lowered.
    return TokenizerFiles(vocabulary, path, bool(lower_case), bool(strip_accents and lower_case))


def _listed(fast: dict, path: str) -> bytes:
    """The tokens of a tokenizer.json, in the order of their ids, as lines."""
    model = fast.get("model") or {}
    if model.get("type", "WordPiece") != "WordPiece" or not isinstance(model.get("vocab"), dict):
        raise UserError(f"{path} is no WordPiece tokenizer, as ELECTRA has; give the vocabulary as --vocab_file")
    ids = dict(model["vocab"])
    ids |= {token["content"]: token["id"] for token in fast.get("added_tokens") or []}
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(f"{path}: ids are not 0 to {len(tokens) - 1}, each once; give the vocabulary as --vocab_file")
    return "".join(f"{token}\n" for token in tokens).encode()


def _first_of(*values):
    return next(value for value in values if value is not None)
