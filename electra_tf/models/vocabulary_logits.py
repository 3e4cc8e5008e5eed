"""The generator's distribution over the vocabulary: losses, metrics and samples.

The logits of B * M masked positions are by far the largest tensor of a step, larger than all activations of a layer. A
softmax, a cross-entropy and a Gumbel sample would each make further tensors of that size. Here the product with the
word table is computed once; one operation reduces it to sums of exponentials, from which both the loss and the sample
follow, and one more turns it into its gradient.
"""

import functools

import tensorflow as tf

from electra_tf.models.layers import ForwardContext
from electra_tf.ops.reference import COLUMNS, NEG_INF, REFERENCE, ReferenceOps, chosen_logits
from electra_tf.ops.vocabulary import TokenLosses, inverse_cdf_sample, token_losses


class VocabularyLogits:
    """Logits of every vocabulary entry for each vector, with losses, metrics and samples from them.

    Args:
        vectors: [B, M, E] float32 or bfloat16.        table: [V, E] float32.        bias: [V] float32.
        ops: the implementation of the product, losses and samples.
    """

    def __init__(self, vectors: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, ops: ReferenceOps = REFERENCE):
        self._vectors, self._table, self._bias = vectors, table, bias
        self._ops = ops

    @functools.cached_property
    def logits(self) -> tf.Tensor:
        """[B, M, V] float32. Large: training uses `losses` and `sample` instead."""
        logits = self._products[:, : self._table.shape[0]] + self._bias  # evaluation needs the products for losses too
        num_vectors = self._vectors.shape[1] or tf.shape(self._vectors)[1]
        return tf.reshape(logits, [-1, num_vectors, self._table.shape[0]])

    def losses(self, token_ids: tf.Tensor) -> tf.Tensor:
        """-log p(token) in nats: [B, M] int32 -> [B, M] float32."""
        flat = tf.reshape(token_ids, [-1])
        losses = self._ops.cross_entropy(self._products, self._padded_bias, flat, self._sums)
        return tf.reshape(losses, tf.shape(token_ids))

    def token_losses(self, token_ids: tf.Tensor, other_ids: tf.Tensor) -> TokenLosses:
        """-log p of two tokens and of the most likely one, with never more than 256 MiB of logits at once.

        For losses at all positions of a sequence, see `electra_tf.ops.vocabulary`. The ids are [B, M] int32.
        """
        table = tf.pad(self._table, [[0, self._num_missing], [0, 0]])
        vectors = tf.cast(self._vectors, tf.float32)
        return token_losses(self._ops, vectors, table, self._padded_bias, token_ids, other_ids)

    def is_top1(self, token_ids: tf.Tensor) -> tf.Tensor:
        """1.0 where no token has a larger logit than the given one: [B, M] int32 -> [B, M] float32.

        Computed from the sums that losses and samples need anyway; an argmax is one more pass over the logits.
        """
        flat, (largest, _) = tf.reshape(token_ids, [-1]), self._sums
        chosen = chosen_logits(*self._constants, flat)
        return tf.reshape(tf.cast(chosen >= largest[:, 0], tf.float32), tf.shape(token_ids))

    def entropies(self) -> tf.Tensor:
        """The entropy of each vector's distribution over the vocabulary, in nats: [B, M] float32, without gradient."""
        entropies = self._ops.entropies(*self._constants, *self._sums)
        return tf.reshape(entropies, tf.shape(self._vectors)[:2])

    def sample(
        self, context: ForwardContext, *, temperature: float | tf.Tensor = 1.0, forbidden_ids: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Draws a token for each vector from softmax(logits / temperature). No gradient flows through the draw.

        Draws the column and then the entry in it, each by inverting its cumulative distribution.

        Args:
            temperature: a number or a scalar float32.
            forbidden_ids: [B, M] int32, tokens that must not be drawn; None for none.
        Returns: [B, M] int32.
        """
        uniform = sampling_uniform(context, tf.shape(self._vectors)[0], self._vectors.shape[1])
        forbidden = None if forbidden_ids is None else tf.reshape(forbidden_ids, [-1])
        if forbidden is None and not tf.is_tensor(temperature) and temperature == 1.0:
            sums = self._sums
        else:
            sums = self._ops.max_and_sumexp(*self._constants, forbidden, temperature)
        largest, column_totals = sums
        column = inverse_cdf_sample(column_totals, uniform[:, :1])
        masses = self._ops.column_masses(*self._constants, forbidden, largest, column, temperature)
        sampled = inverse_cdf_sample(masses, uniform[:, 1:]) * COLUMNS + column
        return tf.reshape(sampled, tf.shape(self._vectors)[:2])

    def sample_distinct(
        self, context: ForwardContext, num_samples: int, forbidden_ids: tf.Tensor, temperature: float | tf.Tensor
    ) -> tf.Tensor:
        """Draws different tokens for each vector, one after the other, each as `sample` from those that are left.

        It draws as the largest logits plus Gumbel noise do (Kool et al. 2019), without V random numbers a vector. Where
        the tokens that are left have no probability in float32, e^-87 of the first draw's, it returns token 0.

        Args: as for `sample`.
        Returns: [B, M, num_samples] int32.
        """
        num_examples, num_slots = tf.shape(self._vectors)[0], self._vectors.shape[1]
        drawn = [tf.reshape(forbidden_ids, [-1])]
        largest, totals = self._ops.max_and_sumexp(*self._constants, drawn[0], temperature)
        for index in range(num_samples):
            uniform = sampling_uniform(context.fold_in(str(index)), num_examples, num_slots)
            column = inverse_cdf_sample(totals, uniform[:, :1])
            masses = self._ops.column_masses(*self._constants, None, largest, column, temperature)
            ids = tf.range(masses.shape[1]) * COLUMNS + column[:, tf.newaxis]  # [N, V' / 128]
            for token in drawn:
                masses = tf.where(ids == token[:, tf.newaxis], 0.0, masses)
            drawn.append(inverse_cdf_sample(masses, uniform[:, 1:]) * COLUMNS + column)
            # A sum without the token: subtracting its mass would leave rounding errors if it dominates.
            left = tf.reduce_sum(tf.where(ids == drawn[-1][:, tf.newaxis], 0.0, masses), axis=1, keepdims=True)
            totals = tf.where(tf.range(COLUMNS) == column[:, tf.newaxis], left, totals)
        return tf.reshape(tf.stack(drawn[1:], axis=-1), [num_examples, num_slots, num_samples])

    @functools.cached_property
    def _products(self) -> tf.Tensor:
        """[B*M, V'] float32: the logits without the bias; V' is V rounded up to whole rows."""
        flat = tf.reshape(self._vectors, [-1, self._vectors.shape[-1]])
        return self._ops.vocabulary_product(flat, tf.pad(self._table, [[0, self._num_missing], [0, 0]]))

    @functools.cached_property
    def _padded_bias(self) -> tf.Tensor:
        return tf.pad(self._bias, [[0, self._num_missing]], constant_values=NEG_INF)

    @property
    def _constants(self) -> tuple[tf.Tensor, tf.Tensor]:
        """`_products` and `_padded_bias` without gradient."""
        return tf.stop_gradient(self._products), tf.stop_gradient(self._padded_bias)

    @functools.cached_property
    def _sums(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self._ops.max_and_sumexp(*self._constants, None)

    @property
    def _num_missing(self) -> int:
        return -self._table.shape[0] % COLUMNS


def sampling_uniform(context: ForwardContext, num_examples: tf.Tensor, num_slots: int) -> tf.Tensor:
    """[N, 2] float32 in [0, 1), N = B * M: one number to draw the column and one to draw the entry in it."""
    uniform = context.stream("categorical").uniform(num_examples, (num_slots, 2))
    return tf.reshape(uniform, [-1, 2])


def most_likely(logits: tf.Tensor, forbidden_ids: tf.Tensor | None = None) -> tf.Tensor:
    """The most likely token that is not forbidden, in place of a sample: [B, M, V] -> [B, M] int32; no gradient."""
    logits = tf.stop_gradient(logits)
    if forbidden_ids is not None:
        logits = tf.where(tf.range(logits.shape[-1]) == forbidden_ids[..., tf.newaxis], NEG_INF, logits)
    return tf.argmax(logits, axis=-1, output_type=tf.int32)
