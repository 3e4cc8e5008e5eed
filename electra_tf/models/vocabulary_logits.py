"""The generator's distribution over the vocabulary: losses and samples from logits that exist once.

For B * M masked positions the logits are by far the largest tensor of a step, larger than all activations of a layer. A
softmax, a cross-entropy and a Gumbel sample each make further tensors of that size. Here the product with the word
table is made once; one operation reduces it to sums of exponentials, from which both the loss and the sample follow,
and one more turns it into its gradient.
"""

import functools

import tensorflow as tf

from electra_tf.models.context import ForwardContext
from electra_tf.ops.reference import COLUMNS, NEVER, REFERENCE, ReferenceOps, chosen_logits
from electra_tf.ops.vocabulary import TokenLosses, inverse_cdf_sample, token_losses


class VocabularyLogits:
    """Logits of every vocabulary entry for each of a set of vectors, and what follows from them.

    Args:
        vectors: [B, M, E] float32.        table: [V, E] float32.        bias: [V] float32.
        ops: the implementation of losses and samples.
    """

    def __init__(self, vectors: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, ops: ReferenceOps = REFERENCE):
        self._vectors, self._table, self._bias = vectors, table, bias
        self._ops = ops

    @functools.cached_property
    def logits(self) -> tf.Tensor:
        """[B, M, V] float32. A large tensor of its own: in training, take losses and samples instead."""
        flat = tf.reshape(self._vectors, [-1, self._vectors.shape[-1]])  # [B*M, E]
        logits = tf.matmul(flat, self._table, transpose_b=True) + self._bias
        num_vectors = self._vectors.shape[1] or tf.shape(self._vectors)[1]
        return tf.reshape(logits, [-1, num_vectors, self._table.shape[0]])

    def losses(self, token_ids: tf.Tensor) -> tf.Tensor:
        """-log p(token) in nats: [B, M] int32 -> [B, M] float32."""
        flat = tf.reshape(token_ids, [-1])
        losses = self._ops.cross_entropy(self._products, self._padded_bias, flat, self._sums)
        return tf.reshape(losses, tf.shape(token_ids))

    def token_losses(self, token_ids: tf.Tensor, other_ids: tf.Tensor) -> TokenLosses:
        """-log p of two tokens and of the most likely one, with never more than 256 MiB of logits at once.

        For all positions of a sequence, see `electra_tf.ops.vocabulary`.

        Args:
            token_ids, other_ids: [B, M] int32.
        """
        table = tf.pad(self._table, [[0, self._num_missing], [0, 0]])
        return token_losses(self._ops, self._vectors, table, self._padded_bias, token_ids, other_ids)

    def is_top1(self, token_ids: tf.Tensor) -> tf.Tensor:
        """1.0 where no token has a larger logit than the given one: [B, M] int32 -> [B, M] float32.

        It follows from the sums that losses and samples need anyway; an argmax is one more pass over the logits.
        """
        flat, (largest, _) = tf.reshape(token_ids, [-1]), self._sums
        chosen = chosen_logits(*self._constants, flat)
        return tf.reshape(tf.cast(chosen >= largest[:, 0], tf.float32), tf.shape(token_ids))

    def entropies(self) -> tf.Tensor:
        """The entropy of each vector's distribution over the vocabulary, in nats: [B, M] float32, without gradient."""
        entropies = self._ops.entropies(*self._constants, *self._sums)
        return tf.reshape(entropies, tf.shape(self._vectors)[:2])

    def sample(
        self, context: ForwardContext, *, temperature: float = 1.0, forbidden_ids: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Draws a token for each vector from softmax(logits / temperature). No gradient flows through the draw.

        First the column, then the entry in it, each by inverting its cumulative distribution.

        Args:
            context: its random stream gives the two numbers, in float32.
            forbidden_ids: [B, M] int32, tokens that are not to be drawn; None for none.
        Returns: [B, M] int32.
        """
        uniform = sampling_uniform(context, tf.shape(self._vectors)[0], self._vectors.shape[1])
        forbidden = None if forbidden_ids is None else tf.reshape(forbidden_ids, [-1])
        if temperature == 1.0 and forbidden is None:
            sums = self._sums
        else:
            sums = self._ops.exponential_sums(*self._constants, forbidden, temperature)
        largest, column_totals = sums
        column = inverse_cdf_sample(column_totals, uniform[:, :1])
        masses = self._ops.column_masses(*self._constants, forbidden, largest, column, temperature)
        sampled = inverse_cdf_sample(masses, uniform[:, 1:]) * COLUMNS + column
        return tf.reshape(sampled, tf.shape(self._vectors)[:2])

    @functools.cached_property
    def _products(self) -> tf.Tensor:
        """[B*M, V'] float32, V' being V rounded up to whole rows: the logits without the bias."""
        flat = tf.reshape(self._vectors, [-1, self._vectors.shape[-1]])
        return tf.matmul(flat, tf.pad(self._table, [[0, self._num_missing], [0, 0]]), transpose_b=True)

    @functools.cached_property
    def _padded_bias(self) -> tf.Tensor:
        return tf.pad(self._bias, [[0, self._num_missing]], constant_values=NEVER)

    @property
    def _constants(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Products and bias without gradient."""
        return tf.stop_gradient(self._products), tf.stop_gradient(self._padded_bias)

    @functools.cached_property
    def _sums(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self._ops.exponential_sums(*self._constants, None)

    @property
    def _num_missing(self) -> int:
        return -self._table.shape[0] % COLUMNS


def sampling_uniform(context: ForwardContext, num_examples: tf.Tensor, num_slots: int) -> tf.Tensor:
    """[N, 2] float32 in [0, 1), N = B * M: the share of the column totals, and that of the masses in the column."""
    assert context.random is not None, "sampling needs a random stream"
    uniform = context.random.scope("categorical").uniform(num_examples, (num_slots, 2))
    return tf.reshape(uniform, [-1, 2])
