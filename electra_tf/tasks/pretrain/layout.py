"""What follows from the layout of an example, [CLS] A [SEP] or [CLS] A [SEP] B [SEP], without a vocabulary at hand."""

import tensorflow as tf


def word_tokens(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """[B, S] bool: the real tokens but for [CLS] and [SEP]: those that masking may select.

    [CLS] is the first token, [SEP] the last of each segment.
    """
    real, segments = batch["input_mask"], batch["segment_ids"]
    next_real, next_segments = (tf.pad(rows[:, 1:], [[0, 0], [0, 1]]) for rows in (real, segments))
    ends = (next_real == 0) | (next_segments != segments)
    return (real > 0) & ~ends & (tf.range(real.shape[1]) > 0)
