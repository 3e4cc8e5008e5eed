"""Positions in text: bytes to characters."""

import tensorflow as tf


def bytes_to_characters(texts: tf.Tensor, byte_offsets: tf.RaggedTensor) -> tf.RaggedTensor:
    """Turns offsets [N, (offsets)] int64 in texts [N] from bytes, not within a character, into characters."""
    content = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    begins = tf.cast(tf.bitwise.bitwise_and(content, 0xC0) != 0x80, tf.int64)  # 0 for bytes that continue a character
    num_before = tf.concat([[0], tf.cumsum(begins)], axis=0)
    first_byte = tf.cumsum(tf.strings.length(texts, unit="BYTE"), exclusive=True)
    first_byte = tf.gather(tf.cast(first_byte, tf.int64), byte_offsets.value_rowids())
    return byte_offsets.with_values(
        tf.gather(num_before, first_byte + byte_offsets.values) - tf.gather(num_before, first_byte)
    )
