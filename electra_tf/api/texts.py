"""What methods of a model take for texts."""

from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.api.tables import as_list, as_table
from electra_tf.config.errors import UserError
from electra_tf.data.bucketing import Features
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocabulary import MASK, WORD_MARKER, Vocabulary


def text_columns_of(texts: Any) -> tuple[list[list[str]], bool]:
    """Texts as one list of N, or pairs of texts as two, and whether it was a single text.

    Raises: UserError: it is a table or no list, or holds something else.
    """
    if isinstance(texts, str):
        return [[texts]], True
    texts = as_list(texts, "texts", "a text or a list of texts")
    if not texts:
        return [[]], False
    table = as_table(texts, (), "texts")
    return [table.texts(name) for name in table.columns], False


def masked_features(
    columns: list[list[str]], tokenizer: Tokenizer, max_seq_length: int
) -> tuple[Features, list[list[int]]]:
    """The tokens of texts with [MASK] in them, and the positions of these tokens.

    Raises: UserError: a text has more tokens than are read. ValueError: they are pairs.
    """
    (texts,), vocabulary, rows, positions = columns, tokenizer.vocabulary, [], []
    all_parts = [text.split(MASK) for text in texts]
    cut_words = iter(tokenizer.segment([part for parts in all_parts for part in parts]))
    for number, parts in enumerate(all_parts, start=1):
        *before, last = islice(cut_words, len(parts))  # a word that begins with its space takes it along when masked
        pieces = tokenizer.tokenize(tf.constant([*map(str.rstrip, before), last])).to_list()
        ids = [vocabulary.cls_id, *pieces[0]]
        for part, piece in zip([*before, last][1:], pieces[1:], strict=True):
            goes_on = piece and not part[0].isspace() and vocabulary.tokens[piece[0]].startswith(WORD_MARKER)
            # SentencePiece begins every part as a word, also one that goes on after the masked token.
            ids += [vocabulary.mask_id, *(_without_marker(piece, vocabulary) if goes_on else piece)]
        rows.append([*ids, vocabulary.sep_id])
        positions.append([place for place, token in enumerate(ids) if token == vocabulary.mask_id])
        if len(ids) >= max_seq_length:
            raise UserError(f"texts:{number} has {len(ids) + 1} tokens, but the model reads {max_seq_length}; cut it")
    splits = np.cumsum([0, *map(len, rows)])
    ids = np.concatenate(rows or [[]]).astype(np.int32)
    return Features(ids, np.zeros_like(ids), splits, np.arange(len(rows), dtype=np.int32)), positions


def _without_marker(ids: list[int], vocabulary: Vocabulary) -> list[int]:
    """Ids of SentencePiece without the marker of the first word, if the vocabulary has the rest of its first token."""
    rest = vocabulary.tokens[ids[0]].removeprefix(WORD_MARKER)
    if not rest:
        return ids[1:]
    return [vocabulary.tokens.index(rest), *ids[1:]] if rest in vocabulary.tokens else ids
