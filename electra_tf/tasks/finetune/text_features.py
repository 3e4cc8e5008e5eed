"""Texts, pairs of texts, choices and tagged words as model input: [CLS] a [SEP], or [CLS] a [SEP] b [SEP]."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.bucketing import Features
from electra_tf.tasks.finetune.choices import ChoiceExamples
from electra_tf.text.packing import cut, cut_contexts, cut_pair, cut_texts, join, join_words, max_bytes, windows
from electra_tf.text.tokenizer import Tokenizer

_MAX_BYTES_PER_CHARACTER = 4  # UTF-8
_TEXTS_PER_CALL = 16_384  # makes the overhead of calling TensorFlow's operations small


@dataclass(frozen=True)
class TextFeatures:
    """Features, and the number of examples that lost tokens because they were too long."""

    features: Features
    num_truncated: int


def text_features(
    texts: Sequence[list[str]],
    targets: Mapping[str, np.ndarray],
    tokenizer: Tokenizer,
    max_seq_length: int,
    stride: int | None,
) -> TextFeatures:
    """Returns the features of texts or of pairs of texts.

    A text that is too long loses its end. In a pair that is too long, the longer text (the second one of two equally
    long ones) loses its last token until the pair fits. With a stride, a long text has several rows instead: windows of
    as many tokens as fit. The last window ends with the text. A text is read up to `max_bytes`.

    Args:
        texts: one or two lists of N texts.
        targets: the targets of the examples, by name: [N, ...].
        max_seq_length: tokens of the longest row, special ones included; at least 3, of pairs 5.
        stride: tokens between the starts of two windows of a text; None to truncate, as for all pairs.
    Raises: UserError: the stride is longer than a window.
    Source: google-research/electra, finetune/classification (truncation of pairs); windows are ours.
    """
    room = max_seq_length - 1 - len(texts)  # beside [CLS] and one [SEP] a text
    assert room >= len(texts), f"max_seq_length {max_seq_length} is too small"
    if stride is not None and not 1 <= stride <= room:
        raise UserError(f"stride is {stride}, expected 1 to {room}, the number of tokens between [CLS] and [SEP]")
    rows, num_truncated, longest = [], 0, max_bytes(max_seq_length, is_windowed=stride is not None)
    for begin, end in batches(len(texts[0])):
        columns = [cut_texts(tf.constant(column[begin:end], tf.string), longest) for column in texts]
        tokens = [tokenizer.tokenize(column) for column, _ in columns]
        is_cut = [lost for _, lost in columns]
        example = tf.range(end - begin, dtype=tf.int64)
        if stride is None:
            parts = cut_pair(*tokens, room) if len(tokens) == 2 else [cut(tokens[0], room)]
            is_cut += (part.row_lengths() < whole.row_lengths() for part, whole in zip(parts, tokens, strict=True))
        else:
            is_cut.append(tokens[0].row_lengths() > longest)
            part, example = windows(cut(tokens[0], longest), room, stride)
            parts = [part]
        num_truncated += np.count_nonzero(np.any(is_cut, axis=0))
        rows.append((*join(parts, tokenizer.vocabulary), begin + example))
    features = joined_features(rows)
    row_targets = {name: np.asarray(values)[features.example_index] for name, values in targets.items()}
    return TextFeatures(replace(features, row_targets=row_targets), num_truncated)


def choice_features(
    examples: ChoiceExamples, targets: Mapping[str, np.ndarray], tokenizer: Tokenizer, max_seq_length: int
) -> TextFeatures:
    """Returns the features of multiple choice: a sequence [CLS] context [SEP] choice [SEP] for each choice.

    Of a sequence that is too long, the context loses its end. A context is read up to `max_bytes`.

    Args:
        targets: the targets of the examples, by name: [N, ...].
        max_seq_length: tokens of the longest sequence, special ones included.
    Raises: UserError: a choice does not fit without its context.
    """
    room, longest = max_seq_length - 3, max_bytes(max_seq_length)
    num_choices = np.array([len(texts) for texts in examples.choices])
    rows, num_truncated = [], 0
    for begin, end in batches(len(examples)):
        contexts, is_cut = cut_texts(tf.constant(examples.contexts[begin:end], tf.string), longest)
        choices = [text for texts in examples.choices[begin:end] for text in texts]
        choices, lost = cut_texts(tf.constant(choices, tf.string), longest)
        contexts, choices = tokenizer.tokenize(contexts), tokenizer.tokenize(choices)
        context_of = np.repeat(np.arange(end - begin), num_choices[begin:end])
        lost |= choices.row_lengths() > room
        if np.any(lost):
            where = examples.where(begin + context_of[np.argmax(lost)])
            raise UserError(
                f"{where}: a choice has more than {room} tokens, all that data.max_seq_length {max_seq_length} leaves "
                "beside an empty context; increase it or shorten the choice"
            )
        parts = cut_contexts(contexts, choices, context_of, room)
        is_cut |= tf.math.segment_min(parts[0].row_lengths(), context_of) < contexts.row_lengths()
        num_truncated += np.count_nonzero(is_cut)
        rows.append((*join(parts, tokenizer.vocabulary), begin + context_of))
    features = joined_features(rows)
    splits = features.row_splits[np.cumsum([0, *num_choices])]
    numbers = np.arange(len(examples), dtype=np.int32)
    changes = {"row_splits": splits, "choice_splits": features.row_splits, "example_index": numbers}
    return TextFeatures(replace(features, **changes, row_targets=targets), num_truncated)


def tagging_features(
    sentences: Sequence[Sequence[str]],
    label_ids: Sequence[Sequence[int]] | None,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> TextFeatures:
    """Returns the features of tagged sentences: the label of a word belongs to its first piece.

    A sentence that is too long loses its end; `values_of_words` gives one value for each word that is left. A word
    without a piece, such as a control character, becomes [UNK], so that its label has a position. The words with spaces
    between them are read up to `max_bytes`.

    Args:
        sentences: N lists of words.
        label_ids: the label of each word; None for prediction.
    Returns: features with the token targets `label_ids`, 0 elsewhere, and `label_weights`, 1 on the first
        piece of a word; without `label_ids` the weights alone.
    """
    room = max_seq_length - 2
    rows, first_pieces, num_truncated = [], [np.zeros(0, np.int64)], 0
    read = [_read_words(sentence, max_bytes(max_seq_length)) for sentence in sentences]
    is_cut = np.array([part is not whole for part, whole in zip(read, sentences, strict=True)], bool)
    num_words = np.array([len(sentence) for sentence in read], np.int64)
    for begin, end in batches(len(sentences)):
        pieces = tokenizer.tokenize(tf.constant([word for each in read[begin:end] for word in each], tf.string))
        sentence = np.repeat(np.arange(end - begin), num_words[begin:end])
        tokens, first_piece = join_words(pieces, sentence, end - begin, tokenizer.vocabulary.unk_id)
        rows.append((*join([cut(tokens, room)], tokenizer.vocabulary), tf.range(begin, end)))
        first_pieces.append(first_piece.numpy())
        num_truncated += np.count_nonzero(is_cut[begin:end] | (tokens.row_lengths() > room))
    features = joined_features(rows)

    first_piece = np.concatenate(first_pieces)
    fits = first_piece < room
    position = (np.repeat(features.row_splits[:-1], num_words) + 1 + first_piece)[fits]
    values = {"label_weights": np.ones(len(fits), np.float32)}
    if label_ids is not None:
        labels_of_read = (labels[: len(words)] for labels, words in zip(label_ids, read, strict=True))
        values["label_ids"] = np.array([label for labels in labels_of_read for label in labels], np.int32)
    token_targets = {name: np.zeros(len(features.input_ids), of_words.dtype) for name, of_words in values.items()}
    for name, of_words in values.items():
        token_targets[name][position] = of_words[fits]
    return TextFeatures(replace(features, token_targets=token_targets), num_truncated)


def _read_words(words: Sequence[str], longest: int) -> Sequence[str]:
    """The words that the first `longest` bytes of their text contain, the last one cut; `words` itself if all are."""
    if sum(len(word) + 1 for word in words) * _MAX_BYTES_PER_CHARACTER <= longest:  # saves a call for each sentence
        return words
    (text,), (is_cut,) = cut_texts(tf.constant([" ".join(words)]), longest)
    if not is_cut:
        return words
    text, read, first = text.numpy().decode(), [], 0
    for word in words:
        if first >= len(text):
            break
        read.append(text[first : first + len(word)])
        first += len(word) + 1
    return read


def values_of_words(features: Features, values: np.ndarray) -> list[np.ndarray]:
    """Selects the values of the first pieces of words. Truncated words have none.

    Args:
        features: the result of `tagging_features`.
        values: [N, S], a value for each token of each row.
    Returns: N arrays, the values of the words of each sentence.
    """
    is_word = features.token_targets["label_weights"] > 0
    return [values[row, : features.lengths[row]][is_word[features.row(row)]] for row in range(features.num_rows)]


def joined_features(rows: Sequence[tuple[tf.RaggedTensor, tf.RaggedTensor, tf.Tensor]]) -> Features:
    """Joins batches of rows: ids and segments [R, (tokens)], and the example of each row [R]."""
    input_ids, segment_ids = (np.concatenate([batch[part].values.numpy() for batch in rows]) for part in (0, 1))
    row_splits = np.cumsum(np.concatenate([[0], *(ids.row_lengths().numpy() for ids, _, _ in rows)]))
    example_index = np.concatenate([np.asarray(index) for _, _, index in rows]).astype(np.int32)
    return Features(input_ids, segment_ids, row_splits.astype(np.int64), example_index)


def batches(num_examples: int) -> Iterator[tuple[int, int]]:
    """Yields the begin and the end (exclusive) of each batch of examples; without examples, one empty batch."""
    for begin in range(0, max(num_examples, 1), _TEXTS_PER_CALL):
        yield begin, min(begin + _TEXTS_PER_CALL, num_examples)
