"""The generator's distribution over the vocabulary: losses and samples from scores that exist once.

For B * M masked positions the scores are by far the largest tensor of a step, larger than all activations of a layer. A
softmax, a cross-entropy and a Gumbel sample each make further tensors of that size. Here the product with the word
table is made once; one program reduces it to sums of exponentials, from which both the loss and the sample follow, and
one more turns it into its gradient.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from electra_tf.models.context import ForwardContext
from electra_tf.ops.vocabulary import (
    COLUMNS,
    NEVER,
    chosen_scores,
    column_program,
    entropies,
    entropy_program,
    kept_scores_losses,
    place,
    places_to_draw,
    sums_program,
)
from electra_tf.ops.vocabulary_losses import TokenLosses, token_losses


class VocabularyLogits:
    """Scores of every vocabulary entry for each of a set of vectors, and what follows from them.

    Args:
        vectors: [B, M, E] float32.        table: [V, E] float32.        bias: [V] float32.
        training: whether losses and samples are taken as compiled programs; else as ordinary operations.
    """

    def __init__(self, vectors: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, training: bool):
        self._vectors, self._table, self._bias = vectors, table, bias
        self._training = training

    @functools.cached_property
    def logits(self) -> tf.Tensor:
        """[B, M, V] float32. A large tensor of its own: in training, take losses and samples instead."""
        flat = tf.reshape(self._vectors, [-1, self._vectors.shape[-1]])  # [B*M, E]
        logits = tf.matmul(flat, self._table, transpose_b=True) + self._bias
        num_vectors = self._vectors.shape[1] or tf.shape(self._vectors)[1]
        return tf.reshape(logits, [-1, num_vectors, self._table.shape[0]])

    def losses(self, token_ids: tf.Tensor) -> tf.Tensor:
        """-log p(token) in nats: [B, M] int32 -> [B, M] float32."""
        if not self._training:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=token_ids, logits=self.logits)
        losses = kept_scores_losses(self._products, self._padded_bias, tf.reshape(token_ids, [-1]), self._sums)
        return tf.reshape(losses, tf.shape(token_ids))

    def token_losses(self, token_ids: tf.Tensor, other_ids: tf.Tensor) -> TokenLosses:
        """-log p of two tokens and of the likeliest, with never more than 256 MiB of scores at once.

        For all positions of a sequence, see `electra_tf.ops.vocabulary_losses`.

        Args:
            token_ids, other_ids: [B, M] int32.
        """
        table = tf.pad(self._table, [[0, self._num_missing], [0, 0]])
        return token_losses(self._vectors, table, self._padded_bias, token_ids, other_ids, self._run)

    def is_top1(self, token_ids: tf.Tensor) -> tf.Tensor:
        """1.0 where no token is likelier than the given one: [B, M] int32 -> [B, M] float32.

        It follows from the sums that losses and samples need anyway, where an argmax is one more pass over the scores.
        """
        flat, (largest, _) = tf.reshape(token_ids, [-1]), self._sums
        chosen = chosen_scores(tf.stop_gradient(self._products), tf.stop_gradient(self._padded_bias), flat)
        return tf.reshape(tf.cast(chosen >= largest[:, 0], tf.float32), tf.shape(token_ids))

    def entropies(self) -> tf.Tensor:
        """The entropy of each vector's distribution over the vocabulary, in nats: [B, M] float32, without gradient."""
        products, bias = tf.stop_gradient(self._products), tf.stop_gradient(self._padded_bias)
        found = self._run((entropies, entropy_program), products, bias, *self._sums)
        return tf.reshape(found, tf.shape(self._vectors)[:2])

    def sample(
        self, context: ForwardContext, *, temperature: float = 1.0, forbidden_ids: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Draws a token for each vector from softmax(logits / temperature). No gradient flows through the draw.

        First the column, then the entry in it, each by where a uniform number falls among the running sums.

        Args:
            context: its random stream gives the two numbers, in float32.
            forbidden_ids: [B, M] int32, tokens that are not to be drawn; None for none.
        Returns: [B, M] int32.
        """
        uniform = places_to_draw(context, tf.shape(self._vectors)[0], self._vectors.shape[1])
        forbidden = None if forbidden_ids is None else tf.reshape(forbidden_ids, [-1])
        products, bias = tf.stop_gradient(self._products), tf.stop_gradient(self._padded_bias)
        if temperature == 1.0 and forbidden is None:
            sums = self._sums
        else:
            sums = self._run(sums_program(temperature), products, bias, forbidden)
        largest, column_totals = sums
        column = place(column_totals, uniform[:, :1])
        masses = self._run(column_program(temperature), products, bias, forbidden, largest, column)
        sampled = place(masses, uniform[:, 1:]) * COLUMNS + column
        return tf.reshape(sampled, tf.shape(self._vectors)[:2])

    @functools.cached_property
    def _products(self) -> tf.Tensor:
        """[B*M, V'] float32, V' being V rounded up to whole rows: the scores but for the bias."""
        flat = tf.reshape(self._vectors, [-1, self._vectors.shape[-1]])
        return tf.matmul(flat, tf.pad(self._table, [[0, self._num_missing], [0, 0]]), transpose_b=True)

    @functools.cached_property
    def _padded_bias(self) -> tf.Tensor:
        return tf.pad(self._bias, [[0, self._num_missing]], constant_values=NEVER)

    @functools.cached_property
    def _sums(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self._run(sums_program(1.0), tf.stop_gradient(self._products), tf.stop_gradient(self._padded_bias), None)

    @property
    def _num_missing(self) -> int:
        return -self._table.shape[0] % COLUMNS

    def _run(self, programs: tuple[Callable, Callable], *inputs):
        formula, program = programs
        return (program if self._training else formula)(*inputs)
