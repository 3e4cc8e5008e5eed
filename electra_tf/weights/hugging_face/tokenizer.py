"""The vocabulary and the tokenizer of a Hugging Face folder, read and written."""

import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import processors

from electra_tf.files import read_bytes, read_json
from electra_tf.text import tokenizer_json
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocabulary import (
    CLS,
    MASK,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
    ByteLevelVocabulary,
    SentencePieceVocabulary,
    StoredTokenizer,
    TextSettings,
    Vocabulary,
)
from electra_tf.weights.names import list_briefly

_SPECIAL_TOKENS = {"unk_token": UNK, "sep_token": SEP, "pad_token": PAD, "cls_token": CLS, "mask_token": MASK}
# Classes that tokenize as BERT does, by the settings of tokenizer_config.json, or as tokenizer.json describes.
_OF_BERT = ("Electra", "Bert", "DistilBert", "MobileBert", "SqueezeBert", "ConvBert", "LayoutLM")
_BERT_CLASSES = tuple(f"{name}Tokenizer" for name in _OF_BERT)
_GENERIC_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")
_JAPANESE, _JAPANESE_STEPS = "BertJapaneseTokenizer", ("word_tokenizer_type", "subword_tokenizer_type")
_LISTS_OF_TOKENS = ("additional_special_tokens", "extra_special_tokens")  # the second since transformers 5
# Keys of tokenizer_config.json that are read here, or do not change the ids of a text.
_KNOWN_KEYS = re.compile(
    "_.*|.*_(token|token_id|side|file)|do_lower_case|strip_accents|tokenize_chinese_chars|unicode|format_characters|"
    "segment|added_tokens_decoder|tokenizer_class|do_basic_tokenize|never_split|auto_map|(word|subword)_tokenizer_type|"
    "(additional|extra)_special_tokens|model_(max_length|input_names|type)|max_len(gth)?|name_or_path|vocab(_size)?|"
    "(truncation|padding)(_strategy)?|pad_to_multiple_of|pad_token_type_id|stride|clean_up_tokenization_spaces|"
    "use_fast|is_local|local_files_only|backend|processor_class|return_tensors|from_slow|legacy|chat_template|errors|"
    "token|init_inputs|files_loaded|verbose|split_special_tokens|transformers_version|trust_remote_code|revision|"
    "cache_dir|subfolder|add_special_tokens"
)


def read_tokenizer(
    folder: str, model_type: str = "electra", tokenizer_class: str | None = None
) -> tuple[StoredTokenizer, str, list[str]]:
    """Reads how the text of a folder's model was tokenized, from spm.model or else tokenizer.json.

    The tokenizer.json of a BPE is taken whole. Of WordPiece's, the vocabulary and the settings are read.
    Entries that tokenizer.json lacks come from vocab.txt and the tokens that were added to it, tokenizer_config.json or
    transformers' defaults. As in transformers, BERT's classes ignore the normalizer of tokenizer.json, except with
    ModernBERT.

    Args:
        model_type, tokenizer_class: of config.json, which may name the class alone.
    Returns: the tokenizer, whose content is empty if the folder has no vocabulary; the folder's own one if this program
        does not compute it, else ""; and warnings about what this program does not have.
    """
    model_file = os.path.join(folder, SentencePieceVocabulary.file_name)
    if (content := read_bytes(model_file)) is not None:
        return StoredTokenizer(content, SentencePieceVocabulary.text_settings), "", []
    fast_file = os.path.join(folder, "tokenizer.json")
    fast, config = read_json(fast_file), read_json(os.path.join(folder, "tokenizer_config.json"))
    kind = tokenizer_json.model_type(fast) or "WordPiece"
    if kind == "BPE":
        return StoredTokenizer(read_bytes(fast_file) or b"", ByteLevelVocabulary.text_settings), "", []
    foreign = _foreign_tokenizer(config, tokenizer_class) if kind == "WordPiece" else kind
    is_ignored = model_type != "modernbert" and _plain_class(config.get("tokenizer_class")) in _BERT_CLASSES
    normalizer = {} if is_ignored else fast.get("normalizer") or {}
    by_default = not foreign.startswith(_JAPANESE)  # of which text that was cut before keeps its words
    lower_case = _first(normalizer.get("lowercase"), config.get("do_lower_case"), default=by_default)
    strip_accents = _first(normalizer.get("strip_accents"), config.get("strip_accents"), default=lower_case)
    isolate_cjk = _first(
        normalizer.get("handle_chinese_chars"), config.get("tokenize_chinese_chars"), default=by_default
    )
    # As in BERT, accents are stripped only where letters are lowered.
    settings = TextSettings.from_mapping(config)._replace(
        lower_case=lower_case, strip_accents=strip_accents and lower_case, isolate_cjk=isolate_cjk
    )
    added = read_json(os.path.join(folder, "added_tokens.json"))
    added |= {token["content"]: int(index) for index, token in (config.get("added_tokens_decoder") or {}).items()}
    plain = read_bytes(os.path.join(folder, "vocab.txt")) or b""
    stored = StoredTokenizer(_listed_tokens(fast) or _extended(plain, added), settings)
    special: list[Any] = []  # beside BERT's: texts or objects, in a list or by name
    for named in (config, read_json(os.path.join(folder, "special_tokens_map.json"))):
        for tokens in (named.get(name) or [] for name in _LISTS_OF_TOKENS):
            special += tokens.values() if isinstance(tokens, dict) else tokens
    names = [token["content"] if isinstance(token, dict) else token for token in special]
    parts = _foreign_parts(config, fast, [*added, *names])
    if strip_accents and not lower_case:
        parts.append("strip_accents true with lower-casing false")
    consequence = "here text is tokenized as BERT's, so the model may get other ids"
    warnings = [f"warning: {folder} has {each}; {consequence}" for each in parts]
    warnings += [f"warning: {folder} needs its tokenizer {foreign}, which is not computed here"] * bool(foreign)
    return stored, foreign, warnings


def _foreign_tokenizer(config: Mapping[str, Any], tokenizer_class: str | None) -> str:
    """A WordPiece tokenizer that this program does not compute; "" for another one."""
    steps = [f"{key} {config[key]}" for key in _JAPANESE_STEPS if key in config]
    name = _JAPANESE if steps else _plain_class(config.get("tokenizer_class") or tokenizer_class)
    if own_code := (config.get("auto_map") or {}).get("AutoTokenizer"):
        steps.append(f"with code of its own, {own_code}")
    return "" if name in (*_BERT_CLASSES, *_GENERIC_CLASSES) and not steps else " ".join([name, *steps])


def _first(*values: bool | None, default: bool) -> bool:
    return next((value for value in values if value is not None), default)


def _listed_tokens(fast: dict[str, Any]) -> bytes | None:
    """The tokens of a WordPiece's tokenizer.json as lines, in the order of their ids; None without any."""
    model = fast.get("model") or {}
    if model.get("type", "WordPiece") != "WordPiece" or not model.get("vocab"):
        return None
    ids = model["vocab"] | {token["content"]: token["id"] for token in fast.get("added_tokens") or []}
    token_of = {index: token for token, index in ids.items()}
    # The library leaves out ids of empty and repeated lines of a vocab.txt; a line without a token keeps the others'.
    return "".join(f"{token or ''}\n" for token in tokenizer_json.in_order(token_of)).encode()


def _extended(vocabulary: bytes, added: Mapping[str, int]) -> bytes:
    """The lines of a vocab.txt, followed by the added tokens whose ids go on after it."""
    size, token_of = len(vocabulary.removesuffix(b"\n").split(b"\n")), {index: token for token, index in added.items()}
    tokens = map(token_of.get, itertools.takewhile(token_of.__contains__, itertools.count(size)))
    lines = "".join(f"{token}\n" for token in tokens).encode()
    return vocabulary.removesuffix(b"\n") + b"\n" + lines if vocabulary and lines else vocabulary


def _plain_class(name: str | None) -> str:
    """The name of a class without the ending of its faster version; by default BERT's, or one that equals it."""
    return str(name or _BERT_CLASSES[0]).removesuffix("Fast")


def _foreign_parts(config: dict[str, Any], fast: dict[str, Any], added: Iterable[str]) -> list[str]:
    parts = []
    if unknown := [key for key in config if not _KNOWN_KEYS.fullmatch(key) and config[key] not in (None, "", [], {})]:
        parts.append(f"in tokenizer_config.json the unknown {list_briefly(unknown)}")
    if config.get("do_basic_tokenize") is False:
        parts.append("do_basic_tokenize false")
    berts = (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer"))
    for key, expected in berts if "unicode" not in config else ():  # this program writes that entry
        kind = (fast.get(key) or {"type": None}).get("type", expected) if key in fast else expected
        if kind != expected:
            parts.append(f"{key} {kind}")
    if (prefix := (fast.get("model") or {}).get("continuing_subword_prefix", "##")) != "##":
        parts.append(f"continuing_subword_prefix {prefix!r}")
    added = [*added, *(token["content"] for token in fast.get("added_tokens") or [])]
    for name, tokens in (("added_tokens", added), ("never_split", config.get("never_split") or [])):
        whole = [each for each in dict.fromkeys(tokens) if each not in SPECIAL_TOKENS and each[:7] != "[unused"]
        parts += [f"{name} {list_briefly(whole)}"] * bool(whole)
    return parts


def tokenizer_files(tokenizer: Tokenizer, max_length: int, has_segments: bool = True) -> dict[str, bytes]:
    """The vocabulary, tokenizer.json, tokenizer_config.json and special_tokens_map.json by name.

    A tokenizer.json that is the vocabulary is written as it was read, unless it joins two texts in another way than
    the model was trained on, as RoBERTa's does.

    Args:
        max_length: the tokens at which a longer input is cut.
        has_segments: whether the second text of a pair has segment 1; else the model has no `token_type_ids`.
    """
    vocabulary, second = tokenizer.vocabulary, int(has_segments)
    special = {token: vocabulary.tokens[index] for token, index in vocabulary.special_ids.items()}
    named = {name: special[token] for name, token in _SPECIAL_TOKENS.items()}
    config = {
        # With a class that transformers 5 knows, it builds the tokenizer from the vocabulary, with other settings than
        # those of tokenizer.json: for BERT, with a limit of 100 characters for a word instead of 200.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", *["token_type_ids"] * has_segments, "attention_mask"],
        "model_max_length": max_length,
        **tokenizer.hugging_face_settings,
        "clean_up_tokenization_spaces": False,
        **named,
    }
    fast = tokenizer.to_hugging_face()
    if isinstance(vocabulary, ByteLevelVocabulary) and _joins_alike(fast, vocabulary, second):
        content = vocabulary.content
    else:
        cls, sep = special[CLS], special[SEP]
        fast.post_processor = processors.TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {sep}:0 $B:{second} {sep}:{second}",
            special_tokens=[(cls, vocabulary.cls_id), (sep, vocabulary.sep_id)],
        )
        known = {token.content for token in fast.get_added_tokens_decoder().values()}
        fast.add_special_tokens([token for token in special.values() if token not in known])
        content = fast.to_str(pretty=True).encode()
    return {
        vocabulary.file_name: vocabulary.content,
        "tokenizer.json": content,
        "tokenizer_config.json": to_json(config),
        "special_tokens_map.json": to_json(named),
    }


def _joins_alike(fast: HuggingFaceTokenizer, vocabulary: Vocabulary, second: int) -> bool:
    """Whether a tokenizer joins two texts as `electra_tf.text.packing.join` does, the second one with its segment."""
    text, pair = fast.encode("a", add_special_tokens=False).ids, fast.encode("a", "a")
    cls, sep = [vocabulary.cls_id], [vocabulary.sep_id]
    num_first = len(text) + 2
    segments = [0] * num_first + [1] * (len(text) + 1) if second else pair.type_ids
    return (pair.ids, pair.type_ids) == ([*cls, *text, *sep, *text, *sep], segments)


def to_json(content: Mapping[str, Any]) -> bytes:
    """A JSON file's content, as transformers writes it."""
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
