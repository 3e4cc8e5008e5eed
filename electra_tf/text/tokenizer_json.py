"""A tokenizer.json, the file of the library `tokenizers`: what its model is, and its tokenizer."""

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any


def model_type(content: Mapping[str, Any]) -> str | None:
    """What the model is, such as BPE or WordPiece; None if the file does not say so. Old files of BPEs do not."""
    model = content.get("model") or {}
    return model.get("type", "BPE" if "merges" in model else None)


def has_byte_alphabet(content: bytes) -> bool:
    """Whether a token is written with a character for each byte, as in GPT-2; otherwise in plain text."""
    parts = json.loads(content)
    return '"ByteLevel"' in json.dumps([parts.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")])


def in_order(token_of: Mapping[int, str]) -> Iterator[str | None]:
    """The token of each id, None for an id without one.

    Raises: ValueError: an id is far beyond the number of tokens, and may be beyond any memory.
    """
    last = max(token_of)
    if last > 2 * len(token_of) + 2**16:
        raise ValueError(f"a token has the id {last}, among {len(token_of)} tokens")
    return map(token_of.get, range(last + 1))


@functools.lru_cache(maxsize=4)
def library_tokenizer(content: bytes) -> Any:
    """The `tokenizers.Tokenizer`, without truncation and padding. It is shared: do not change it."""
    from tokenizers import Tokenizer  # only byte-level BPE needs it here

    tokenizer = Tokenizer.from_buffer(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
