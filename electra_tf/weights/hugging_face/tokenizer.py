"""The vocabulary and the tokenizer of a Hugging Face folder, read and written."""

import json
import os
from typing import NamedTuple

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from electra_tf.config.errors import UserError
from electra_tf.files import read_bytes, read_json
from electra_tf.text.tokenizer import MAX_CHARACTERS_PER_WORD
from electra_tf.text.vocabulary import CLS, CONTINUATION_PREFIX, MASK, PAD, SEP, SPECIAL_TOKENS, UNK, Vocabulary

_SPECIAL_TOKENS = {"unk_token": UNK, "sep_token": SEP, "pad_token": PAD, "cls_token": CLS, "mask_token": MASK}
# Classes that tokenize as BERT does, or as tokenizer.json describes.
_BERT_CLASSES = ("ElectraTokenizer", "BertTokenizer", "DistilBertTokenizer", "PreTrainedTokenizer", "TokenizersBackend")


class FolderTokenizer(NamedTuple):
    """How the text of a folder's model was tokenized.

    Attributes:
        vocabulary_file: the content of a vocab.txt; empty if the folder has no vocabulary.
        notes: warnings about settings that differ from BERT's tokenizer, the only one of this program.
    """

    vocabulary_file: bytes
    lower_case: bool
    strip_accents: bool
    notes: list[str]


def read_tokenizer(folder: str) -> FolderTokenizer:
    """Reads tokenizer.json. Missing entries come from vocab.txt, tokenizer_config.json or transformers' defaults."""
    fast_file = os.path.join(folder, "tokenizer.json")
    fast, config = read_json(fast_file), read_json(os.path.join(folder, "tokenizer_config.json"))
    normalizer = fast.get("normalizer") or {}
    stated = (normalizer.get("lowercase"), config.get("do_lower_case"), True)
    lower_case = next(value for value in stated if value is not None)
    stated = (normalizer.get("strip_accents"), config.get("strip_accents"), lower_case)
    strip_accents = next(value for value in stated if value is not None)
    vocabulary = _listed_tokens(fast, fast_file) or read_bytes(os.path.join(folder, "vocab.txt")) or b""
    notes = [
        f"warning: {folder} has {each}; here text is tokenized as BERT's, so the model may get other ids"
        for each in _foreign_parts(config, fast)
    ]
    # As in BERT, accents are stripped only where letters are lowered.
    return FolderTokenizer(vocabulary, lower_case, strip_accents and lower_case, notes)


def _listed_tokens(fast: dict, path: str) -> bytes | None:
    """The tokens of a tokenizer.json as lines, in the order of their ids."""
    model = fast.get("model") or {}
    if model.get("type", "WordPiece") != "WordPiece":
        raise UserError(f"{path} is a {model['type']} tokenizer, expected WordPiece; give another folder")
    if not model.get("vocab"):
        return None
    ids = model["vocab"] | {token["content"]: token["id"] for token in fast.get("added_tokens") or []}
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(f"{path}: an id from 0 to {len(tokens) - 1} is missing or repeated; give another folder")
    return "".join(f"{token}\n" for token in tokens).encode()


def _foreign_parts(config: dict, fast: dict) -> list[str]:
    name = str(config.get("tokenizer_class") or _BERT_CLASSES[0]).removesuffix("Fast")
    parts = [] if name in _BERT_CLASSES else [f"tokenizer_class {name}"]
    for key in ("tokenize_chinese_chars", "do_basic_tokenize"):
        if config.get(key) is False:
            parts.append(f"{key} false")
    for key, expected in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer")):
        kind = (fast.get(key) or {"type": None}).get("type", expected) if key in fast else expected
        if kind != expected:
            parts.append(f"{key} {kind}")
    return parts


def tokenizer_files(
    vocabulary: Vocabulary, vocabulary_file: bytes, lower_case: bool, strip_accents: bool, max_length: int
) -> dict[str, bytes]:
    """vocab.txt, tokenizer.json, tokenizer_config.json and special_tokens_map.json by name.

    Args:
        vocabulary_file: the content of vocab.txt.        max_length: the longest input of the model, in tokens.
    """
    config = {
        # With ElectraTokenizer or BertTokenizer, transformers 5 ignores tokenizer.json and its limit of 200 characters
        # for a word, which is BERT's and ours, and takes 100.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": max_length,
        "do_lower_case": lower_case,
        "strip_accents": lower_case and strip_accents,
        "tokenize_chinese_chars": True,
        "clean_up_tokenization_spaces": False,
        **_SPECIAL_TOKENS,
    }
    tokenizer = fast_tokenizer(vocabulary, lower_case, strip_accents)
    return {
        "vocab.txt": vocabulary_file,
        "tokenizer.json": tokenizer.to_str(pretty=True).encode(),
        "tokenizer_config.json": to_json(config),
        "special_tokens_map.json": to_json(_SPECIAL_TOKENS),
    }


def fast_tokenizer(vocabulary: Vocabulary, lower_case: bool, strip_accents: bool) -> Tokenizer:
    """BERT's tokenizer of the library `tokenizers`, for one text or two, with [CLS] and [SEP]."""
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(
        models.WordPiece(
            ids,
            unk_token=UNK,
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
            continuing_subword_prefix=CONTINUATION_PREFIX,
        )
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower_case, strip_accents=lower_case and strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(CONTINUATION_PREFIX)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, vocabulary.cls_id), (SEP, vocabulary.sep_id)],
    )
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def to_json(content: dict) -> bytes:
    """A JSON file's content, as transformers writes it."""
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
