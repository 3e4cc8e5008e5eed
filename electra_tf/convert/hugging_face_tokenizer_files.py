"""The vocabulary of one of Hugging Face's folders, and how its text is tokenized."""

import itertools
import os
from typing import NamedTuple

from electra_tf.config.errors import UserError
from electra_tf.files import read_bytes, read_json
from electra_tf.text.vocabulary import CONTINUATION_PREFIX, UNK, Vocabulary

# The classes that tokenize as BERT does; PreTrainedTokenizerFast is what tokenizer.json says.
_CLASSES = ("ElectraTokenizer", "BertTokenizer", "DistilBertTokenizer", "PreTrainedTokenizer", "TokenizersBackend")
# What the settings of BERT's tokenization are in the two files.
_AS_BERT = {"tokenize_chinese_chars": True, "do_basic_tokenize": True, "do_word_tokenize": True}
_NORMALIZER = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
_WORD_PIECES = {"type": "WordPiece", "unk_token": UNK, "continuing_subword_prefix": CONTINUATION_PREFIX}


class TokenizerFiles(NamedTuple):
    """What the files say.

    Attributes:
        vocabulary_file: the content of vocab.txt, or of one that holds the same; None if there is no vocabulary.
        path: of the file that it comes from, for messages.
        notes: lines for the log: where the model's text was not tokenized as BERT's, which is all this program does.
    """

    vocabulary_file: bytes | None
    path: str
    lower_case: bool
    strip_accents: bool
    notes: tuple[str, ...] = ()


def read_tokenizer_files(folder: str, given: tuple[bytes, str] | None = None) -> TokenizerFiles:
    """Reads vocab.txt, else tokenizer.json; tokenizer_config.json, else tokenizer.json, else transformers' defaults.

    Args:
        given: the content of another vocabulary and its path; that of the folder is not looked at then.
    Raises: UserError: if one of them is damaged, or two of them say different things: which one transformers goes by
        depends on its version and on the tokenizer's class.
    """
    config_file, fast_file = (os.path.join(folder, name) for name in ("tokenizer_config.json", "tokenizer.json"))
    config, fast = read_json(config_file), read_json(fast_file)
    normalizer = _part(fast, "normalizer", fast_file)
    said = {f"{config_file}: {key}": config.get(key) for key in ("do_lower_case", "strip_accents")}
    said |= {f"{fast_file}: normalizer.{key}": normalizer.get(key) for key in ("lowercase", "strip_accents")}
    cased, accents, fast_cased, fast_accents = said
    lower_case = _agreed(said, cased, fast_cased, default=True)
    strip_accents = _agreed(said, accents, fast_accents, default=lower_case)
    path = os.path.join(folder, "vocab.txt")
    vocabulary = read_bytes(path)
    if given is not None:
        vocabulary, path = given
    elif vocabulary is None and fast:
        path, vocabulary = fast_file, _listed(fast, fast_file)
    elif _is_word_pieces(_part(fast, "model", fast_file)):
        _require_same_tokens(path, vocabulary, fast_file, _listed(fast, fast_file))
    foreign = [f"{config_file} says {each}" for each in _foreign_settings(config)]
    foreign += [f"{fast_file} says {each}" for each in _foreign_parts(fast, fast_file)]
    notes = [f"warning: {each}; here text is tokenized as BERT's, so the model may get other ids" for each in foreign]
    # As in BERT, accents are stripped only where letters are lowered.
    return TokenizerFiles(vocabulary, path, lower_case, strip_accents and lower_case, tuple(notes))


def _agreed(said: dict, first: str, second: str, default: bool) -> bool:
    """What two settings of `said` say; None says nothing. Raises: UserError: if they differ or are not of type bool."""
    for place in (first, second):
        if not isinstance(said[place], bool | None):
            raise UserError(f"{place} is {said[place]!r:.40}, expected true, false or null; correct it")
    stated = {said[first], said[second]} - {None}
    if len(stated) > 1:
        raise UserError(f"{first} is {said[first]}, but {second} is {said[second]}; correct the wrong one")
    return stated.pop() if stated else default


def _require_same_tokens(path: str, vocabulary: bytes, fast_file: str, listed: bytes) -> None:
    found = (Vocabulary.from_bytes(content, name).tokens for name, content in ((path, vocabulary), (fast_file, listed)))
    for index, (token, other) in enumerate(itertools.zip_longest(*found)):
        if token != other:
            raise UserError(
                f"{path} and {fast_file} differ: id {index} is {token!r} in the first, {other!r} in the second; take "
                "away the wrong one"
            )


def _foreign_settings(config: dict) -> list[str]:
    """Of tokenizer_config.json."""
    found = _different(config, _AS_BERT)
    name = config.get("tokenizer_class")
    if name is not None and str(name).removesuffix("Fast") not in _CLASSES:
        found.append(f"tokenizer_class {name}")
    return found


def _foreign_parts(fast: dict, path: str) -> list[str]:
    """Of tokenizer.json; one that is not there, or a part without a type, says nothing."""
    expected = {"normalizer": _NORMALIZER, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": _WORD_PIECES}
    parts = {name: _part(fast, name, path) for name in expected}
    found = [f"{name}.{each}" for name, values in expected.items() for each in _different(parts[name], values)]
    return found + [f"no {name}" for name in expected if name in fast and fast[name] is None]


def _different(found: dict, expected: dict) -> list[str]:
    return [f"{key} {found[key]!r:.40}" for key, value in expected.items() if key in found and found[key] != value]


def _part(fast: dict, name: str, path: str) -> dict:
    part = fast.get(name) or {}
    if not isinstance(part, dict):
        raise UserError(f"{path} is damaged: {name} is {part!r:.40}, expected an object; copy the file again")
    return part


def _listed(fast: dict, path: str) -> bytes:
    """The tokens of a tokenizer.json, in the order of their ids, as lines."""
    model = _part(fast, "model", path)
    if not _is_word_pieces(model):
        raise UserError(f"{path} is no WordPiece tokenizer, as ELECTRA has; give the vocabulary as --vocab_file")
    try:
        ids = model["vocab"] | {token["content"]: token["id"] for token in fast.get("added_tokens") or []}
        tokens = sorted(ids, key=ids.__getitem__)
    except (KeyError, TypeError):
        raise UserError(f"{path}: tokens and their ids cannot be read; give the vocabulary as --vocab_file") from None
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(f"{path}: ids are not 0 to {len(tokens) - 1}, each once; give the vocabulary as --vocab_file")
    return "".join(f"{token}\n" for token in tokens).encode()


def _is_word_pieces(model: dict) -> bool:
    return model.get("type", "WordPiece") == "WordPiece" and isinstance(model.get("vocab"), dict)
