"""Texts and pairs of texts as model input: [CLS] a [SEP], or [CLS] a [SEP] b [SEP]."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.data.bucketing import Features
from electra_tf.tasks.finetune.kind import EncodedExamples
from electra_tf.text.packing import cut, cut_pair, cut_texts, join, max_bytes, windows
from electra_tf.text.tokenizer import Tokenizer

_TEXTS_PER_CALL = 16_384  # makes the overhead of calling TensorFlow's operations small


def text_features(
    texts: Sequence[list[str]],
    targets: Mapping[str, npt.NDArray[Any]],
    tokenizer: Tokenizer,
    max_seq_length: int,
    stride: int | None,
    texts_per_example: int = 1,
) -> EncodedExamples:
    """Returns the features of texts or of pairs of texts.

    A text that is too long loses its end. In a pair that is too long, the longer text (the second one of two equally
    long ones) loses its last token until the pair fits. With a stride, a long text has several rows instead: windows of
    as many tokens as fit. The last window ends with the text. A text is read up to `max_bytes`.

    Args:
        texts, targets: one or two lists of N texts, and the targets of the examples, by name: [N, ...].
        max_seq_length: tokens of the longest row, special ones included; at least 3, of pairs 5.
        stride: tokens between the starts of two windows of a text; None to truncate, as for all pairs.
        texts_per_example: how many of the N, one after another, count as one example that was truncated: 1 or 2.
    Raises: UserError: the stride is longer than a window; see also `Tokenizer.segment`.
    Source: google-research/electra, finetune/classification (truncation of pairs); windows are ours.
    """
    room = max_seq_length - 1 - len(texts)  # beside [CLS] and one [SEP] a text
    assert room >= len(texts), f"max_seq_length {max_seq_length} is too small"
    rows, num_truncated, longest = [], 0, max_bytes(max_seq_length, is_windowed=stride is not None)
    for begin, end in batches(len(texts[0])):
        cut_words = [tokenizer.segment(column[begin:end]) for column in texts]
        columns = [cut_texts(tf.constant(column, tf.string), longest) for column in cut_words]
        tokens = [tokenizer.tokenize(column) for column, _ in columns]
        is_cut = [lost for _, lost in columns]
        example = tf.range(end - begin, dtype=tf.int64)
        if stride is None:
            parts = cut_pair(tokens[0], tokens[1], room) if len(tokens) == 2 else [cut(tokens[0], room)]
            is_cut += (part.row_lengths() < whole.row_lengths() for part, whole in zip(parts, tokens, strict=True))
        else:
            is_cut.append(tokens[0].row_lengths() > longest)
            part, example = windows(cut(tokens[0], longest), room, stride)
            parts = [part]
        num_truncated += np.count_nonzero(np.reshape(np.any(is_cut, axis=0), [-1, texts_per_example]).any(axis=1))
        rows.append((*join(parts, tokenizer.vocabulary), begin + example))
    features = joined_features(rows)
    row_targets = {name: np.asarray(values)[features.example_index] for name, values in targets.items()}
    return EncodedExamples(replace(features, row_targets=row_targets), num_truncated)


def joined_features(rows: Sequence[tuple[tf.RaggedTensor, tf.RaggedTensor, tf.Tensor]]) -> Features:
    """Joins batches of rows: ids and segments [R, (tokens)], and the example of each row [R]."""
    input_ids, segment_ids = (np.concatenate([batch[part].values.numpy() for batch in rows]) for part in (0, 1))
    row_splits = np.cumsum(np.concatenate([[0], *(ids.row_lengths().numpy() for ids, _, _ in rows)]))
    example_index = np.concatenate([np.asarray(index) for _, _, index in rows]).astype(np.int32)
    return Features(input_ids, segment_ids, row_splits.astype(np.int64), example_index)


def with_choices(
    features: Features, num_choices: Sequence[int] | npt.NDArray[np.int64], targets: Mapping[str, npt.NDArray[Any]]
) -> Features:
    """Joins sequences to rows of several, see `Features`. Args: num_choices: [N], the sequences of each row."""
    sequences, index = features.row_splits, np.arange(len(num_choices), dtype=np.int32)
    splits = sequences[np.cumsum([0, *num_choices])]
    return replace(features, row_splits=splits, choice_splits=sequences, example_index=index, row_targets=targets)


def batches(num_examples: int) -> Iterator[tuple[int, int]]:
    """Yields the begin and the end (exclusive) of each batch of examples; without examples, one empty batch."""
    for begin in range(0, max(num_examples, 1), _TEXTS_PER_CALL):
        yield begin, min(begin + _TEXTS_PER_CALL, num_examples)
