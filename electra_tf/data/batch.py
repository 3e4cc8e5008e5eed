"""The one schema of a pre-training batch."""

import tensorflow as tf


def empty_batch(max_seq_length: int) -> dict[str, tf.Tensor]:
    """A batch of one example without words and with one masked position, to create variables with."""
    zeros = tf.zeros([1, max_seq_length], tf.int32)
    batch = {name: zeros for name in ("input_ids", "segment_ids", "masked_input_ids")}
    batch["input_mask"] = tf.ones([1, max_seq_length], tf.int32)
    batch["masked_lm_positions"] = batch["masked_lm_ids"] = tf.zeros([1, 1], tf.int32)
    batch["masked_lm_weights"] = tf.ones([1, 1], tf.float32)
    return batch
