"""A distribution over the vocabulary that is the same at every position, with the interface of `VocabularyLogits`.

Losses are look-ups and samples come from the table's cumulative sums, so that training never needs the logits of all
positions.
"""

import tensorflow as tf

from electra_tf.models.layers import ForwardContext
from electra_tf.models.vocabulary_logits import sampling_uniform
from electra_tf.ops.reference import COLUMNS, NEG_INF
from electra_tf.ops.vocabulary import inverse_cdf_sample


class ContextFreeLogits:
    """Probabilities proportional to `counts` at each of B * M positions, without gradient.

    Args: counts: [V] float32, 0 for tokens that are never drawn, not for all.        positions: [B, M], for the shape.
    """

    def __init__(self, counts: tf.Tensor, positions: tf.Tensor):
        self._counts = tf.stop_gradient(tf.convert_to_tensor(counts))
        self._num_examples, self._num_slots = tf.shape(positions)[0], positions.shape[1]

    @property
    def logits(self) -> tf.Tensor:
        """[B, M, V] float32, the logarithms of the counts. Large: training uses `losses` and `sample` instead."""
        logits = tf.where(self._counts > 0, tf.math.log(self._counts), NEG_INF)
        return tf.broadcast_to(logits, [self._num_examples, self._num_slots, logits.shape[0]])

    def losses(self, token_ids: tf.Tensor) -> tf.Tensor:
        """-log p(token) in nats: [B, M] int32 -> [B, M] float32.

        A count of 0 is taken as 1: other text may contain tokens that the counted text does not, and the loss must
        stay finite.
        """
        counts = tf.gather(tf.maximum(self._counts, 1.0), token_ids)
        return tf.math.log(tf.reduce_sum(self._counts)) - tf.math.log(counts)

    def is_top1(self, token_ids: tf.Tensor) -> tf.Tensor:
        """1.0 where the given token is the most likely one, of several the first: [B, M] int32 -> [B, M] float32."""
        return tf.cast(token_ids == tf.argmax(self._counts, output_type=tf.int32), tf.float32)

    def entropies(self) -> tf.Tensor:
        """The entropy of the distribution, in nats, for each position: [B, M] float32."""
        shares = self._counts / tf.reduce_sum(self._counts)
        entropy = -tf.reduce_sum(tf.math.xlogy(shares, shares))
        return tf.fill([self._num_examples, self._num_slots], entropy)

    def sample(
        self, context: ForwardContext, *, temperature: float = 1.0, forbidden_ids: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Draws a token for each position, with probabilities proportional to counts ** (1 / temperature).

        Draws the column and then the entry in it, as `VocabularyLogits` does: a single float32 cumulative sum over a
        large vocabulary would lose the rarest tokens.

        Args: forbidden_ids: [B, M] int32, tokens that must not be drawn; None for none.
        Returns: [B, M] int32.
        """
        shares = self._counts / tf.reduce_max(self._counts)
        masses = tf.where(shares > 0, shares ** (1.0 / temperature), 0.0)
        padded = tf.pad(masses, [[0, -masses.shape[0] % COLUMNS]])
        columns = tf.transpose(tf.reshape(padded, [-1, COLUMNS]))  # [128, V / 128]: token t is in column t % 128
        uniform = sampling_uniform(context, self._num_examples, self._num_slots)  # [N, 2], N = B * M
        totals = tf.broadcast_to(tf.reduce_sum(columns, axis=1), [tf.shape(uniform)[0], COLUMNS])
        if forbidden_ids is not None:
            forbidden = tf.reshape(forbidden_ids, [-1, 1])
            is_forbidden = tf.range(columns.shape[1]) == forbidden // COLUMNS  # [N, V / 128], in the token's column
            allowed = tf.where(is_forbidden, 0.0, tf.gather(columns, forbidden[:, 0] % COLUMNS))
            # A sum without the token. Subtracting it from the whole sum would leave rounding errors if it dominates.
            left = tf.reduce_sum(allowed, axis=1, keepdims=True)
            totals = tf.where(tf.range(COLUMNS) == forbidden % COLUMNS, left, totals)
        column = inverse_cdf_sample(totals, uniform[:, :1])  # [N]
        masses = tf.gather(columns, column)  # [N, V / 128]
        if forbidden_ids is not None:
            masses = tf.where(column[:, tf.newaxis] == forbidden % COLUMNS, allowed, masses)
        sampled = inverse_cdf_sample(masses, uniform[:, 1:]) * COLUMNS + column
        return tf.reshape(sampled, [self._num_examples, self._num_slots])
