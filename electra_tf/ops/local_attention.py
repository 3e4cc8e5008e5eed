"""Attention to near tokens, in blocks: time and memory grow with the length, not with its square."""

import tensorflow as tf

from electra_tf.ops.reference import AttentionOptions, ReferenceOps


def local_attention(
    ops: ReferenceOps,
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    key_mask: tf.Tensor,
    options: AttentionOptions,
) -> tf.Tensor:
    """`ReferenceOps.attention` with a window.

    Sequences of more than three windows are cut into blocks of a window's queries, which see the keys of their own
    block and of its two neighbours.

    Args: query, key, value: [B, A, S, D]; queries are scaled.        key_mask: [B, S] int32. Returns: [B, A, S, D].
    """
    window = options.window
    assert window is not None

    def dense() -> tf.Tensor:
        return ops.attention(query, key, value, key_mask, options)

    def in_blocks() -> tf.Tensor:
        shape = tf.shape(query)
        mask = _three_blocks(key_mask[:, tf.newaxis, :, tf.newaxis], window)  # [B, 1, N, 3 W, 1]
        masks = tf.tile(mask, [1, shape[1], 1, 1, 1])
        blocks = _in_blocks(_padded(query, window), window)  # [B, A, N, W, D]
        # All blocks of all heads side by side, so that the random bits of an example belong to that example.
        near_keys, near_values = _three_blocks(key, window), _three_blocks(value, window)
        queries, keys, values = (_side_by_side(each) for each in (blocks, near_keys, near_values))
        mixed = ops.attention(queries, keys, values, _side_by_side(masks)[..., 0], options)  # [B, A N, W, D]
        mixed = tf.reshape(mixed, [shape[0], shape[1], -1, shape[3]])
        return tf.ensure_shape(tf.slice(mixed, [0, 0, 0, 0], shape), query.shape)

    if (length := query.shape[2]) is not None:
        return in_blocks() if length > 3 * window else dense()
    if ops.whole_step:  # sizes inside a branch would be unknown to XLA
        return in_blocks()
    # Functions, because `tf.cond` alone does not find what a custom gradient keeps inside a branch.
    branches = (tf.function(branch, autograph=False) for branch in (in_blocks, dense))
    return tf.cond(tf.shape(query)[2] > 3 * window, *branches)


def _padded(values: tf.Tensor, window: int) -> tf.Tensor:
    """Zeros after [B, A, S, D], up to a multiple of the window."""
    missing = -(values.shape[2] or tf.shape(values)[2]) % window
    return tf.pad(values, [[0, 0], [0, 0], [0, missing], [0, 0]])


def _in_blocks(values: tf.Tensor, window: int) -> tf.Tensor:
    """[B, A, N W, D] -> [B, A, N, W, D]."""
    shape, length = tf.shape(values), values.shape[2]
    return tf.reshape(values, [shape[0], shape[1], length // window if length else -1, window, values.shape[3]])


def _three_blocks(values: tf.Tensor, window: int) -> tf.Tensor:
    """Each block between its neighbours, zeros at both ends: [B, A, S, D] -> [B, A, N, 3 W, D]."""
    padded = _padded(values, window)
    surrounded = tf.pad(padded, [[0, 0], [0, 0], [window, window], [0, 0]])
    # Not `surrounded[:, :, begin:end]`, whose gradient takes longer than all products.
    shifted = (tf.slice(surrounded, [0, 0, begin, 0], tf.shape(padded)) for begin in (0, window, 2 * window))
    return tf.concat([_in_blocks(tf.ensure_shape(each, padded.shape), window) for each in shifted], axis=3)


def _side_by_side(blocks: tf.Tensor) -> tf.Tensor:
    """[B, A, N, W, D] -> [B, A N, W, D]."""
    _, heads, number, width, size = blocks.shape
    count = heads * number if heads and number else -1
    return tf.reshape(blocks, [tf.shape(blocks)[0], count, width, size])
