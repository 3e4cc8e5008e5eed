"""The generator's distribution over the vocabulary: losses and samples from scores that exist once.

For B * M masked positions the scores are by far the largest tensor of a step, larger than all activations of a layer. A
softmax, a cross-entropy and a Gumbel sample each make further tensors of that size. Here the product with the word
table is made once; one program reduces it to sums of exponentials, from which both the loss and the sample follow, and
one more turns it into its gradient.
"""

import functools
import math
from collections.abc import Callable

import tensorflow as tf

from electra_tf.models.compilation import column_sums, compiled
from electra_tf.models.context import ForwardContext

# The vocabulary is read as a table of so many columns, the vector width of a TPU; token t stands in column t % 128.
# Sums down a column are vectorised, and a token is drawn by drawing its column first.
_COLUMNS = 128
# The score of what cannot be drawn: entries that fill the last row of that table, and tokens that are ruled out. The
# authors subtract 1000 (pretrain_helpers.py), which a low temperature outweighs.
NEVER = -math.inf
_AS_GOOD_AS_NEVER = -1000.0  # below the largest score: its exponential is 0 in float32


class VocabularyScores:
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
        return tf.reshape(logits, [-1, self._vectors.shape[1], self._table.shape[0]])

    def losses(self, token_ids: tf.Tensor) -> tf.Tensor:
        """-log p(token) in nats: [B, M] int32 -> [B, M] float32."""
        if not self._training:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=token_ids, logits=self.logits)
        losses = _losses(self._products, self._padded_bias, tf.reshape(token_ids, [-1]), self._sums)
        return tf.reshape(losses, tf.shape(token_ids))

    def are_likeliest(self, token_ids: tf.Tensor) -> tf.Tensor:
        """1.0 where no token is likelier than the given one: [B, M] int32 -> [B, M] float32.

        It follows from the sums that losses and samples need anyway, where an argmax is one more pass over the scores.
        """
        flat, (largest, _) = tf.reshape(token_ids, [-1]), self._sums
        chosen = _chosen_scores(tf.stop_gradient(self._products), tf.stop_gradient(self._padded_bias), flat)
        return tf.reshape(tf.cast(chosen >= largest[:, 0], tf.float32), tf.shape(token_ids))

    def entropies(self) -> tf.Tensor:
        """The entropy of each vector's distribution over the vocabulary, in nats: [B, M] float32, without gradient."""
        products, bias = tf.stop_gradient(self._products), tf.stop_gradient(self._padded_bias)
        entropies = self._run((_entropies, _entropy_program), products, bias, *self._sums)
        return tf.reshape(entropies, tf.shape(self._vectors)[:2])

    def sample(
        self, context: ForwardContext, *, temperature: float = 1.0, ruled_out: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Draws a token for each vector from softmax(logits / temperature). No gradient flows through the draw.

        First the column, then the entry in it, each by where a uniform number falls among the running sums.

        Args:
            context: its random stream gives the two numbers, in float32.
            ruled_out: [B, M] int32, tokens that are not to be drawn; None for none.
        Returns: [B, M] int32.
        """
        assert context.random is not None, "sampling needs a random stream"
        uniform = context.random.scope("categorical").uniform(tf.shape(self._vectors)[0], (self._vectors.shape[1], 2))
        forbidden = None if ruled_out is None else tf.reshape(ruled_out, [-1])
        products, bias = tf.stop_gradient(self._products), tf.stop_gradient(self._padded_bias)
        if temperature == 1.0 and forbidden is None:
            sums = self._sums
        else:
            sums = self._run(_sums_program(temperature), products, bias, forbidden)
        largest, column_totals = sums
        uniform = tf.reshape(uniform, [-1, 2])
        column = place(column_totals, uniform[:, :1])
        masses = self._run(_column_program(temperature), products, bias, forbidden, largest, column)
        sampled = place(masses, uniform[:, 1:]) * _COLUMNS + column
        return tf.reshape(sampled, tf.shape(self._vectors)[:2])

    def at(self, positions: tf.Tensor) -> "VocabularyScores":
        """The scores of some of the vectors, taken out of these and not computed again. No gradient flows into them.

        Args:
            positions: [B, K] int32, each in [0, M).
        """
        return _ChosenScores(self, positions)

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
        return self._run(
            _sums_program(1.0), tf.stop_gradient(self._products), tf.stop_gradient(self._padded_bias), None
        )

    @property
    def _num_missing(self) -> int:
        return -self._table.shape[0] % _COLUMNS

    def _run(self, programs: tuple[Callable, Callable], *inputs):
        formula, program = programs
        return (program if self._training else formula)(*inputs)


class _ChosenScores(VocabularyScores):
    """Scores at some positions of a whole."""

    def __init__(self, whole: VocabularyScores, positions: tf.Tensor):
        vectors = tf.gather(tf.stop_gradient(whole._vectors), positions, batch_dims=1)
        super().__init__(vectors, whole._table, whole._bias, whole._training)
        self._whole, self._positions = whole, positions

    @functools.cached_property
    def logits(self) -> tf.Tensor:
        return tf.gather(tf.stop_gradient(self._whole.logits), self._positions, batch_dims=1)

    @functools.cached_property
    def _products(self) -> tf.Tensor:
        products = tf.stop_gradient(self._whole._products)
        rows = tf.reshape(products, [-1, self._whole._vectors.shape[1], products.shape[1]])
        return tf.reshape(tf.gather(rows, self._positions, batch_dims=1), [-1, products.shape[1]])


def _scores(products, bias, ruled_out, temperature: float) -> tf.Tensor:
    """[N, V'] -> [N, V' / 128, 128]: the scores over the temperature, those ruled out never drawn."""
    scores = (products + bias) * (1.0 / temperature)
    if ruled_out is not None:
        scores = tf.where(tf.range(products.shape[1]) == ruled_out[:, tf.newaxis], NEVER, scores)
    return tf.reshape(scores, [-1, products.shape[1] // _COLUMNS, _COLUMNS])


@functools.cache
def _sums_program(temperature: float) -> tuple[Callable, Callable]:
    def sums(products, bias, ruled_out):
        """-> the largest score of each row [N, 1], and the sums of exp(score - largest) down each column [N, 128]."""
        scores = _scores(products, bias, ruled_out, temperature)
        largest = tf.reduce_max(tf.reduce_max(scores, axis=1), axis=1, keepdims=True)
        return largest, tf.reduce_sum(tf.exp(scores - largest[:, tf.newaxis]), axis=1)

    return sums, compiled(sums)


@functools.cache
def _column_program(temperature: float) -> tuple[Callable, Callable]:
    def masses(products, bias, ruled_out, largest, column):
        """-> [N, V' / 128]: exp(score - largest) down one column of each row."""
        scores = _scores(products, bias, ruled_out, temperature)
        return tf.exp(tf.gather(scores, column, axis=2, batch_dims=1) - largest)

    return masses, compiled(masses)


def place(masses: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """[N, K] masses, [N, 1] in [0, 1) -> [N] int32: the first whose running sum exceeds that share of the total."""
    running = tf.cumsum(masses, axis=1)
    total = running[:, -1:]
    below = tf.reduce_sum(tf.cast(running <= uniform * total, tf.int32), axis=1)
    # A share that rounds to the whole must not lead past the last entry that has any mass.
    return tf.minimum(below, tf.reduce_sum(tf.cast(running < total, tf.int32), axis=1))


def _losses(products: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor, sums: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """[N, V'], [V'], [N] int32 -> [N] float32; keeps only log-sum-exp for the way back."""

    @tf.custom_gradient
    def operation(products, bias):
        losses, log_totals = _loss_program(products, bias, token_ids, *sums)
        return losses, lambda upstream: _loss_gradient_program(products, bias, token_ids, log_totals, upstream)

    return operation(products, bias)


def _loss(products, bias, token_ids, largest, column_totals) -> tuple[tf.Tensor, tf.Tensor]:
    log_totals = largest + tf.math.log(tf.reduce_sum(column_totals, axis=1, keepdims=True))  # [N, 1]
    return log_totals[:, 0] - _chosen_scores(products, bias, token_ids), log_totals


def _chosen_scores(products: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor) -> tf.Tensor:
    """[N, V'], [V'], [N] int32 -> [N]: the score of one token a row."""
    return tf.gather(products, token_ids, axis=1, batch_dims=1) + tf.gather(bias, token_ids)


def _entropies(products, bias, largest, column_totals) -> tf.Tensor:
    """-> [N]: with s the scores below the largest, log sum exp(s) - sum s exp(s) / sum exp(s)."""
    # Of what cannot be drawn the score is infinite, and times a probability of 0 it would have no value.
    below = tf.maximum(products + bias - largest, _AS_GOOD_AS_NEVER)
    rows = tf.reshape(below * tf.exp(below), [-1, products.shape[1] // _COLUMNS, _COLUMNS])
    totals = tf.reduce_sum(column_totals, axis=1)
    return tf.math.log(totals) - tf.reduce_sum(tf.reduce_sum(rows, axis=1), axis=1) / totals


def _loss_gradient(products, bias, token_ids, log_totals, upstream) -> tuple[tf.Tensor, tf.Tensor]:
    probs = tf.exp(products + bias - log_totals)
    chosen = tf.cast(tf.range(products.shape[1]) == token_ids[:, tf.newaxis], tf.float32)
    gradient = (probs - chosen) * upstream[:, tf.newaxis]
    return gradient, column_sums(gradient)


_loss_program, _loss_gradient_program = compiled(_loss), compiled(_loss_gradient)
_entropy_program = compiled(_entropies)
