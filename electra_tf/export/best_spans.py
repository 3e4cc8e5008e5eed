"""The n-best list of each question, of spans of its context with their scores, inside the served graph."""

import tensorflow as tf

# An odd factor: that of Knuth's MMIX generator. Powers of it modulo 2 ** 64 make the keys of texts.
_FACTOR = 6364136223846793005


def best_spans(
    context: tf.Tensor, score: tf.Tensor, start: tf.Tensor, end: tf.Tensor, n_best_size: int
) -> dict[str, tf.Tensor]:
    """The best spans of each context, the best first, with distinct texts: of those with one text the best counts.

    Args:
        context: [N] string, UTF-8; each invalid byte counts as a character.
        score: [N, M] float32, -inf for what is no span; of equal ones the first counts.
        start, end: [N, M] int64, characters of the context; the end is exclusive.
    Returns: with K, `n_best_size`: `nbest_text` [N, K] string, `nbest_start`, `nbest_end` [N, K] int32, `nbest_score`
        [N, K] float32, `nbest_probability` [N, K] float32, the softmax of the scores, and `num_answers` [N] int32, how
        many there are. Beyond these a score is the lowest number there is.
    """
    characters = tf.strings.unicode_decode(context, "UTF-8")
    num_candidates = tf.shape(score)[1]
    score, order = tf.math.top_k(score, num_candidates)
    start, end = (tf.gather(values, order, batch_dims=1) for values in (start, end))
    listed = tf.math.is_finite(score) & _is_first(_keys(characters, start, end))
    listed &= tf.cumsum(tf.cast(listed, tf.int32), axis=1) <= n_best_size
    num_answers = tf.reduce_sum(tf.cast(listed, tf.int32), axis=1)
    real = tf.sequence_mask(num_answers, n_best_size)  # [N, K]
    columns = tf.RaggedTensor.from_row_lengths(tf.where(listed)[:, 1], num_answers, validate=False)
    columns = columns.to_tensor(shape=[None, n_best_size])
    # One column more, so that there is one to gather where there is no candidate at all.
    start, end, score = (
        tf.where(real, tf.gather(tf.pad(values, [[0, 0], [0, 1]]), columns, batch_dims=1), nothing)
        for values, nothing in ((start, 0), (end, 0), (score, score.dtype.min))  # JSON has no infinity
    )
    weights = tf.where(real, tf.exp(tf.cast(score - score[:, :1], tf.float64)), 0.0)
    total = tf.reduce_sum(weights, axis=1, keepdims=True)
    return {
        "nbest_text": _texts(characters, start, end),
        "nbest_start": tf.cast(start, tf.int32),
        "nbest_end": tf.cast(end, tf.int32),
        "nbest_score": score,
        "nbest_probability": tf.cast(tf.math.divide_no_nan(weights, total), tf.float32),
        "num_answers": num_answers,
    }


def _keys(characters: tf.RaggedTensor, start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """[N, M, 3] int64: the same for the same text in the same row. Two texts of one length share a key by accident.

    The texts themselves could be compared, but each of the many spans may be as long as the context: too many bytes.
    With characters c, a key is the sum of c_i x^i over the span, times a power of x that takes out where it begins;
    overflow is the modulus.
    """
    num_characters = tf.size(characters.values)
    powers = tf.math.cumprod(tf.fill([num_characters + 1], tf.constant(_FACTOR, tf.int64)), exclusive=True)
    weighted = (tf.cast(characters.values, tf.int64) + 1) * powers[:-1]
    sums = tf.concat([[tf.constant(0, tf.int64)], tf.cumsum(weighted)], axis=0)
    offset = characters.row_starts()[:, tf.newaxis]
    first, after = start + offset, end + offset
    key = (tf.gather(sums, after) - tf.gather(sums, first)) * tf.gather(
        powers, tf.cast(num_characters, tf.int64) - first
    )
    row = tf.range(tf.shape(start, tf.int64)[0])[:, tf.newaxis] + tf.zeros_like(start)
    return tf.stack([row, end - start, key], axis=2)


def _is_first(keys: tf.Tensor) -> tf.Tensor:
    """[N, M] bool: whether a key [N, M, 3] has not stood before."""
    shape = tf.shape(keys)
    place = tf.range(shape[0] * shape[1])
    _, number = tf.raw_ops.UniqueV2(x=tf.reshape(keys, [shape[0] * shape[1], 3]), axis=[0])
    first = tf.math.unsorted_segment_min(place, number, tf.size(place))
    return tf.reshape(tf.gather(first, number) == place, shape[:2])


def _texts(characters: tf.RaggedTensor, start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """[N, K] string: the characters of each span."""
    offset = characters.row_starts()[:, tf.newaxis]
    each = tf.ragged.range(tf.reshape(start + offset, [-1]), tf.reshape(end + offset, [-1]))
    texts = tf.strings.unicode_encode(each.with_values(tf.gather(characters.values, each.values)), "UTF-8")
    return tf.reshape(texts, tf.shape(start))
