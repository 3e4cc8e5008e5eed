"""Texts, pairs of texts and tagged words as model input: [CLS] a [SEP], or [CLS] a [SEP] b [SEP].

All of a split at once, with flat arrays: no loop over tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.data.features import Features, ranges
from electra_tf.text.tokenizer import BertTokenizer

_TEXTS_PER_CALL = 4096  # of the tokenizer: enough for its speed, and little memory


@dataclass(frozen=True)
class TextFeatures:
    """Features, and how many of the examples did not fit: texts, pairs or sentences that lost tokens."""

    features: Features
    num_truncated: int


@dataclass(frozen=True)
class _Tokens:
    """The tokens of N texts: those of text i are `length[i]` from `start[i]` on.

    Attributes:
        ids: [T] int32.        start, length: [N] int64.
    """

    ids: np.ndarray
    start: np.ndarray
    length: np.ndarray


def text_features(
    texts: Sequence[list[str]],
    targets: Mapping[str, np.ndarray],
    tokenizer: BertTokenizer,
    max_seq_length: int,
    stride: int | None,
) -> TextFeatures:
    """The features of texts or of pairs of texts.

    Too long a text loses its end; of too long a pair the longer text, and of two equally long ones the second, loses
    its last token until they fit. With a stride, a long text has several rows instead, windows of as many tokens as
    fit, the last of which ends with the text.

    Args:
        texts: one or two lists of N texts.
        targets: by name, [N, ...]: what is learnt for an example.
        max_seq_length: tokens of the longest row, special ones included; at least 3, of pairs 5.
        stride: how many tokens a window of a text begins after the window before it; None to truncate, and for pairs.
    Raises: UserError: a stride of more tokens than a window has.
    Source: google-research/electra, finetune/classification (truncation of pairs); windows are ours.
    """
    tokens = [_tokenize(column, tokenizer) for column in texts]
    room = max_seq_length - 1 - len(tokens)  # beside [CLS] and one [SEP] a text
    assert room >= len(tokens), f"max_seq_length {max_seq_length} is too small"
    num_examples = len(tokens[0].length)
    if stride is None:
        parts = _truncated_pairs(*tokens, room) if len(tokens) == 2 else [_cut(tokens[0], room)]
        num_truncated = np.any([part.length < whole.length for part, whole in zip(parts, tokens, strict=True)], axis=0)
        example_index = np.arange(num_examples, dtype=np.int32)
        return TextFeatures(_joined(parts, tokenizer, example_index, targets), int(num_truncated.sum()))
    if not 1 <= stride <= room:
        raise UserError(
            f"the stride is {stride} tokens, expected 1 to {room}, which is what fits between [CLS] and [SEP]"
        )
    windows, example_index = _windows(tokens[0], room, stride)
    return TextFeatures(_joined([windows], tokenizer, example_index, targets), num_truncated=0)


def tagging_features(
    sentences: Sequence[Sequence[str]],
    label_ids: Sequence[Sequence[int]] | None,
    tokenizer: BertTokenizer,
    max_seq_length: int,
) -> TextFeatures:
    """The features of tagged sentences: all pieces of their words are fed, and the first piece of each is labelled.

    Too long a sentence loses its end; `values_of_words` tells what is left. A word of which the tokenizer leaves
    nothing, such as a control character, is fed as [UNK]: each word that fits has its label.

    Args:
        sentences: N lists of words.
        label_ids: the label of each word; None for prediction.
    Returns: with the token targets `label_ids`, 0 where there is none, and `label_weights`, 1 on the first piece of a
        word; without `label_ids` the weights alone.
    """
    flat_words = [word for sentence in sentences for word in sentence]
    words = _tokenize(flat_words, tokenizer, empty=tokenizer.vocabulary.unk_id)
    first_pieces = {"label_weights": np.ones(len(flat_words), np.float32)}
    if label_ids is not None:
        first_pieces["label_ids"] = np.array([label for labels in label_ids for label in labels], np.int32)

    piece_splits = _splits(words.length)[_splits([len(sentence) for sentence in sentences])]
    whole = _Tokens(words.ids, piece_splits[:-1], np.diff(piece_splits))
    kept = _cut(whole, max_seq_length - 2)
    features = _joined([kept], tokenizer, np.arange(len(sentences), dtype=np.int32), {})
    source, target = ranges(kept.start, kept.length), ranges(features.row_splits[:-1] + 1, kept.length)
    token_targets = {
        name: _put(target, _put(words.start, values, len(words.ids))[source], len(features.input_ids))
        for name, values in first_pieces.items()
    }
    num_truncated = int((kept.length < whole.length).sum())
    return TextFeatures(replace(features, token_targets=token_targets), num_truncated)


def values_of_words(features: Features, values: np.ndarray) -> list[np.ndarray]:
    """What a tagging model says of the words: one array a sentence, one value a word that fits.

    Args:
        features: of `tagging_features`.
        values: [N, S] by token, as a tagging model gives them in the order of the rows.
    """
    is_word = features.token_targets["label_weights"] > 0
    return [values[row, : features.lengths[row]][is_word[features.row(row)]] for row in range(features.num_rows)]


def _tokenize(texts: Sequence[str], tokenizer: BertTokenizer, empty: int | None = None) -> _Tokens:
    """The tokens of texts; with `empty`, this id for a text without a token."""
    ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for begin in range(0, len(texts), _TEXTS_PER_CALL):
        # A lone surrogate, which JSON can hold, has no UTF-8.
        batch = [text.encode("utf-8", "ignore") for text in texts[begin : begin + _TEXTS_PER_CALL]]
        tokens = tokenizer.tokenize(batch)
        ids.append(tokens.values.numpy())
        lengths.append(tokens.row_lengths().numpy())
    flat, length = np.concatenate(ids), np.concatenate(lengths)
    start = np.cumsum(length) - length
    if empty is not None:
        flat = np.insert(flat, start[length == 0], empty)
        length = np.maximum(length, 1)
        start = np.cumsum(length) - length
    return _Tokens(flat, start, length)


def _cut(tokens: _Tokens, room: int) -> _Tokens:
    return _Tokens(tokens.ids, tokens.start, np.minimum(tokens.length, room))


def _truncated_pairs(first: _Tokens, second: _Tokens, room: int) -> list[_Tokens]:
    """Both texts cut so that the longer one lost its end first; of an odd room the first text has one token more."""
    first_length = np.minimum(first.length, np.maximum(room - second.length, (room + 1) // 2))
    second_length = np.minimum(second.length, room - first_length)
    return [_Tokens(first.ids, first.start, first_length), _Tokens(second.ids, second.start, second_length)]


def _windows(tokens: _Tokens, room: int, stride: int) -> tuple[_Tokens, np.ndarray]:
    """The windows of texts, and the text of each."""
    too_many = np.maximum(tokens.length - room, 0)
    num_windows = 1 + -(-too_many // stride)
    text = np.repeat(np.arange(len(num_windows)), num_windows)
    number = ranges(np.zeros_like(num_windows), num_windows)  # 0, 1, ... within each text
    offset = np.minimum(number * stride, too_many[text])
    length = np.minimum(tokens.length[text] - offset, room)
    return _Tokens(tokens.ids, tokens.start[text] + offset, length), text.astype(np.int32)


def _joined(
    parts: Sequence[_Tokens], tokenizer: BertTokenizer, example_index: np.ndarray, targets: Mapping[str, np.ndarray]
) -> Features:
    """Rows of [CLS], and of each part its tokens and [SEP]; segment 0 up to the first [SEP], then 1."""
    lengths = 1 + sum(part.length + 1 for part in parts)
    row_splits = _splits(lengths)
    # What no token takes stays [SEP], but for the first place of each row.
    input_ids = np.full(row_splits[-1], tokenizer.vocabulary.sep_id, np.int32)
    segment_ids = np.zeros(row_splits[-1], np.int32)
    begin = row_splits[:-1]
    input_ids[begin] = tokenizer.vocabulary.cls_id
    begin = begin + 1
    for segment, part in enumerate(parts):
        input_ids[ranges(begin, part.length)] = part.ids[ranges(part.start, part.length)]
        segment_ids[ranges(begin, part.length + 1)] = segment
        begin = begin + part.length + 1
    row_targets = {name: np.asarray(values)[example_index] for name, values in targets.items()}
    return Features(input_ids, segment_ids, row_splits, example_index, row_targets)


def _splits(lengths: Sequence[int]) -> np.ndarray:
    """0 and the sums of the first lengths: [N + 1] int64."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _put(index: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    placed = np.zeros(size, values.dtype)
    placed[index] = values
    return placed
